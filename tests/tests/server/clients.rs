//! Programs that may not be on this machine.

use std::io::Write;
use std::process::{Command, Output};

use skewer_server::Users;
use skewer_tests::cluster::Cluster;
use skewer_tests::served::Served;

/// Says that a test proves nothing here, past the capturing of output. Fails where programs must be there:
/// where `SKEWER_REQUIRE_CLIENTS` is 1.
pub fn skip(test: &str, reason: &str) {
    let required = std::env::var("SKEWER_REQUIRE_CLIENTS").is_ok_and(|value| value == "1");
    assert!(!required, "{test}: {reason}");
    skip_part(test, reason);
}

/// Says that a part of a test proves nothing with the version of a program that is here.
pub fn skip_part(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}

/// What `command` prints, if it can be run and succeeds.
pub fn asked(mut command: Command) -> Option<String> {
    let output = command.output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What came of a program.
#[derive(Debug)]
pub struct Ran {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            status: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ran {
    /// Standard output, if all went well and nothing was said beside it.
    #[track_caller]
    pub fn success(self) -> String {
        let outcome = (self.status, self.stderr.as_str());
        assert_eq!(outcome, (Some(0), ""), "{}", self.stdout);
        self.stdout
    }
}

/// Runs a program that ends with the server's port against a database of this process, against one
/// beyond loopback, which wants encryption and a password, and against the master of two workers;
/// each time it has to say `ok` as many times as it has parts.
#[track_caller]
pub fn gets_what_it_asks_for(program: impl Fn() -> Command, encrypted: &str, parts: usize) {
    let run = |case: &str, served: &Served, mode: &str| {
        let mut program = program();
        program
            .arg(served.address.port().to_string())
            .env("PGSSLMODE", mode)
            .env("PGPASSWORD", "lovelace");
        let said = Ran::from(program.output().unwrap()).success();
        assert_eq!(said.matches(" ok\n").count(), parts, "{case}: {said}");
    };
    run("loopback", &Served::start(), "disable");
    let beyond = Served::on("0.0.0.0:0", |directory| {
        Users::add(directory, "ada", "lovelace").unwrap();
    });
    run("beyond loopback", &beyond, encrypted);
    let cluster = Cluster::start(2);
    let directory = cluster.master_directory();
    let master = Served::of_database(cluster.database().clone(), &directory, "127.0.0.1:0");
    run("a cluster", &master, "disable");
}
