//! A query whose stream is dropped ends soon, whatever its operators are doing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use futures::StreamExt;
use skewer::{Database, Error};

/// Much longer than cancelling takes, much shorter than the queries.
const SOON: Duration = Duration::from_secs(60);

/// Runs `sql` until `fulfilled(a, b)`, which never is, has been asked for a pair; then drops its
/// stream, and the database. Its lock is free when the last task of the query has ended.
async fn ends_soon(setup: &[&str], sql: &str) {
    for level in ["off", "counters", "records"] {
        let dir = tempfile::tempdir().unwrap();
        let open = || {
            Database::builder()
                .path(dir.path())
                .worker_threads(2)
                .build()
        };
        let db = open().unwrap();
        let session = db.session();
        let asked = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&asked);
        session.register_udf(create_udf(
            "fulfilled",
            vec![DataType::Int64, DataType::Int64],
            DataType::Boolean,
            Volatility::Immutable,
            Arc::new(move |args| {
                let rows = ColumnarValue::values_to_arrays(args)?[0].len();
                counter.fetch_add(rows as u64, Ordering::Relaxed);
                let never: ArrayRef = Arc::new(BooleanArray::from(vec![false; rows]));
                Ok(ColumnarValue::Array(never))
            }),
        ));
        for statement in setup {
            session.sql(statement).await.unwrap();
        }
        let set = format!("SET profile.level = '{level}'");
        session.sql(&set).await.unwrap();

        let mut stream = session.sql(sql).await.unwrap();
        let begun = Instant::now();
        while asked.load(Ordering::Relaxed) == 0 {
            let waited = tokio::time::timeout(Duration::from_millis(5), stream.next()).await;
            assert!(waited.is_err(), "{sql} ended at level {level}");
            assert!(
                begun.elapsed() < SOON,
                "{sql} did not begin at level {level}"
            );
        }
        drop((stream, session, db));

        let dropped = Instant::now();
        loop {
            match open() {
                Ok(_) => break,
                Err(Error::Locked(_)) if dropped.elapsed() < SOON => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(error) => panic!("{sql} goes on at level {level}: {error}"),
            }
        }
    }
}

#[tokio::test]
async fn a_nested_loop_join() {
    let sql = "SELECT count(*) FROM range(10000) a, range(10000000) b \
               WHERE fulfilled(a.value, b.value)";
    ends_soon(&[], sql).await;
}

#[tokio::test]
async fn a_cross_join() {
    let sql = "SELECT count(*) FILTER (WHERE fulfilled(a.value, b.value)) \
               FROM range(100000) a CROSS JOIN range(1000000) b";
    ends_soon(&[], sql).await;
}

#[tokio::test]
async fn a_hash_join_of_one_key() {
    let setup = [
        "CREATE TABLE a AS SELECT 1 AS k, value AS v FROM range(100000)",
        "CREATE TABLE b AS SELECT 1 AS k, value AS v FROM range(100000)",
    ];
    let sql = "SELECT count(*) FROM a JOIN b ON a.k = b.k AND fulfilled(a.v, b.v)";
    ends_soon(&setup, sql).await;
    let sql = "SELECT count(*) FROM a \
               WHERE EXISTS (SELECT 1 FROM b WHERE a.k = b.k AND fulfilled(a.v, b.v))";
    ends_soon(&setup, sql).await;
}

#[tokio::test]
async fn a_sort_merge_join_of_one_key() {
    let setup = [
        "CREATE TABLE a AS SELECT 1 AS k, value AS v FROM range(100000)",
        "CREATE TABLE b AS SELECT 1 AS k, value AS v FROM range(100000)",
        "SET datafusion.optimizer.prefer_hash_join = false",
    ];
    let sql = "SELECT count(*) FROM a JOIN b ON a.k = b.k AND fulfilled(a.v, b.v)";
    ends_soon(&setup, sql).await;
}

#[tokio::test]
async fn unnesting() {
    let sql = "SELECT count(*) FROM (SELECT v, unnest(l) AS u \
               FROM (SELECT value AS v, range(1000) AS l FROM range(1000000))) \
               WHERE fulfilled(v, u)";
    ends_soon(&[], sql).await;
}

#[tokio::test]
async fn an_endless_recursion() {
    let sql = "WITH RECURSIVE t AS (SELECT 1::BIGINT AS n UNION ALL \
               SELECT (n + 1) % 1000 FROM t WHERE NOT fulfilled(n, n)) SELECT max(n) FROM t";
    ends_soon(&[], sql).await;
}

#[tokio::test]
async fn a_slow_condition_of_a_scan() {
    let sql = "SELECT count(*) FROM range(1000000000000) WHERE fulfilled(value, value)";
    ends_soon(&[], sql).await;
}
