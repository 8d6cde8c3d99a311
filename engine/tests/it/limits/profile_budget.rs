//! `profile.budget`: what profiling may cost picks how much is recorded.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{Float64Type, Int64Type};
use skewer::{Database, Session};

const QUERY: &str = "SELECT k, count(*) FROM t GROUP BY k";

async fn run(session: &Session, sql: &str) -> Option<i64> {
    let stream = session.sql(sql).await.unwrap();
    let query_id = stream.query_id();
    stream.collect().await.unwrap();
    query_id
}

async fn session_with_rows(rows: usize) -> Session {
    let session = Database::in_memory().unwrap().session();
    let create = format!(
        "CREATE TABLE t AS SELECT value AS v, value % 1000 AS k FROM generate_series(1, {rows})"
    );
    run(&session, &create).await;
    session
}

/// Level, sample rate and edges of lineage of query `query_id`.
async fn recorded(session: &Session, query_id: Option<i64>) -> (String, f64, i64) {
    let id = query_id.unwrap();
    let sql = format!(
        "SELECT CAST(profile_level AS VARCHAR), sample_rate, \
         (SELECT count(*) FROM sys.lineage WHERE query_id = {id} AND table_name IS NOT NULL) \
         FROM sys.queries WHERE query_id = {id}"
    );
    let batches = session.sql(&sql).await.unwrap().collect().await.unwrap();
    let row = &batches[0];
    let level = datafusion::arrow::compute::cast(
        row.column(0),
        &datafusion::arrow::datatypes::DataType::Utf8,
    )
    .unwrap();
    (
        level.as_string::<i32>().value(0).to_owned(),
        row.column(1).as_primitive::<Float64Type>().value(0),
        row.column(2).as_primitive::<Int64Type>().value(0),
    )
}

#[tokio::test]
async fn a_budget_compares_runs_with_records_with_runs_without() {
    let session = session_with_rows(1000).await;
    run(&session, "SET profile.budget = '100%'").await;
    let mut levels = Vec::new();
    for _ in 0..6 {
        let query_id = run(&session, QUERY).await;
        levels.push(recorded(&session, query_id).await.0);
    }
    // It cannot know before it has seen both; literals do not make another statement.
    assert_eq!(levels[..2], ["records", "counters"]);
    let with_records = levels.iter().filter(|level| *level == "records").count();
    assert_eq!(with_records, 3, "{levels:?}");
    let other = run(&session, "SELECT k FROM t WHERE v = 1").await;
    assert_eq!(recorded(&session, other).await.0, "records");
    let same = run(&session, "select k from t where v = 2").await;
    assert_eq!(recorded(&session, same).await.0, "counters");
}

#[tokio::test]
async fn recording_that_takes_more_than_the_budget_traces_fewer_records() {
    let rows = 2_000_000;
    let session = session_with_rows(rows).await;
    run(&session, "SET profile.budget = '0.5%'").await;
    let query_id = run(&session, QUERY).await;
    let (level, rate, edges) = recorded(&session, query_id).await;
    assert_eq!(level, "records");
    assert!(rate < 1.0, "{rate}");
    assert!((edges as usize) < rows, "{edges}");
    // What the final rate admits has been traced from the first row on.
    let count = async |sql: String| {
        let batches = session.sql(&sql).await.unwrap().collect().await.unwrap();
        batches[0].column(0).as_primitive::<Int64Type>().value(0)
    };
    let admitted = format!("SELECT count(*) FROM t WHERE is_sampled(_row_id, {rate:e})");
    let traced = format!(
        "SELECT count(*) FROM sys.lineage WHERE query_id = {} AND table_name = 'main.t' \
         AND is_sampled(input_id, {rate:e})",
        query_id.unwrap()
    );
    assert_eq!(count(traced).await, count(admitted).await, "{rate}");
}

#[tokio::test]
async fn a_budget_neither_raises_level_off_nor_touches_explain_profile() {
    let session = session_with_rows(1000).await;
    run(&session, "SET profile.budget = '5%'").await;
    run(&session, "SET profile.level = 'off'").await;
    let query_id = run(&session, QUERY).await;
    assert_eq!(recorded(&session, query_id).await.0, "off");
    let query_id = run(&session, &format!("EXPLAIN PROFILE {QUERY}")).await;
    let (level, rate, edges) = recorded(&session, query_id).await;
    assert_eq!((level.as_str(), rate, edges), ("records", 1.0, 1000));
}
