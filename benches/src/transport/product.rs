//! The product's own processes: `skewer serve` and `skewer worker`, used through PostgreSQL's
//! protocol.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use skewer::ClusterOptions;
use skewer::cluster::ClusterDirectory;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use super::cluster::WORKERS;
use super::worker::network;
use crate::corpus::Corpus;
use crate::error::BenchError;

/// How results call it.
pub const NAME: &str = "`skewer serve` and workers";

/// How long a process may take to serve, or to end.
const PATIENCE: Duration = Duration::from_secs(60);

const LOOK: Duration = Duration::from_millis(5);

/// A cluster that is not running: a program, the directories of master and workers, and tables.
#[derive(Debug)]
pub struct Installation {
    program: PathBuf,
    home: TempDir,
}

/// A cluster that runs. It ends with this.
#[derive(Debug)]
pub struct Running {
    master: Child,
    workers: Vec<Child>,
    /// A connection to it.
    pub client: Client,
}

impl Installation {
    /// Makes a cluster of the `skewer` binary `program`, writes the tables of `corpus` into it, and
    /// ends it.
    pub async fn load(program: &Path, corpus: &Corpus) -> Result<Self, BenchError> {
        if !program.exists() {
            return Err(BenchError::Unexpected(format!(
                "there is no {}: build it with `cargo build --release`, or name it with --skewer",
                program.display()
            )));
        }
        let installation = Self {
            program: program.to_owned(),
            home: tempfile::tempdir()?,
        };
        let data = installation.data();
        installation.ask(&["cluster", "init", &data]).await?;
        let mut tokens = Vec::new();
        let master = installation.serve().await?;
        for _ in 1..=WORKERS {
            let token = ["cluster", "token", "--data", &data];
            tokens.push(installation.ask(&token).await?);
        }
        let running = installation.join(master, &tokens).await?;
        for (table, directory) in corpus.tables() {
            let files = directory.display();
            let sql = format!(
                "CREATE TABLE {table} AS SELECT * EXCLUDE (_row_id) FROM '{files}/*.parquet'"
            );
            running.client.batch_execute(&sql).await?;
        }
        running.stop().await?;
        Ok(installation)
    }

    /// Starts the cluster: fresh processes, with the tables that are there.
    pub async fn start(&self) -> Result<Running, BenchError> {
        let master = self.serve().await?;
        self.join(master, &[]).await
    }

    /// The master's directory.
    fn data(&self) -> String {
        self.home.path().join("master").display().to_string()
    }

    /// The master, and where it listens.
    async fn serve(&self) -> Result<(Child, String), BenchError> {
        let data = self.data();
        let directory = ClusterDirectory::open(&ClusterOptions::directory_of(data.as_ref()));
        // Workers look for it where it was.
        let address = directory.map_err(network)?.address();
        let address = address.unwrap_or_else(|| "127.0.0.1:0".to_owned());
        let mut arguments = vec!["serve", "--data", &data, "--listen", "127.0.0.1:0"];
        arguments.extend(["--cluster-listen", &address]);
        self.process("master", &arguments, "listening").await
    }

    /// Starts the workers, with tokens the first time, and connects.
    async fn join(
        &self,
        (master, address): (Child, String),
        tokens: &[String],
    ) -> Result<Running, BenchError> {
        let mut workers = Vec::new();
        for number in 1..=WORKERS {
            let name = format!("worker-{number}");
            let home = self.home.path().join(&name).display().to_string();
            let mut arguments = vec!["worker", "--data", &home, "--listen", "127.0.0.1:0"];
            if let Some(token) = tokens.get(number as usize - 1) {
                arguments.extend(["--join", token.trim()]);
            }
            let worker = self.process(&name, &arguments, "taking part").await?;
            workers.push(worker.0);
        }
        let (host, port) = address.rsplit_once(':').unwrap_or_default();
        let options = format!("host={host} port={port} user=bench dbname=bench");
        let (client, connection) = tokio_postgres::connect(&options, NoTls).await?;
        tokio::spawn(connection);
        Ok(Running {
            master,
            workers,
            client,
        })
    }

    /// Starts a process and waits until its log has `event`; the address that it says there.
    async fn process(
        &self,
        name: &str,
        arguments: &[&str],
        event: &str,
    ) -> Result<(Child, String), BenchError> {
        let log = self.home.path().join(format!("{name}.log"));
        let file = File::create(&log).map_err(BenchError::file(&log))?;
        let mut child = Command::new(&self.program)
            .args(arguments)
            .args(["--log", "json"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .kill_on_drop(true)
            .spawn()?;
        let begun = Instant::now();
        loop {
            let text = std::fs::read_to_string(&log).map_err(BenchError::file(&log))?;
            if let Some(address) = address_of(&text, event) {
                return Ok((child, address));
            }
            if child.try_wait()?.is_some() || begun.elapsed() > PATIENCE {
                return Err(BenchError::Unexpected(format!(
                    "{name} has not come to \"{event}\": {text}"
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What a command prints.
    async fn ask(&self, arguments: &[&str]) -> Result<String, BenchError> {
        let output = Command::new(&self.program).args(arguments).output().await?;
        if !output.status.success() {
            return Err(BenchError::Unexpected(format!(
                "skewer {}: {}",
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr)
            )));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Running {
    /// The workers' processes.
    pub fn workers(&self) -> Vec<u32> {
        self.workers.iter().filter_map(Child::id).collect()
    }

    /// Runs a query; how many rows it has.
    pub async fn rows(&self, sql: &[String]) -> Result<usize, BenchError> {
        let mut rows = 0;
        for statement in sql {
            let messages = self.client.simple_query(statement).await?;
            let row = |message: &&SimpleQueryMessage| matches!(message, SimpleQueryMessage::Row(_));
            rows += messages.iter().filter(row).count();
        }
        Ok(rows)
    }

    /// Tells all processes to end, and waits until they have.
    pub async fn stop(self) -> Result<(), BenchError> {
        drop(self.client);
        for mut child in self.workers.into_iter().chain([self.master]) {
            if let Some(process) = child.id() {
                let mut kill = Command::new("kill");
                kill.args(["-TERM", &process.to_string()]).status().await?;
            }
            let ended = tokio::time::timeout(PATIENCE, child.wait()).await;
            ended.map_err(|_| BenchError::Unexpected("a process does not end".to_owned()))??;
        }
        Ok(())
    }
}

/// The address in the first line of a log that says `event`.
fn address_of(log: &str, event: &str) -> Option<String> {
    let lines = log.lines();
    let mut events = lines.filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let found = events.find(|found| found["message"] == event)?;
    Some(found["address"].as_str().unwrap_or_default().to_owned())
}
