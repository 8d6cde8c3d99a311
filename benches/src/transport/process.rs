//! Processes of the experiment: this program again, with a command of its own.

use std::ffi::OsStr;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::error::BenchError;

/// A process, which ends with this.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Closed, it tells the process to end.
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    /// What it said first, by words: usually where it listens.
    pub addresses: Vec<String>,
}

impl Process {
    /// Starts it and waits until it has said something.
    pub async fn start(
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Self, BenchError> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(BenchError::Unexpected("a process without pipes".to_owned()));
        };
        let mut output = BufReader::new(output).lines();
        let Some(addresses) = output.next_line().await? else {
            let status = child.wait().await?;
            return Err(BenchError::Unexpected(format!(
                "a process of the experiment ended at its start, with {status}"
            )));
        };
        let addresses = addresses.split_whitespace().map(str::to_owned).collect();
        Ok(Self {
            child,
            input,
            output,
            addresses,
        })
    }

    /// Its id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Says a line to it.
    pub async fn say(&mut self, line: &str) -> Result<(), BenchError> {
        Ok(self.input.write_all(format!("{line}\n").as_bytes()).await?)
    }

    /// Says a line to it, and waits until it is ready.
    pub async fn tell(&mut self, line: &str) -> Result<(), BenchError> {
        self.say(line).await?;
        match self.output.next_line().await? {
            Some(line) if line == READY => Ok(()),
            other => Err(BenchError::Unexpected(format!("a process said {other:?}"))),
        }
    }

    /// Lets it end by itself.
    pub async fn stop(mut self) -> Result<(), BenchError> {
        drop(self.input);
        self.child.wait().await?;
        Ok(())
    }
}

/// What a process says when it is ready.
pub const READY: &str = "ready";
