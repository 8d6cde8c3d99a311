//! The commands of the guide.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use skewer_tests::cluster::{Cluster, PATIENCE, binary};

/// A process that is killed when this is dropped.
struct Process(Child);

impl Process {
    /// Starts `skewer`, whose log goes to a file.
    fn start(log: &Path, arguments: &[&str]) -> Process {
        let mut command = Command::new(binary());
        command.args(arguments).args(["--log", "json"]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Process(command.stderr(File::create(log).unwrap()).spawn().unwrap())
    }

    /// Tells it to end; gives its status.
    #[track_caller]
    fn terminate(mut self) -> Option<i32> {
        let mut kill = Command::new("kill");
        kill.args(["-TERM", &self.0.id().to_string()]);
        assert!(kill.status().unwrap().success());
        let begun = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for an event of a log; gives its `address`.
#[track_caller]
fn wait_for(log: &Path, message: &str) -> String {
    let begun = Instant::now();
    loop {
        let text = std::fs::read_to_string(log).unwrap();
        let mut events = text.lines().filter_map(|line| {
            let event: serde_json::Value = serde_json::from_str(line).ok()?;
            (event["message"] == message).then_some(event)
        });
        if let Some(event) = events.next_back() {
            return event["address"].as_str().unwrap_or_default().to_owned();
        }
        assert!(begun.elapsed() < PATIENCE, "no event {message}: {text}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn skewer(arguments: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(arguments).stdin(Stdio::null());
    command.output().unwrap()
}

/// What it says when it fails.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let output = skewer(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}

#[test]
fn three_commands_make_a_cluster_that_sql_clients_use() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let data = path("music").display().to_string();
    let said = refused(&["cluster", "token", "--data", &data]);
    assert!(said.contains("skewer cluster init"), "{said}");
    let said = refused(&["serve", "--data", &data, "--cluster-listen", "127.0.0.1:0"]);
    assert!(said.contains("skewer cluster init"), "{said}");
    let made = skewer(&["cluster", "init", &data]);
    assert!(made.status.success(), "{made:?}");
    let said = refused(&["cluster", "init", &data]);
    assert!(
        said.contains("is the directory of a cluster already"),
        "{said}"
    );
    let said = refused(&["cluster", "token", "--data", &data]);
    assert!(said.contains("--address HOST:PORT"), "{said}");

    let log = path("serve.log");
    let listen = ["--listen", "127.0.0.1:0", "--cluster-listen", "127.0.0.1:0"];
    let mut serve = vec!["serve", "--data", data.as_str()];
    serve.extend(listen);
    let master = Process::start(&log, &serve);
    let address = wait_for(&log, "listening");
    // Older than the workers.
    let old = "CREATE TABLE old AS SELECT value AS a FROM generate_series(1, 100);";
    assert!(skewer(&["--connect", &address, "-c", old]).status.success());
    let mut workers = Vec::new();
    for number in 1..=2 {
        let token = skewer(&["cluster", "token", "--data", &data, "--expires", "1h"]);
        let token = String::from_utf8(token.stdout).unwrap();
        let home = path(&format!("worker-{number}")).display().to_string();
        let log = path(&format!("worker-{number}.log"));
        let arguments = ["worker", "--data", &home, "--join", token.trim()];
        workers.push(Process::start(&log, &arguments));
        wait_for(&log, "taking part");
    }
    let sql = "CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 9000);
               SELECT sum(a) FROM t;
               SELECT count(DISTINCT worker_id) FROM sys.operator_stats
               WHERE query_id = last_query_id() AND worker_id > 0;";
    let shown = skewer(&["--connect", &address, "--format", "csv", "-c", sql]);
    let text = String::from_utf8(shown.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines.contains(&"40504500") && lines.contains(&"2"),
        "{text}"
    );
    let rebalance = ["cluster", "rebalance", "--connect", &address, "--format"];
    let moved = skewer(&[&rebalance[..], &["csv", "--table", "old"]].concat());
    let text = String::from_utf8(moved.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "table_name,worker_id,rows_before,rows_after,note",
            "main.old,0,100,0,",
            "main.old,1,0,50,",
            "main.old,2,0,50,",
        ],
    );
    let said = refused(&[
        "cluster",
        "rebalance",
        "--connect",
        &address,
        "--table",
        "no",
    ]);
    assert!(said.contains("there is no table no"), "{said}");
    let taken = wait_for(&log, "listening for workers");
    let other = path("other").display().to_string();
    assert!(skewer(&["cluster", "init", &other]).status.success());
    let said = refused(&[
        "serve",
        "--data",
        &other,
        "--listen",
        "127.0.0.1:0",
        "--cluster-listen",
        &taken,
    ]);
    assert!(
        said.contains("cannot listen at") && said.contains(&taken),
        "{said}"
    );
    for worker in workers {
        assert_eq!(worker.terminate(), Some(0));
    }
    assert_eq!(master.terminate(), Some(0));
}

/// Whether a process may have huge pages; `None` on kernels that do not tell.
#[cfg(target_os = "linux")]
fn may_have_huge_pages(process: u32) -> Option<bool> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("THP_enabled:"));
    line.map(|enabled| enabled.trim() == "1")
}

#[test]
#[cfg(target_os = "linux")]
fn workers_have_small_pages_unless_huge_ones_are_allowed() {
    const ALLOW: &str = "MIMALLOC_ALLOW_THP";
    let cluster = Cluster::with_workers(
        2,
        |builder| builder,
        |number, command| match number {
            1 => _ = command.env_remove(ALLOW),
            _ => _ = command.env(ALLOW, "1"),
        },
    );
    // What forbids them for this process forbids them for those it starts.
    let Some(own) = may_have_huge_pages(std::process::id()) else {
        return;
    };
    assert_eq!(may_have_huge_pages(cluster.process(1)), Some(false));
    assert_eq!(may_have_huge_pages(cluster.process(2)), Some(own));
}
