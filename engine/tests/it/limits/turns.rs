//! How many statements run queries at once.

use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::array_value_to_string;
use futures::StreamExt;
use skewer::{Database, Error, QueryStream, Session};

async fn run(session: &Session, sql: &str) -> Vec<String> {
    let batches = session.sql(sql).await.unwrap().collect().await.unwrap();
    texts(&batches)
}

/// Rows as texts, values separated by `|`.
fn texts(batches: &[RecordBatch]) -> Vec<String> {
    let row = |batch: &RecordBatch, row| {
        let columns = batch.columns().iter();
        let values: Vec<String> = columns
            .map(|column| array_value_to_string(column, row).unwrap())
            .collect();
        values.join("|")
    };
    let rows = batches.iter();
    rows.flat_map(|batch| (0..batch.num_rows()).map(move |n| row(batch, n)))
        .collect()
}

/// A query that goes on until it is dropped.
async fn endless(session: &Session) -> QueryStream {
    let sql = "SELECT a.value FROM range(1000000) a, range(1000000) b";
    let mut stream = session.sql(sql).await.unwrap();
    stream.next().await.unwrap().unwrap();
    stream
}

const STATES: &str = "SELECT state, left(sql, 12) FROM sys.running ORDER BY query_id";

/// Waits until the statements are in these states.
async fn states_become(session: &Session, expected: &[&str]) {
    let mut found = Vec::new();
    for _ in 0..2000 {
        found = run(session, STATES).await;
        if found == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{found:?}, not {expected:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_record_of_a_query_tells_how_long_it_waited_for_its_turn_and_who_sent_it() {
    let db = Database::builder().max_running_queries(1).build().unwrap();
    let session = db.session();
    let first = endless(&session).await;
    let ada = db.session();
    ada.set_user("ada");
    let waits = tokio::spawn({
        let ada = ada.clone();
        async move { run(&ada, "SELECT 1").await }
    });
    states_become(&session, &["running|SELECT a.val", "waiting|SELECT 1"]).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(first);
    assert_eq!(waits.await.unwrap(), ["1"]);
    let told = "SELECT user_name, queued_ns >= 20000000, \
                first_row_at BETWEEN started_at AND ended_at, \
                ended_at::BIGINT - started_at::BIGINT - queued_ns - planning_ns - execution_ns < 10000000 \
                FROM sys.queries WHERE query_id = last_query_id()";
    assert_eq!(run(&ada, told).await, ["ada|true|true|true"]);
    run(&session, "SELECT 1 WHERE random() < 0").await;
    let told = "SELECT user_name, queued_ns, first_row_at FROM sys.queries \
                WHERE query_id = last_query_id()";
    assert_eq!(run(&session, told).await, ["local|0|"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_operators_of_running_statements_did_so_far_can_be_seen() {
    for workers in [1, 3] {
        let db = Database::builder().workers(workers).build().unwrap();
        let session = db.session();
        let filled = "CREATE TABLE t AS SELECT value AS v FROM generate_series(1, 10000)";
        run(&session, filled).await;
        let mut first = session.sql("SELECT a.v FROM t a, t b, t c").await.unwrap();
        first.next().await.unwrap().unwrap();
        let seen = "SELECT count(*) FILTER (WHERE calls > 0 AND self_ns > 0) > 1, \
                    bool_and(name IS NOT NULL AND kind IS NOT NULL), bool_or(NOT has_ended), \
                    count(DISTINCT query_id), max(CASE kind WHEN 'scan' THEN rows_out END) > 0 \
                    FROM sys.running_operators";
        assert_eq!(run(&session, seen).await, ["true|true|true|1|true"]);
        drop(first);
        states_become(&session, &[]).await;
        let seen = "SELECT count(*) FROM sys.running_operators";
        assert_eq!(run(&session, seen).await, ["0"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_may_run_wait_for_their_turn_which_can_be_seen_and_cancelled() {
    let db = Database::builder().max_running_queries(1).build().unwrap();
    let session = db.session();
    run(&session, "CREATE TABLE t AS SELECT 1 AS a").await;
    let first = endless(&session).await;
    states_become(&session, &["running|SELECT a.val"]).await;

    let waiting = |sql: &'static str| {
        let session = db.session();
        let progress = session.clone();
        let task = tokio::spawn(async move {
            let batches = session.sql(sql).await?.collect().await?;
            Ok::<_, Error>(texts(&batches))
        });
        (task, progress)
    };
    let (second, seen) = waiting("INSERT INTO t VALUES (2)");
    let one_waits = ["running|SELECT a.val", "waiting|INSERT INTO "];
    states_become(&session, &one_waits).await;
    assert!(seen.progress().now().queued);
    let (third, _) = waiting("SELECT sum(a) FROM t");
    states_become(
        &session,
        &[one_waits[0], one_waits[1], "waiting|SELECT sum(a"],
    )
    .await;
    let (fourth, _) = waiting("DELETE FROM t");
    states_become(
        &session,
        &[
            one_waits[0],
            one_waits[1],
            "waiting|SELECT sum(a",
            "waiting|DELETE FROM ",
        ],
    )
    .await;
    // What waits can be cancelled, and has done nothing.
    fourth.abort();
    states_become(
        &session,
        &[one_waits[0], one_waits[1], "waiting|SELECT sum(a"],
    )
    .await;
    // The turn ends with the stream; the others come in their order, and see what was done before.
    drop(first);
    second.await.unwrap().unwrap();
    assert_eq!(third.await.unwrap().unwrap(), ["3"]);
    states_become(&session, &[]).await;
    assert!(!seen.progress().now().queued);
    let kept = "SELECT status, count(*) FROM sys.queries WHERE sql LIKE 'DELETE%' GROUP BY 1";
    assert_eq!(run(&session, kept).await, ["cancelled|1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bound_is_a_setting_of_the_whole_database() {
    let db = Database::in_memory().unwrap();
    let session = db.session();
    let shown = "SHOW max_running_queries";
    assert_eq!(run(&session, shown).await, ["max_running_queries|100"]);
    run(&session, "SET max_running_queries = 2").await;
    assert_eq!(run(&db.session(), shown).await, ["max_running_queries|2"]);
    let (_first, _second) = (endless(&session).await, endless(&session).await);
    let other = db.session();
    let third = tokio::spawn(async move { run(&other, "SELECT count(*) FROM range(10)").await });
    let states = [
        "running|SELECT a.val",
        "running|SELECT a.val",
        "waiting|SELECT count",
    ];
    states_become(&session, &states).await;
    run(&session, "SET max_running_queries = unlimited").await;
    assert_eq!(third.await.unwrap(), ["10"]);
    run(&session, "RESET max_running_queries").await;
    assert_eq!(run(&session, shown).await, ["max_running_queries|100"]);
    for refused in ["0", "-1", "'many'"] {
        let sql = format!("SET max_running_queries = {refused}");
        let error = session.sql(&sql).await.unwrap_err().to_string();
        assert!(error.contains("a number above 0"), "{error}");
    }
}
