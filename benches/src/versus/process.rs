//! A system under comparison, in a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::System;
use crate::error::BenchError;
use crate::measure::{Took, peak_bytes_of};

/// How DuckDB is run.
const RUN_DUCKDB: &str = include_str!("run_duckdb.py");

/// What takes part in a comparison.
#[derive(Debug, Clone)]
pub struct Contender {
    /// How results call it.
    pub name: String,
    /// What it is.
    pub system: System,
    /// This program or another build of it, or a Python interpreter.
    pub program: PathBuf,
    /// Settings of its session: `name = value`.
    pub settings: Vec<String>,
}

/// A process that answers requests: each is a line of JSON, and so is each answer.
#[derive(Debug)]
pub struct Process {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
    timeout: Duration,
}

/// What a request took, and how many rows it gave.
#[derive(Debug, Clone, Copy)]
pub struct Answered {
    /// Times that the process itself measured.
    pub took: Took,
    /// Rows of a query's answer.
    pub rows: u64,
}

impl Process {
    /// Starts a process, and has it open its database. A request that takes longer than `timeout` ends it.
    ///
    /// # Errors
    /// If the program is not there, or cannot open the database.
    pub fn start(
        contender: &Contender,
        open: &Value,
        timeout: Duration,
    ) -> Result<Self, BenchError> {
        let mut command = Command::new(&contender.program);
        match contender.system {
            System::Duckdb | System::DuckdbParquet => command.args(["-c", RUN_DUCKDB]),
            serves => command.args(["--serve", serves.name()]),
        };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(BenchError::file(&contender.program))?;
        let (Some(requests), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(BenchError::Unexpected("a process without pipes".to_owned()));
        };
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut process = Self {
            child,
            requests,
            answers,
            timeout,
        };
        let opened = process.ask(open);
        opened.map_err(|error| BenchError::Unexpected(format!("{}: {error}", contender.name)))?;
        Ok(process)
    }

    /// The answer to a request.
    ///
    /// # Errors
    /// What the process says is wrong, or that it ended or takes too long. After the latter two, it answers no
    /// more.
    pub fn ask(&mut self, request: &Value) -> Result<Value, String> {
        let ended = || "the process has ended".to_owned();
        writeln!(self.requests, "{request}").map_err(|_| ended())?;
        let answer = match self.answers.recv_timeout(self.timeout) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Disconnected) => return Err(ended()),
            Err(RecvTimeoutError::Timeout) => {
                self.end();
                return Err(format!("it takes more than {} s", self.timeout.as_secs()));
            }
        };
        let answer: Value = serde_json::from_str(&answer).map_err(|error| error.to_string())?;
        match answer["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer),
        }
    }

    /// What a query or a load took.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn measure(&mut self, request: &Value) -> Result<Answered, String> {
        let answer = self.ask(request)?;
        let seconds = |name: &str| answer[name].as_f64().unwrap_or(f64::NAN);
        Ok(Answered {
            took: Took {
                wall: seconds("wall"),
                cpu: seconds("cpu"),
            },
            rows: answer["rows"].as_u64().unwrap_or(0),
        })
    }

    /// The most memory, in bytes, that the process has had; 0 if it is gone.
    pub fn peak_bytes(&self) -> u64 {
        peak_bytes_of(self.child.id()).unwrap_or(0)
    }

    /// Closes the database and waits for the process.
    ///
    /// # Errors
    /// If it cannot write what it has.
    pub fn close(mut self) -> Result<(), BenchError> {
        let closed = self.ask(&json!({"do": "close"}));
        closed.map_err(BenchError::Unexpected)?;
        self.end();
        Ok(())
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
