//! A master and workers that can be killed, each a process.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use skewer_tests::cluster::binary;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// For what must happen, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(90);

/// One of the processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    Master,
    /// By number, from 1.
    Worker(usize),
}

/// A cluster on loopback; it ends when this is dropped.
#[derive(Debug)]
pub struct Processes {
    master: Child,
    workers: Vec<Child>,
    /// Where SQL clients reach the master.
    port: u16,
    /// Where workers do; the same after a restart.
    cluster_address: String,
    directory: TempDir,
    starts: usize,
}

impl Processes {
    pub async fn start(workers: usize) -> Processes {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("master");
        asked(Command::new(binary()).args(["cluster", "init"]).arg(&data));
        let (master, port) = serve(directory.path(), "127.0.0.1:0", 0);
        let mut processes = Processes {
            master,
            workers: Vec::new(),
            port,
            cluster_address: String::new(),
            directory,
            starts: 1,
        };
        for number in 1..=workers {
            let token = asked(
                Command::new(binary())
                    .args(["cluster", "token", "--data"])
                    .arg(&data),
            );
            let worker = processes.worker(number, &["--join", token.trim()]);
            processes.workers.push(worker);
        }
        processes.cluster_address = processes.address_of_master();
        processes.all_take_part().await;
        processes
    }

    /// Where the master listens for workers, which it writes down.
    fn address_of_master(&self) -> String {
        let options = skewer::ClusterOptions::directory_of(&self.directory.path().join("master"));
        let cluster = skewer::cluster::ClusterDirectory::open(&options).unwrap();
        cluster.address().unwrap()
    }

    fn worker(&self, number: usize, arguments: &[&str]) -> Child {
        let home = self.directory.path().join(format!("worker-{number}"));
        Command::new(binary())
            .args([
                "worker",
                "--listen",
                "127.0.0.1:0",
                "--threads",
                "2",
                "--data",
            ])
            .arg(home)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log(self.directory.path(), &format!("worker-{number}")))
            .spawn()
            .unwrap()
    }

    fn child(&mut self, node: Node) -> &mut Child {
        match node {
            Node::Master => &mut self.master,
            Node::Worker(number) => &mut self.workers[number - 1],
        }
    }

    /// SIGKILL.
    pub fn kill(&mut self, node: Node) {
        let child = self.child(node);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Starts a process that was killed, and waits until all take part.
    pub async fn restart(&mut self, node: Node) {
        match node {
            Node::Master => {
                let home = self.directory.path();
                (self.master, self.port) = serve(home, &self.cluster_address, self.starts);
                self.starts += 1;
            }
            Node::Worker(number) => self.workers[number - 1] = self.worker(number, &[]),
        }
        self.all_take_part().await;
    }

    async fn all_take_part(&self) {
        let sql = "SELECT count(*) FROM sys.workers \
                   WHERE query_id IS NULL AND state = 'alive' AND worker_id > 0";
        let all = [self.workers.len().to_string()];
        let begun = Instant::now();
        while self.try_rows(sql).await.ok().as_deref() != Some(&all) {
            assert!(begun.elapsed() < PATIENCE, "{}", self.logs());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn connect(&self) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        let options = format!("host=127.0.0.1 port={} user=test dbname=test", self.port);
        let (client, connection) = tokio_postgres::connect(&options, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Runs a statement.
    pub async fn sql(&self, sql: &str) -> Result<(), String> {
        self.begin(sql).await.await.unwrap()
    }

    /// Begins to run a statement.
    pub async fn begin(&self, sql: &str) -> JoinHandle<Result<(), String>> {
        let client = self.connect().await.unwrap();
        let sql = sql.to_owned();
        tokio::spawn(async move {
            let done = client.batch_execute(&sql).await;
            done.map_err(|error| match error.as_db_error() {
                Some(error) => error.message().to_owned(),
                None => error.to_string(),
            })
        })
    }

    async fn try_rows(&self, sql: &str) -> Result<Vec<String>, tokio_postgres::Error> {
        let messages = self.connect().await?.simple_query(sql).await?;
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => {
                let values = (0..row.len()).map(|n| row.get(n).unwrap_or("NULL").to_owned());
                Some(values.collect::<Vec<_>>().join("|"))
            }
            _ => None,
        };
        Ok(messages.into_iter().filter_map(row).collect())
    }

    /// The rows of a query, values separated by `|`.
    pub async fn rows(&self, sql: &str) -> Vec<String> {
        match self.try_rows(sql).await {
            Ok(rows) => rows,
            Err(error) => panic!("{sql}: {error:?}\n{}", self.logs()),
        }
    }

    /// Waits until workers have no other segments than those of the catalog.
    pub async fn has_no_orphans(&mut self) {
        // What queries saw is not kept any longer.
        self.rows("SET profile.snapshot_bytes = 0").await;
        for number in 1..=self.workers.len() {
            self.kill(Node::Worker(number));
            self.restart(Node::Worker(number)).await;
        }
        let begun = Instant::now();
        loop {
            let known = self
                .rows("SELECT coalesce(sum(segments), 0) FROM sys.cluster")
                .await;
            let homes = 1..=self.workers.len();
            let found: usize = homes
                .map(|n| segments(&self.directory.path().join(format!("worker-{n}"))))
                .sum();
            if known == [found.to_string()] {
                assert!(found > 0, "nothing was written to workers");
                return;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{found} files for {known:?} segments"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn logs(&self) -> String {
        let mut logs = String::new();
        for entry in std::fs::read_dir(self.directory.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "log") {
                logs += &std::fs::read_to_string(path).unwrap();
            }
        }
        logs
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in self.workers.iter_mut().chain([&mut self.master]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Parquet files below a directory.
fn segments(directory: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return 0;
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| !path.ends_with("sys"))
        .map(|path| match path.is_dir() {
            true => segments(&path),
            false => usize::from(path.extension().is_some_and(|e| e == "parquet")),
        })
        .sum()
}

fn log(home: &Path, name: &str) -> File {
    let path = home.join(format!("{name}.log"));
    File::options()
        .create(true)
        .append(true)
        .open(path)
        .unwrap()
}

/// Starts the master; the port where it serves SQL clients, which it logs.
fn serve(home: &Path, cluster_address: &str, start: usize) -> (Child, u16) {
    let name = format!("master-{start}");
    let mut child = Command::new(binary())
        .args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--log",
            "json",
            "--threads",
            "2",
        ])
        .args(["--cluster-listen", cluster_address, "--data"])
        .arg(home.join("master"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log(home, &name))
        .spawn()
        .unwrap();
    let path: PathBuf = home.join(format!("{name}.log"));
    let begun = Instant::now();
    loop {
        let text = std::fs::read_to_string(&path).unwrap();
        let events = text
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        for event in events {
            if event["message"] == "listening"
                && let Some((_, port)) = event["address"].as_str().and_then(|a| a.rsplit_once(':'))
            {
                return (child, port.parse().unwrap());
            }
        }
        assert!(begun.elapsed() < PATIENCE, "{text}");
        assert!(child.try_wait().unwrap().is_none(), "{text}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[track_caller]
fn asked(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout).unwrap()
}
