//! What runs on workers ends soon after nobody wants it any more.
//!
//! `cargo test -p skewer-tests --test cluster cancellation -- --nocapture` prints how soon.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::StreamExt;
use skewer::Session;
use skewer::cluster::ClusterDirectory;
use skewer_tests::cluster::{Cluster, PATIENCE, binary};
use skewer_tests::contents::query;

use crate::reads::fill;

/// Every worker joins its rows with all others, and sends what it finds; nobody would wait for the
/// end.
const ENDLESS: &str = "SELECT a.v + b.v + c.v AS s, count(*) FROM t a, t b, t c
                       WHERE a.id + b.id + c.id > 0 GROUP BY s";

/// A process that works uses more of a processor than this, also where many share it; one that has
/// stopped less: it still answers its master.
const BUSY: f64 = 0.05;

/// For how long it must have stopped.
const QUIET: Duration = Duration::from_secs(1);

/// What all threads of a process have had of processors, those that have ended too, to 10 ms.
fn processor_time(process: u32) -> Duration {
    /// Linux counts processor time for programs in hundredths of a second.
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // After the name, in parentheses, comes field 3; 14 and 15 are the program's and the system's.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields.split_whitespace().skip(14 - 3).take(2);
    TICK * ticks.map(|ticks| ticks.parse::<u32>().unwrap()).sum()
}

/// Waits until all of these processes work.
#[track_caller]
fn all_work(processes: &[u32]) {
    let begun = Instant::now();
    loop {
        let before: Vec<_> = processes.iter().map(|p| processor_time(*p)).collect();
        std::thread::sleep(Duration::from_millis(200));
        let worked = processes.iter().zip(before).map(|(p, before)| {
            let used = processor_time(*p).saturating_sub(before);
            used.as_secs_f64() / 0.2
        });
        let worked: Vec<f64> = worked.collect();
        if worked.iter().all(|share| *share > BUSY) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{worked:?}");
    }
}

/// Waits until none of these processes works any more. Gives for each how long after `since` that
/// was, and what it had of processors until then.
#[track_caller]
fn all_stop(processes: &[u32], since: Instant) -> Vec<(Duration, Duration)> {
    const LOOK: Duration = Duration::from_millis(5);
    let mut looks: Vec<Vec<(Instant, Duration)>> = vec![Vec::new(); processes.len()];
    loop {
        for (looks, process) in looks.iter_mut().zip(processes) {
            looks.push((Instant::now(), processor_time(*process)));
        }
        let stopped: Option<Vec<_>> = looks.iter().map(|looks| stop_of(looks, since)).collect();
        if let Some(stopped) = stopped {
            return stopped;
        }
        let went_on = since.elapsed();
        assert!(
            went_on < PATIENCE,
            "they go on {went_on:?} after nobody wants it"
        );
        std::thread::sleep(LOOK);
    }
}

/// The look from which on a process had less than [`BUSY`], if that is long enough ago.
fn stop_of(looks: &[(Instant, Duration)], since: Instant) -> Option<(Duration, Duration)> {
    let (begun, (now, used)) = (looks.first()?.1, *looks.last()?);
    let idle = |(at, before): &&(Instant, Duration)| {
        (used - *before).as_secs_f64() <= BUSY * (now - *at).as_secs_f64()
    };
    let (at, before) = looks.iter().find(idle)?;
    (now - *at >= QUIET).then(|| (*at - since, *before - begun))
}

#[expect(
    clippy::print_stdout,
    reason = "the numbers of the guide come from here"
)]
fn report(how: &str, stopped: &[(Duration, Duration)]) {
    for (worker, (after, used)) in (1..).zip(stopped) {
        println!(
            "{how}: worker {worker} had stopped after {after:.0?}, in which it used {used:.0?} of a \
             processor"
        );
        assert!(*used < Duration::from_secs(1), "{how}: {used:?}");
    }
}

