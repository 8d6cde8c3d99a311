//! What schema `sys` knows of a query that ended in the middle of a call that does not return.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::exec_err;
use datafusion::logical_expr::Volatility;
use futures::StreamExt;
use skewer::{Database, Session};

/// Much longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A function that the test keeps until it has seen enough, and then lets go on.
#[derive(Debug, Default)]
struct Gate {
    calls: AtomicU64,
    open: AtomicBool,
}

/// Opened also when a test fails, so that its threads end.
struct OpenAtEnd(Arc<Gate>);

impl Drop for OpenAtEnd {
    fn drop(&mut self) {
        self.0.open.store(true, Ordering::SeqCst);
    }
}

impl Gate {
    /// Registers `stuck(n)`, which returns `n` once the gate is open, and fails for 7.
    fn register(self: &Arc<Self>, session: &Session) {
        let gate = Arc::clone(self);
        let (arguments, result) = (vec![DataType::Int64], DataType::Int64);
        let stuck = move |arguments: &[_]| {
            gate.calls.fetch_add(1, Ordering::SeqCst);
            let begun = Instant::now();
            while !gate.open.load(Ordering::SeqCst) && begun.elapsed() < 2 * PATIENCE {
                std::thread::sleep(Duration::from_millis(1));
            }
            let n: &datafusion::common::ScalarValue = &arguments[0];
            match n.to_string().as_str() {
                "7" => exec_err!("seven is refused"),
                _ => Ok(n.clone()),
            }
        };
        session.register_row_udf("stuck", arguments, result, Volatility::Immutable, stuck);
    }
}

/// The texts of the rows of a query.
async fn rows(session: &Session, sql: &str) -> Vec<Vec<String>> {
    let batches: Vec<RecordBatch> = session.sql(sql).await.unwrap().collect().await.unwrap();
    let mut rows = Vec::new();
    for batch in batches {
        let texts = batch
            .columns()
            .iter()
            .map(|column| cast(column, &DataType::Utf8).unwrap())
            .collect::<Vec<_>>();
        for row in 0..batch.num_rows() {
            let values = texts
                .iter()
                .map(|text| text.as_string::<i32>().value(row).to_owned());
            rows.push(values.collect());
        }
    }
    rows
}

/// The row of `sys.queries` for a query that calls `stuck`, as soon as there is one: its id and status.
async fn recorded(session: &Session) -> (String, String) {
    let begun = Instant::now();
    loop {
        let sql = "SELECT query_id, status FROM sys.queries WHERE sql LIKE '%stuck(%'";
        if let Some(row) = rows(session, sql).await.first() {
            return (row[0].clone(), row[1].clone());
        }
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The operator of a query that took the most.
async fn blamed(session: &Session, query_id: &str) -> (String, i64) {
    let sql = format!(
        "SELECT details, self_ns FROM sys.operator_contribution WHERE query_id = {query_id} \
         ORDER BY self_ns DESC LIMIT 1"
    );
    let rows = rows(session, &sql).await;
    (rows[0][0].clone(), rows[0][1].parse().unwrap())
}

#[tokio::test]
async fn a_call_under_way_counts_when_its_query_is_cancelled() {
    for level in ["counters", "calls", "records"] {
        for sql in [
            "SELECT sum(stuck(n)) FROM numbers",
            "SELECT n FROM numbers WHERE stuck(n) < 0",
            "SELECT stuck(count(*)) FROM numbers",
        ] {
            let db = Database::builder().worker_threads(2).build().unwrap();
            let session = db.session();
            let gate = Arc::new(Gate::default());
            let _open = OpenAtEnd(Arc::clone(&gate));
            gate.register(&session);
            let table = "CREATE TABLE numbers AS SELECT value AS n FROM range(100, 1000)";
            session.sql(table).await.unwrap();
            let set = format!("SET profile.level = '{level}'");
            session.sql(&set).await.unwrap();

            let mut stream = session.sql(sql).await.unwrap();
            let begun = Instant::now();
            while gate.calls.load(Ordering::SeqCst) == 0 {
                let waited = tokio::time::timeout(Duration::from_millis(5), stream.next()).await;
                assert!(waited.is_err(), "{sql} ended at level {level}");
                assert!(
                    begun.elapsed() < PATIENCE,
                    "{sql} did not begin at level {level}"
                );
            }
            drop(stream);
            // While the call goes on.
            let (query_id, status) = recorded(&session).await;
            assert_eq!(status, "cancelled", "{sql} at level {level}");
            let (details, self_ns) = blamed(&session, &query_id).await;
            assert!(
                details.contains("stuck"),
                "{sql} at level {level}: {details}"
            );
            assert!(self_ns > 0, "{sql} at level {level}");
            let report = rows(&session, &format!("SHOW PROFILE {query_id}")).await;
            let report = report.concat().join("\n");
            assert!(report.contains("was cancelled"), "{report}");
            assert!(!gate.open.load(Ordering::SeqCst));
        }
    }
}

#[tokio::test]
async fn what_was_done_until_an_error_counts() {
    let db = Database::builder().worker_threads(2).build().unwrap();
    let session = db.session();
    let gate = Arc::new(Gate::default());
    gate.open.store(true, Ordering::SeqCst);
    gate.register(&session);
    let sql = "SELECT sum(stuck(value)) FROM range(1000)";
    let error = session.sql(sql).await.unwrap().collect().await.unwrap_err();
    assert!(error.to_string().contains("seven is refused"), "{error}");
    let (query_id, status) = recorded(&session).await;
    assert_eq!(status, "failed");
    // The call with the error is short here: others may take more.
    let sql = format!(
        "SELECT self_ns FROM sys.operator_contribution \
         WHERE query_id = {query_id} AND details LIKE '%stuck%' AND self_ns > 0"
    );
    assert!(!rows(&session, &sql).await.is_empty());
    let report = rows(&session, &format!("SHOW PROFILE {query_id}")).await;
    let report = report.concat().join("\n");
    assert!(report.contains("The query failed"), "{report}");
}
