//! Runs the binary.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// The binary, with nothing of the developer's terminal in its environment.
pub fn skewer(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_skewer"));
    command
        .args(args)
        .env_remove("NO_COLOR")
        .env("TERM", "xterm-256color");
    command
}

/// Runs it with `input` on standard input. It has a temporary directory to itself: in a shared one, it
/// would log that it removes what another test's killed process has left.
pub fn run(args: &[&str], input: &str) -> Ran {
    let temporary = tempfile::tempdir().expect("a temporary directory can be made");
    let mut child = skewer(args)
        .env("TMPDIR", temporary.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut stdin = child.stdin.take().expect("standard input is piped");
    // A process that does not read its input may have gone already.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    Ran::from(child.wait_with_output().expect("the binary ends"))
}

/// What came of it.
#[derive(Debug)]
pub struct Ran {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// Standard output, if the status is 0 and standard error is empty.
    #[track_caller]
    pub fn success(self) -> String {
        assert_eq!(
            (self.status, self.stderr.as_str()),
            (Some(0), ""),
            "{self:?}"
        );
        self.stdout
    }

    /// Standard error, if the status is 1 and nothing is on standard output.
    #[track_caller]
    pub fn failure(self) -> String {
        assert_eq!(
            (self.status, self.stdout.as_str()),
            (Some(1), ""),
            "{self:?}"
        );
        self.stderr
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            status: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("standard output is UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("standard error is UTF-8"),
        }
    }
}

/// The address in a line, as host and path.
pub fn address_in(line: &str) -> (String, String) {
    let start = line
        .find("http://")
        .unwrap_or_else(|| panic!("no address: {line}"));
    let address = line[start + "http://".len()..]
        .split(['"', '\n'])
        .next()
        .unwrap();
    let (address, token) = address.split_once("#token=").unwrap();
    assert!(token.len() >= 40, "{line}");
    let (host, path) = address.split_once('/').unwrap();
    (host.to_owned(), format!("/{path}"))
}

/// What a server answers to a browser.
pub fn asked(host: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(host).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
