//! What is wrong with a host, a directory or a command, and what is said about it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use skewer::cluster::{ClusterDirectory, MemberState};
use skewer::{Error, Session, WorkerOptions};
use skewer_storage::fault::{Fault, FaultDisk};
use skewer_tests::cluster::{Cluster, PATIENCE, binary};
use skewer_tests::contents::query;
use tempfile::TempDir;

use crate::reads::fill;

async fn rows(session: &Session, sql: &str) -> Vec<String> {
    match query(session, sql).await {
        Ok(rows) => rows,
        Err(error) => panic!("{sql}: {error}"),
    }
}

/// Says, past libtest's capture, that something was not tested.
fn skip(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}: {why}");
}

const COPY: &str = "INSERT INTO t SELECT id + 100000, v FROM t";
const COUNT: &str = "SELECT count(*), sum(id) FROM t";

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full_fails_the_statement_with_the_workers_name_and_nothing_else() {
    let cluster = Cluster::start(1);
    let disk = FaultDisk::new();
    let home = tempfile::tempdir().unwrap();
    let mut options = WorkerOptions::new(home.path().join("worker"));
    options.join = Some(cluster.token().parse().unwrap());
    options.name = Some("small".to_owned());
    options.listen = "127.0.0.1:0".to_owned();
    options.threads = Some(2);
    options.storage.disk = Arc::clone(&disk) as _;
    // It has threads of its own.
    let worker = tokio::task::spawn_blocking(move || skewer::Worker::start(options));
    let worker = worker.await.unwrap().unwrap();
    assert_eq!(worker.number(), 2);
    let session = cluster.session();
    fill(&session, "t").await;
    let before = rows(&session, COUNT).await;
    let (mut failed, mut after, mut in_vain) = (0, 0, 0);
    loop {
        disk.inject_but_in_removals(after, Fault::DiskFull);
        let outcome = query(&session, COPY).await;
        let Some(fired) = disk.fired() else {
            outcome.unwrap();
            break;
        };
        let error = match outcome {
            Err(error) => error,
            // It may have hit what the statement before, which has failed, was still writing. Then
            // these are rows too many.
            Ok(_) => {
                in_vain += 1;
                assert!(in_vain < 10, "a statement holds although it met {fired}");
                rows(&session, "DELETE FROM t WHERE id >= 100000").await;
                continue;
            }
        };
        assert!(matches!(error, Error::DiskFull(_)), "{fired}: {error:?}");
        let text = error.to_string();
        assert!(text.contains("worker 2 (small)"), "{fired}: {text}");
        // The database goes on, and nothing was changed.
        assert_eq!(rows(&session, COUNT).await, before, "{fired}");
        (failed, after, in_vain) = (failed + 1, after + 1, 0);
    }
    assert!(failed >= 3, "creating, writing and syncing: {failed}");
    assert_eq!(rows(&session, "SELECT count(*) FROM t").await, ["120000"]);
    tokio::task::spawn_blocking(move || drop(worker))
        .await
        .unwrap();
}