/// What workers recorded of the query that was cancelled at `at`: of each, how many milliseconds
/// after that the last of its operators was called. What ends later than its query is not recorded.
async fn last_calls(session: &Session, at: SystemTime) -> Vec<String> {
    let at = at.duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let sql = format!(
        "SELECT worker_id, round((max(CAST(last_call_at AS BIGINT)) - {at}) / 1e6, 1)
         FROM sys.operator_stats WHERE query_id = last_query_id() AND worker_id > 0
         GROUP BY worker_id ORDER BY worker_id"
    );
    let status = "SELECT status FROM sys.queries WHERE query_id = last_query_id()";
    let begun = Instant::now();
    loop {
        let found = query(session, &sql).await.unwrap();
        let status = query(session, status).await.unwrap();
        if status == ["cancelled"] {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{found:?} {status:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stdout, reason = "as above")]
async fn a_stream_that_is_dropped_stops_its_producers_on_all_workers() {
    let cluster = Cluster::start(3);
    let session = cluster.session();
    fill(&session, "t").await;
    let processes = [1, 2, 3].map(|number| cluster.process(number));
    for _ in 0..3 {
        let mut stream = session.sql(ENDLESS).await.unwrap();
        let waiting = tokio::time::timeout(Duration::from_millis(500), stream.next()).await;
        assert!(waiting.is_err(), "it is endless");
        tokio::task::block_in_place(|| all_work(&processes));
        let (at, since) = (SystemTime::now(), Instant::now());
        drop(stream);
        let stopped = tokio::task::block_in_place(|| all_stop(&processes, since));
        report("dropped stream", &stopped);
        for call in last_calls(&session, at).await {
            println!("dropped stream: worker|ms after which its last operator was called: {call}");
        }
        // Its memory and its place are free: the next query runs.
        let count = query(&session, "SELECT count(*) FROM t").await.unwrap();
        assert_eq!(count, ["60000"]);
    }
}

/// Processes that are killed when this is dropped.
struct Processes(Vec<Child>);

impl Processes {
    fn start(&mut self, log: &Path, arguments: &[&str]) -> u32 {
        let mut command = Command::new(binary());
        command.args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::null());
        let child = command.stderr(File::create(log).unwrap()).spawn().unwrap();
        let process = child.id();
        self.0.push(child);
        process
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[track_caller]
fn wait_for(log: &Path, message: &str) -> String {
    let begun = Instant::now();
    loop {
        let text = std::fs::read_to_string(log).unwrap();
        let event = text.lines().find_map(|line| {
            let event: serde_json::Value = serde_json::from_str(line).ok()?;
            (event["message"] == message).then_some(event)
        });
        if let Some(event) = event {
            return event["address"].as_str().unwrap_or_default().to_owned();
        }
        assert!(begun.elapsed() < PATIENCE, "no event {message}: {text}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `skewer --connect ADDRESS -c SQL`.
fn shell(address: &str, sql: &str) -> Command {
    let mut command = Command::new(binary());
    command.args(["--connect", address, "--format", "csv", "-c", sql]);
    command.stdin(Stdio::null());
    command
}

#[test]
fn ctrl_c_in_a_shell_that_is_connected_stops_the_producers_on_all_workers() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let data = path("master").display().to_string();
    let directory = skewer::ClusterOptions::directory_of(&path("master"));
    ClusterDirectory::init(&directory, "master", SystemTime::now()).unwrap();
    let mut processes = Processes(Vec::new());
    let log = path("serve.log");
    let mut serve = vec!["serve", "--data", data.as_str(), "--log", "json"];
    serve.extend(["--listen", "127.0.0.1:0", "--cluster-listen", "127.0.0.1:0"]);
    processes.start(&log, &serve);
    let address = wait_for(&log, "listening");
    let mut workers = Vec::new();
    for number in 1..=2 {
        let token = Command::new(binary())
            .args(["cluster", "token", "--data", &data])
            .output();
        let token = String::from_utf8(token.unwrap().stdout).unwrap();
        let home = path(&format!("worker-{number}")).display().to_string();
        let log = path(&format!("worker-{number}.log"));
        let mut arguments = vec!["worker", "--data", &home, "--join", token.trim()];
        arguments.extend(["--log", "json", "--threads", "2", "--listen", "127.0.0.1:0"]);
        workers.push(processes.start(&log, &arguments));
        wait_for(&log, "taking part");
    }
    let fill = "CREATE TABLE t AS SELECT value AS id, value % 1000 AS v FROM range(60000)";
    assert!(shell(&address, fill).output().unwrap().status.success());
    let mut asking = shell(&address, ENDLESS);
    asking.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut asking = asking.spawn().unwrap();
    all_work(&workers);
    let running = "SELECT state, rows, sql LIKE 'SELECT a.v%' FROM sys.running";
    let running = shell(&address, running).output().unwrap();
    let running = String::from_utf8(running.stdout).unwrap();
    assert!(running.contains("running,0,true"), "{running}");
    let since = Instant::now();
    let mut kill = Command::new("kill");
    kill.args(["-INT", &asking.id().to_string()]);
    assert!(kill.status().unwrap().success());
    let stopped = all_stop(&workers, since);
    report("Ctrl-C in a connected shell", &stopped);
    let begun = Instant::now();
    while asking.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < PATIENCE, "the shell goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
    let running = shell(&address, "SELECT count(*) FROM sys.running").output();
    assert_eq!(
        String::from_utf8(running.unwrap().stdout)
            .unwrap()
            .lines()
            .last(),
        Some("0")
    );
}
