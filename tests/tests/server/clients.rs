//! Programs that may not be on this machine.

use std::io::Write;
use std::process::{Command, Output};

/// Says that a test proves nothing here, past the capturing of output.
pub fn skip(test: &str, reason: &str) {
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