/// A file system of a few bytes, unmounted when this is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path, bytes: u64) -> Result<SmallDisk, String> {
        std::fs::create_dir_all(at).map_err(|error| error.to_string())?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]);
        let output = mount.arg(at).output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(SmallDisk(at.to_owned())),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_on_a_full_file_system_goes_on() {
    let mut cluster = Cluster::start(1);
    let home = cluster.worker_directory(2);
    let _disk = match SmallDisk::mount(&home, 6 << 20) {
        Ok(disk) => disk,
        Err(why) => return skip("a worker on a full file system", &why),
    };
    assert_eq!(cluster.add_worker(), 2);
    let session = cluster.session();
    let create =
        "CREATE TABLE t AS SELECT value AS id, sha256(value::VARCHAR) AS h FROM range(20000)";
    rows(&session, create).await;
    let before = rows(&session, COUNT).await;
    // 32 bytes a row that cannot be packed, of which there is no room for half.
    let grow = "INSERT INTO t SELECT value, sha256(value::VARCHAR) FROM range(20000, 800000)";
    let error = query(&session, grow).await.unwrap_err();
    assert!(matches!(error, Error::DiskFull(_)), "{error:?}");
    eprintln!("a full file system: {error}");
    assert!(error.to_string().contains("worker 2 (host-2)"), "{error}");
    assert_eq!(rows(&session, COUNT).await, before);
    // What the statement has written is gone, so there is room again.
    let begun = Instant::now();
    while let Err(error) = query(&session, "INSERT INTO t SELECT id + 20000, h FROM t").await {
        assert!(begun.elapsed() < PATIENCE, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(rows(&session, "SELECT count(*) FROM t").await, ["40000"]);
}

/// Lets a process run only a tenth of the time, until this is dropped.
struct Slowed {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

fn signal(process: u32, signal: &str) {
    let mut kill = Command::new("kill");
    kill.args([signal, &process.to_string()]);
    assert!(kill.status().unwrap().success());
}

impl Slowed {
    fn new(process: u32) -> Slowed {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                signal(process, "-STOP");
                std::thread::sleep(Duration::from_millis(90));
                signal(process, "-CONT");
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Slowed {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Slowed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_slow_worker_stands_out_and_queries_finish() {
    let cluster = Cluster::start(3);
    let session = cluster.session();
    fill(&session, "t").await;
    let busy =
        "SELECT count(*), sum(levenshtein(repeat(id::VARCHAR, 6), repeat(v::VARCHAR, 6))) > 0
                FROM t";
    let expected = rows(&session, busy).await;
    let slowed = Slowed::new(cluster.process(2));
    assert_eq!(rows(&session, busy).await, expected);
    let slow = session.last_query_id().unwrap();
    drop(slowed);
    let slowest = format!(
        "SELECT worker_id FROM sys.operator_stats WHERE query_id = {slow} AND worker_id > 0
         GROUP BY worker_id ORDER BY sum(self_ns) DESC LIMIT 1"
    );
    assert_eq!(rows(&session, &slowest).await, ["2"]);
    // Others may have had to wait for a processor, too.
    let stragglers = format!(
        "SELECT worker_id FROM sys.stragglers WHERE query_id = {slow} AND cause = 'slower rows'
         ORDER BY excess_ns DESC LIMIT 1"
    );
    assert_eq!(rows(&session, &stragglers).await, ["2"]);
    let diagnosed = format!(
        "SELECT count(*) > 0 FROM sys.diagnoses WHERE query_id = {slow} AND rule IN ('straggler task', 'slow worker')"
    );
    assert_eq!(rows(&session, &diagnosed).await, ["true"]);
}

/// A library that sets a program's clock wrong, by so many seconds as `CLOCK_AHEAD` says; built
/// with the compiler that the gate needs anyway.
struct WrongClock {
    library: PathBuf,
    _directory: TempDir,
}

impl WrongClock {
    fn build() -> Result<WrongClock, String> {
        let directory = tempfile::tempdir().unwrap();
        let (source, library) = (
            directory.path().join("clock.c"),
            directory.path().join("clock.so"),
        );
        std::fs::write(&source, include_str!("wrong_clock.c")).unwrap();
        let mut compile = Command::new("cc");
        compile
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library);
        let output = compile.arg(&source).output();
        let output = output.map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(WrongClock {
                library,
                _directory: directory,
            }),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    fn set(&self, command: &mut Command, ahead: i64) {
        command.env("LD_PRELOAD", &self.library);
        command.env("CLOCK_AHEAD", ahead.to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_wrong_is_corrected_or_said_to_be_wrong() {
    const AHEAD: i64 = 1000;
    const DAY: i64 = 86_400;
    let clock = match WrongClock::build() {
        Ok(clock) => clock,
        Err(why) => return skip("a clock that is wrong", &why),
    };
    let library = clock.library.clone();
    let mut cluster = Cluster::with_workers(
        2,
        |builder| builder,
        move |number, command| {
            if number == 2 {
                command.env("LD_PRELOAD", &library);
                command.env("CLOCK_AHEAD", AHEAD.to_string());
            }
        },
    );
    let session = cluster.session();
    rows(&session, "SET profile.level = 'calls'").await;
    fill(&session, "t").await;
    rows(&session, "SELECT v, count(*) FROM t GROUP BY v").await;
    let offset = format!(
        "SELECT worker_id, abs(clock_offset_ns - {AHEAD} * 1000000000) <= clock_error_ns,
                clock_error_ns < 1000000000
         FROM sys.cluster WHERE worker_id = 2"
    );
    assert_eq!(rows(&session, &offset).await, ["2|true|true"]);
    // Its times are between those of the query, which the master's clock has given.
    let within = "SELECT c.worker_id, count(*) > 0,
                    bool_and(CAST(c.started_at AS BIGINT) + w.clock_error_ns
                               >= CAST(q.started_at AS BIGINT)),
                    bool_and(CAST(c.ended_at AS BIGINT) - w.clock_error_ns
                               <= CAST(q.ended_at AS BIGINT))
                  FROM sys.operator_calls c
                  JOIN sys.queries q ON c.query_id = q.query_id
                  JOIN sys.workers w ON w.query_id = c.query_id AND w.worker_id = c.worker_id
                  WHERE c.query_id = last_query_id() AND c.worker_id = 2 GROUP BY c.worker_id";
    assert_eq!(rows(&session, within).await, ["2|true|true|true"]);
    // So wrong that certificates seem to be of another time.
    cluster.kill(2);
    let home = cluster.worker_directory(2);
    for (ahead, says) in [(10_000 * DAY, "expired"), (-100 * DAY, "not valid before")] {
        let mut command = worker(&home, &[]);
        clock.set(&mut command, ahead);
        let said = refused(command);
        eprintln!("a clock that is {ahead} s ahead: {said}");
        assert!(said.contains(says) && said.contains("clock"), "{said}");
    }
    cluster.restart_worker(2);
    assert_eq!(rows(&session, "SELECT count(*) FROM t").await, ["60000"]);
}

/// A worker that does not wait long.
fn worker(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.arg("worker").arg("--data").arg(data);
    command.args(["--wait", "3"]).args(arguments);
    if !arguments.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    command.stdin(Stdio::null());
    command
}

/// What it says when it fails, which it does in bounded time.
#[track_caller]
fn refused(mut command: Command) -> String {
    let begun = Instant::now();
    let Output { status, stderr, .. } = command.output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(begun.elapsed() < PATIENCE, "{said}");
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_directories_ports_and_tokens_are_told_where_they_are_used() {
    let mut cluster = Cluster::start(2);
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let address = cluster.database().cluster().unwrap().address().to_string();
    // A port that somebody else has. The token stays good.
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().to_string();
    let token = cluster.token();
    let said = refused(worker(&path("new"), &["--join", &token, "--listen", &port]));
    assert!(
        said.contains(&port) && said.contains("cannot listen at"),
        "{said}"
    );
    // A token that has expired.
    let hour = Duration::from_secs(3600);
    let old = cluster
        .cluster_directory()
        .token(&address, SystemTime::now() - 2 * hour, hour)
        .unwrap()
        .to_string();
    let said = refused(worker(&path("late"), &["--join", &old]));
    assert!(said.contains("has expired"), "{said}");
    // A master that is not there any more.
    cluster.kill(1);
    let said = refused(worker(
        &cluster.worker_directory(1),
        &["--master", "127.0.0.1:1"],
    ));
    assert!(said.contains("127.0.0.1:1"), "{said}");
    // The directory of a worker of another cluster, which is to join this one, and one that a
    // worker uses. The token is still good.
    let other = Cluster::start(1);
    let theirs = path("theirs");
    std::fs::create_dir(&theirs).unwrap();
    std::fs::copy(
        other.worker_directory(1).join("home.json"),
        theirs.join("home.json"),
    )
    .unwrap();
    let said = refused(worker(&theirs, &["--join", &token]));
    eprintln!("the directory of another cluster: {said}");
    assert!(said.contains("belongs to node 1 of cluster"), "{said}");
    let used = path("used");
    std::fs::create_dir(&used).unwrap();
    let lock = std::fs::File::create(used.join("lock")).unwrap();
    lock.lock().unwrap();
    let said = refused(worker(&used, &["--join", &token]));
    eprintln!("a directory that is in use: {said}");
    assert!(said.contains("is already open in"), "{said}");
    drop(lock);
    let options = WorkerOptions {
        join: Some(token.parse().unwrap()),
        listen: "127.0.0.1:0".to_owned(),
        threads: Some(1),
        ..WorkerOptions::new(&used)
    };
    let joined = tokio::task::spawn_blocking(|| skewer::Worker::start(options)).await;
    let joined = joined.unwrap().unwrap();
    assert_eq!(joined.number(), 3);
    tokio::task::spawn_blocking(|| drop(joined)).await.unwrap();
    cluster.wait_for(3, &MemberState::Lost(Arc::from("")));
    // A worker of another cluster at this cluster's master.
    let strangers = path("strangers");
    let identity = strangers.join("identity");
    std::fs::create_dir_all(&identity).unwrap();
    for file in ["ca.crt", "node.crt", "node.key", "master"] {
        let from = other.worker_directory(1).join("identity").join(file);
        std::fs::copy(from, identity.join(file)).unwrap();
    }
    let said = refused(worker(&strangers, &["--master", &address]));
    eprintln!("a worker of another cluster: {said}");
    assert!(
        said.contains("another authority") || said.contains("cluster"),
        "{said}"
    );
    // A directory that is somebody else's, or that somebody uses.
    let serve = |data: &Path| {
        let mut command = Command::new(binary());
        command.arg("serve").arg("--data").arg(data);
        command
            .args(["--listen", "127.0.0.1:0"])
            .stdin(Stdio::null());
        command
    };
    let said = refused(serve(&cluster.worker_directory(2)));
    eprintln!("a server on a worker's directory: {said}");
    assert!(said.contains("worker"), "{said}");
    let said = refused(serve(&cluster.master_directory()));
    assert!(said.contains("is already open in process"), "{said}");
    // Nobody was harmed.
    cluster.restart_worker(1);
    let session = cluster.session();
    fill(&session, "t").await;
    assert_eq!(rows(&session, "SELECT count(*) FROM t").await, ["60000"]);
    let _ = ClusterDirectory::open(&other.master_directory().join("cluster"));
}
