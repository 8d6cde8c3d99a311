//! EXPLAIN PROFILE over whole queries: statements that are cancelled or fail, and what a query
//! takes without its expensive record.

use std::time::Duration;

use skewer::{Database, Session};
use skewer_tests::contents::query;

async fn one(session: &Session, sql: &str) -> String {
    let lines = query(session, sql).await;
    let lines = lines.unwrap_or_else(|error| panic!("{error}\n{sql}"));
    assert_eq!(lines.len(), 1, "{lines:?}\n{sql}");
    lines[0].clone()
}

async fn report(session: &Session, query_id: i64) -> String {
    let profile = session.profile_of(query_id).await.unwrap();
    skewer::report::text(&profile).texts().join("\n")
}

/// The last query, as soon as it is recorded.
async fn recorded(session: &Session) -> i64 {
    let known = "SELECT query_id FROM sys.queries WHERE query_id = last_query_id()";
    for _ in 0..1000 {
        if let Some(query_id) = session.last_query_id()
            && !query(session, known).await.unwrap().is_empty()
        {
            return query_id;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no query is recorded");
}

#[tokio::test]
async fn what_a_cancelled_query_did_can_be_read() {
    let session = Database::builder()
        .worker_threads(2)
        .build()
        .unwrap()
        .session();
    // Its aggregates run in tasks of their own, which end a little after they are cancelled.
    let endless = "EXPLAIN PROFILE SELECT value % 10, sum(length(md5(value::text))) \
                   FROM generate_series(1, 1000000000000) GROUP BY 1";
    // A busy machine may not have come to a row by then.
    let mut patience = Duration::from_millis(300);
    let query_id = loop {
        let profiled = tokio::time::timeout(patience, session.sql(endless)).await;
        assert!(profiled.is_err(), "it ended");
        let query_id = recorded(&session).await;
        let sql = format!("SELECT status FROM sys.queries WHERE query_id = {query_id}");
        assert_eq!(one(&session, &sql).await, "cancelled");
        let sql = format!(
            "SELECT coalesce(max(rows_out), 0) > 0 FROM sys.operator_stats WHERE query_id = {query_id}"
        );
        if one(&session, &sql).await == "true" {
            break query_id;
        }
        patience *= 3;
        assert!(patience < Duration::from_secs(60), "it returns no rows");
    };
    let report = report(&session, query_id).await;
    let partial = "! The query was cancelled; the profile shows what ran before that";
    assert!(report.contains(partial), "{report}");
    assert!(report.contains("md5"), "{report}");
}

#[tokio::test]
async fn the_report_on_a_failed_query_says_that_it_is_partial() {
    let session = Database::in_memory().unwrap().session();
    query(
        &session,
        "CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 100)",
    )
    .await
    .unwrap();
    let failing = "EXPLAIN PROFILE SELECT sum(1 / (a - 50)) FROM t";
    let error = session.sql(failing).await.unwrap_err();
    let skewer::Error::Profiled { error, query_id } = error else {
        panic!("{error}");
    };
    assert_eq!(error.to_string(), "division by zero");
    assert_eq!(session.last_query_id(), Some(query_id));
    let report = report(&session, query_id).await;
    let partial = "! The query failed; the profile shows what ran before that: division by zero";
    assert!(report.contains(partial), "{report}");
}

/// Parses lines `movie:rating,rating,…` and counts the ratings.
fn ratings(table: &str) -> String {
    format!(
        "SELECT right(rating, 1) AS stars, count(*) FROM (\
         SELECT unnest(string_to_array(split_part(line, ':', 2), ',')) AS rating FROM {table}) \
         GROUP BY stars ORDER BY stars"
    )
}

/// Profiles the query over a table of lines and replaces the times that were measured, which
/// depend on the machine, by known ones: so much for each character and each row. Tables `stats`
/// and `latency` take the places of those of schema `sys`. Gives the query's id and what its
/// longest tasks take one after the other.
async fn with_known_times(session: &Session, table: &str) -> (i64, i64) {
    query(session, &format!("EXPLAIN PROFILE {}", ratings(table)))
        .await
        .unwrap();
    let id = session.last_query_id().unwrap();
    let latency = format!(
        "CREATE OR REPLACE TABLE latency AS \
         SELECT l.operator_id, l.partition, l.table_name, l.row_id, l.kind, \
           10 * t.length / count(*) OVER (PARTITION BY l.operator_id, l.row_id) AS latency_ns, \
           l.query_id \
         FROM (SELECT * FROM sys.record_latency WHERE query_id = {id}) AS l \
         JOIN (SELECT _row_id AS id, length(line) AS length FROM {table}) AS t ON l.row_id = t.id"
    );
    let stats = format!(
        "CREATE OR REPLACE TABLE stats AS \
         SELECT s.query_id, s.fragment_id, s.operator_id, s.worker_id, s.partition, s.rows_in, \
           s.rows_out, CAST(0 AS BIGINT) AS input_wait_ns, CAST(0 AS BIGINT) AS output_wait_ns, \
           CAST(CASE \
             WHEN timed.ns IS NOT NULL THEN timed.ns \
             WHEN s.rows_in = 0 AND s.rows_out > 0 THEN (SELECT 5 * sum(length(line)) FROM {table}) \
             ELSE 50 * greatest(s.rows_in, s.rows_out) END AS BIGINT) AS self_ns \
         FROM (SELECT * FROM sys.operator_stats WHERE query_id = {id}) AS s \
         LEFT JOIN (\
           SELECT operator_id, partition, sum(latency_ns) AS ns FROM latency GROUP BY 1, 2\
         ) AS timed ON s.operator_id = timed.operator_id AND s.partition = timed.partition"
    );
    for sql in [latency, stats] {
        query(session, &sql).await.unwrap();
    }
    let longest = "SELECT CAST(sum(longest) AS BIGINT) FROM (\
                   SELECT fragment_id, max(busy) AS longest FROM (\
                   SELECT fragment_id, partition, sum(self_ns) AS busy FROM stats GROUP BY 1, 2\
                   ) AS tasks GROUP BY 1) AS fragments";
    (id, one(session, longest).await.parse().unwrap())
}

#[tokio::test]
async fn the_estimate_without_a_record_is_near_what_the_query_takes_without_it() {
    let database = Database::builder().worker_threads(2).build().unwrap();
    let session = database.session();
    for sql in [
        "SET datafusion.execution.batch_size = 8".to_owned(),
        "CREATE TABLE movies AS SELECT value || ':' || repeat(value || '_' || (value % 5) || ',', \
         CASE WHEN value = 17 THEN 3000 ELSE 5 + value % 10 END) AS line \
         FROM generate_series(1, 60)"
            .to_owned(),
        "CREATE TABLE others AS SELECT line FROM movies WHERE line NOT LIKE '17:%'".to_owned(),
    ] {
        query(&session, &sql).await.unwrap();
    }
    let expensive = one(
        &session,
        "SELECT _row_id FROM movies WHERE line LIKE '17:%'",
    )
    .await;
    let (_, truth) = with_known_times(&session, "others").await;
    let (id, whole) = with_known_times(&session, "movies").await;
    let computed = format!("SELECT sum(latency_ns) FROM latency WHERE row_id = {expensive}");
    let computed: i64 = one(&session, &computed).await.parse().unwrap();
    assert!(computed > 0);
    query(
        &session,
        &format!(
            "CREATE TABLE known AS SELECT CAST({id} AS BIGINT) AS query_id, \
             CAST(0 AS BIGINT) AS planning_ns, CAST({whole} AS BIGINT) AS execution_ns, \
             CAST(5 AS BIGINT) AS rows_returned, CAST(1 AS DOUBLE) AS sample_rate, CAST(0 AS BIGINT) AS time_ns"
        ),
    )
    .await
    .unwrap();
    let share = "SELECT CAST(max(length(line)) AS DOUBLE) / sum(length(line)) FROM movies";
    let share = one(&session, share).await;
    let scan = format!(
        "SELECT operator_id FROM sys.operators WHERE query_id = {id} AND table_name = 'main.movies'"
    );
    let scan = one(&session, &scan).await;
    let sql = include_str!("../../diagnosis/src/sql/query_without_records.sql")
        .replace("sys.queries", "known")
        .replace("sys.profiler_overhead", "known")
        .replace("sys.operator_stats", "main.stats")
        .replace("sys.record_latency", "latency")
        .replace("$query_id", &id.to_string())
        .replace("$own", &format!("SELECT CAST({expensive} AS BIGINT) AS id"))
        .replace("$table_name", "'main.movies'")
        .replace("$share_of_bytes", &format!("CAST({share} AS DOUBLE)"))
        .replace("$scans_by_bytes", &scan);
    let sql = format!("SELECT without_ns FROM ({sql}) AS estimated");
    let estimate: i64 = one(&session, &sql).await.parse().unwrap();
    let error = (estimate - truth).abs();
    let found = format!("{estimate} ns instead of {whole} ns; in truth {truth} ns");
    assert!(2 * error < truth, "{found}");
    // Nearer than what is left if only the computation on the record is taken off.
    assert!(4 * error < (whole - computed - truth).abs(), "{found}");
}
