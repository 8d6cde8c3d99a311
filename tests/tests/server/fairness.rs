//! Queries that compute for long do not keep others waiting, and end when they are cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Volatility;
use skewer::{Database, Functions};
use skewer_tests::served::Served;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{CancelToken, Client, Config, NoTls, SimpleQueryMessage};

/// Much longer than anything here takes that is not meant to go on.
const PATIENCE: Duration = Duration::from_secs(60);

/// More calls at once than a query of two threads makes.
const PLACES: u64 = 8;

/// A function that the test lets go on, or keeps.
#[derive(Debug, Default)]
struct Gate {
    /// How often it has been called.
    calls: AtomicU64,
    open: AtomicBool,
}

impl Gate {
    /// Functions with `stuck(n)`, which returns `n` once the gate is open.
    fn functions(self: &Arc<Self>) -> Functions {
        let gate = Arc::clone(self);
        let (arguments, result) = (vec![DataType::Int64], DataType::Int64);
        Functions::new().with_row_udf(
            "stuck",
            arguments,
            result,
            Volatility::Immutable,
            move |arguments| {
                gate.calls.fetch_add(1, Ordering::SeqCst);
                let begun = Instant::now();
                while !gate.open.load(Ordering::SeqCst) && begun.elapsed() < 2 * PATIENCE {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok::<ScalarValue, _>(arguments[0].clone())
            },
        )
    }

    /// Returns when so many calls have begun.
    async fn wait_for(&self, calls: u64) {
        let begun = Instant::now();
        while self.calls.load(Ordering::SeqCst) < calls {
            assert!(begun.elapsed() < PATIENCE, "{self:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Opened also when a test fails, so that its threads end.
struct OpenAtEnd(Arc<Gate>);

impl Drop for OpenAtEnd {
    fn drop(&mut self) {
        self.0.open.store(true, Ordering::SeqCst);
    }
}

fn served(functions: Functions) -> (Served, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::builder()
        .path(directory.path())
        .worker_threads(2)
        .functions(functions)
        .build()
        .unwrap();
    let served = Served::of_database(database, directory.path(), "127.0.0.1:0");
    (served, directory)
}

async fn connect(served: &Served) -> Client {
    let mut config = Config::new();
    config
        .host("127.0.0.1")
        .port(served.address.port())
        .user("ada");
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

type Running = JoinHandle<Result<Vec<SimpleQueryMessage>, tokio_postgres::Error>>;

/// Runs a statement on a connection of its own.
async fn begin(served: &Served, sql: &'static str) -> (Running, CancelToken) {
    let client = connect(served).await;
    let cancel = client.cancel_token();
    (
        tokio::spawn(async move { client.simple_query(sql).await }),
        cancel,
    )
}

/// Asks something small again and again, while `others` run.
async fn is_answered(client: &Client, times: usize, others: &[&Running]) {
    for _ in 0..times {
        let one = client.query_one("SELECT 1::BIGINT", &[]);
        let row = tokio::time::timeout(PATIENCE, one).await.unwrap().unwrap();
        assert_eq!(row.get::<_, i64>(0), 1);
        assert!(others.iter().all(|other| !other.is_finished()));
    }
}

async fn is_cancelled(running: Running, cancel: &CancelToken) {
    cancel.cancel_query(NoTls).await.unwrap();
    let outcome = tokio::time::timeout(PATIENCE, running).await.unwrap();
    let error = outcome.unwrap().unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED));
}

#[tokio::test]
async fn a_small_query_is_answered_while_two_compute_edit_distances() {
    let (served, _directory) = served(Functions::new());
    let client = connect(&served).await;
    let sql = "CREATE TABLE long AS SELECT value AS id, repeat(CAST(value AS VARCHAR), 300) AS body \
               FROM generate_series(100000, 116383)";
    client.batch_execute(sql).await.unwrap();
    // Minutes each, and none of their batches less than some seconds. A sort has a task for each batch.
    for sql in [
        "SELECT max(levenshtein(body, repeat('0123', 400))) FROM long",
        "SELECT id FROM long ORDER BY levenshtein(body, repeat('0123', 400))",
    ] {
        let (one, cancel_one) = begin(&served, sql).await;
        let (two, cancel_two) = begin(&served, sql).await;
        let begun = Instant::now();
        loop {
            let sql = "SELECT count(*) FROM sys.running WHERE sql LIKE '%levenshtein%'";
            let row = client.query_one(sql, &[]).await.unwrap();
            if row.get::<_, i64>(0) == 2 {
                break;
            }
            assert!(begun.elapsed() < PATIENCE);
        }
        is_answered(&client, 20, &[&one, &two]).await;
        is_cancelled(one, &cancel_one).await;
        is_cancelled(two, &cancel_two).await;
        is_answered(&client, 1, &[]).await;
    }
}

#[tokio::test]
async fn a_small_query_is_answered_while_others_wait_for_a_function_that_does_not_return() {
    let gate = Arc::new(Gate::default());
    let (served, _directory) = served(gate.functions());
    let _open = OpenAtEnd(Arc::clone(&gate));
    let client = connect(&served).await;
    let sql = "CREATE TABLE numbers AS SELECT value AS n FROM generate_series(1, 100000)";
    client.batch_execute(sql).await.unwrap();
    let (one, _) = begin(&served, "SELECT sum(stuck(n)) FROM numbers").await;
    gate.wait_for(1).await;
    let (two, _) = begin(&served, "SELECT max(stuck(n)) FROM numbers").await;
    gate.wait_for(2).await;
    is_answered(&client, 20, &[&one, &two]).await;
    // Also one that reads a table.
    let sql = "SELECT count(*) FROM numbers WHERE n % 2 = 0";
    let read = tokio::time::timeout(PATIENCE, client.query_one(sql, &[]));
    assert_eq!(read.await.unwrap().unwrap().get::<_, i64>(0), 50_000);
    assert!(!one.is_finished() && !two.is_finished());
}

#[tokio::test]
async fn nothing_is_computed_for_a_query_that_is_cancelled() {
    let gate = Arc::new(Gate::default());
    let (served, _directory) = served(gate.functions());
    let _open = OpenAtEnd(Arc::clone(&gate));
    let client = connect(&served).await;
    let sql = "CREATE TABLE numbers AS SELECT value AS n FROM generate_series(1, 100000)";
    client.batch_execute(sql).await.unwrap();
    for sql in [
        "SELECT sum(stuck(n)) FROM numbers",
        "SELECT n FROM numbers WHERE stuck(n) < 0",
        "SELECT n FROM numbers ORDER BY stuck(n) LIMIT 3",
        "SELECT n, lag(stuck(n)) OVER (ORDER BY n) FROM numbers",
        "SELECT stuck(n), count(*) FROM numbers GROUP BY 1",
        "SELECT count(*) FROM numbers a JOIN numbers b ON stuck(a.n) = b.n",
        "INSERT INTO numbers SELECT stuck(n) FROM numbers",
    ] {
        gate.open.store(false, Ordering::SeqCst);
        let before = gate.calls.load(Ordering::SeqCst);
        let (running, cancel) = begin(&served, sql).await;
        gate.wait_for(before + 1).await;
        is_cancelled(running, &cancel).await;
        // The rows that are computed are done with, and no others begin.
        let calls = gate.calls.load(Ordering::SeqCst);
        assert!(calls <= before + PLACES, "{sql}: {} rows", calls - before);
        gate.open.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        loop {
            let sql = "SELECT count(*) FROM sys.running WHERE sql LIKE '%stuck(%'";
            let row = client.query_one(sql, &[]).await.unwrap();
            if row.get::<_, i64>(0) == 0 {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{sql}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        let calls = gate.calls.load(Ordering::SeqCst);
        assert!(calls <= before + PLACES, "{sql}: {} rows", calls - before);
    }
}
