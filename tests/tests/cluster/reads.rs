//! Queries over segments of several processes.

use std::time::{Duration, Instant};

use futures::StreamExt;
use skewer::Session;
use skewer_tests::cluster::Cluster;
use skewer_tests::contents::query;

/// A table with rows on every worker: as many statements as it takes to go round.
pub(crate) async fn fill(session: &Session, table: &str) {
    let create = format!("CREATE TABLE {table} (id BIGINT NOT NULL, v BIGINT)");
    session.execute_script(&create).await.unwrap();
    let insert = format!(
        "INSERT INTO {table} SELECT value, value * 7 % 1000 FROM generate_series(1, 30000)"
    );
    session.execute_script(&insert).await.unwrap();
    let copy = format!("INSERT INTO {table} SELECT id + 30000, v FROM {table}");
    session.execute_script(&copy).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_run_where_the_rows_are() {
    let cluster = Cluster::start(3);
    let session = cluster.session();
    fill(&session, "t").await;
    let sum = "SELECT v % 10 AS d, count(*), sum(id) FROM t GROUP BY d ORDER BY d";
    let found = query(&session, sum).await.unwrap();
    assert_eq!(found.len(), 10);
    assert_eq!(found[3], "3|6000|180024000");
    let workers = "SELECT DISTINCT worker_id FROM sys.operator_stats
                   WHERE query_id = last_query_id() ORDER BY worker_id";
    assert_eq!(
        query(&session, workers).await.unwrap(),
        ["0", "1", "2", "3"]
    );
    let join = "SELECT count(*) FROM t a JOIN t b ON a.id = b.v";
    let found = query(&session, join).await.unwrap();
    assert_eq!(found, ["59940"]);
    let row = "SELECT _row_id IS NOT NULL, id FROM t WHERE id = 59999";
    assert_eq!(query(&session, row).await.unwrap(), ["true|59999"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn options_of_the_session_and_errors_of_users_cross_the_wire() {
    let cluster = Cluster::start(2);
    let session = cluster.session();
    fill(&session, "t").await;
    let divided = "SELECT sum(id / (v - v)) FROM t";
    let error = query(&session, divided).await.unwrap_err();
    assert!(matches!(error, skewer::Error::DivisionByZero), "{error:?}");
    session
        .execute_script("SET datafusion.execution.time_zone = '+05:00'")
        .await
        .unwrap();
    let zone = "SELECT min(CAST(to_timestamp_seconds(id) AS TIMESTAMPTZ)) FROM t";
    let found = query(&session, zone).await.unwrap();
    assert!(found[0].contains("+05:00"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_nobody_reads_any_more_ends_on_all_workers() {
    let cluster = Cluster::start(2);
    let session = cluster.session();
    fill(&session, "t").await;
    let endless = "SELECT a.v FROM t a, t b, t c WHERE a.v + b.v + c.v = -1";
    let mut stream = session.sql(endless).await.unwrap();
    let waiting = tokio::time::timeout(Duration::from_millis(300), stream.next()).await;
    assert!(waiting.is_err());
    drop(stream);
    // A worker that leaves waits for the queries that run on it.
    let mut cluster = cluster;
    cluster.terminate(1);
    assert_eq!(cluster.ended(1).code(), Some(0));
    assert!(
        !cluster.log(1).contains("are cancelled"),
        "{}",
        cluster.log(1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_workers_and_their_clocks_are_in_schema_sys() {
    let cluster = Cluster::start(2);
    let session = cluster.session();
    let begun = Instant::now();
    let known = "SELECT count(*) FROM sys.workers WHERE query_id IS NULL AND state = 'alive'
                 AND clock_error_ns BETWEEN 1 AND 1000000000
                 AND abs(clock_offset_ns) <= clock_error_ns AND worker_id > 0";
    fill(&session, "t").await;
    let shares = "SELECT worker_id, name, state, reason IS NULL, version IS NOT NULL,
                  rows > 0 AND bytes > rows, since <= last_heartbeat FROM sys.cluster ORDER BY 1";
    let found = query(&session, shares).await.unwrap();
    let expected = [1, 2].map(|n| format!("{n}|host-{n}|alive|true|true|true|true"));
    assert_eq!(found, expected);
    let rows = "SELECT sum(rows) FROM sys.cluster";
    assert_eq!(query(&session, rows).await.unwrap(), ["60000"]);
    // All of them read the same clock.
    while query(&session, known).await.unwrap() != ["2"] {
        assert!(begun.elapsed() < skewer_tests::cluster::PATIENCE);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_analyze_shows_what_the_operators_of_all_workers_did() {
    let cluster = Cluster::start(3);
    let session = cluster.session();
    fill(&session, "t").await;
    let sum = "SELECT v % 10 AS d, count(*), sum(id) FROM t WHERE id % 2 = 0 GROUP BY d";
    let shown = query(&session, &format!("EXPLAIN ANALYZE {sum}")).await;
    let shown = shown.unwrap().join("\n");
    let scan = shown
        .lines()
        .find(|line| line.contains("DistributedLeafExec"));
    let scan = scan.unwrap_or_else(|| panic!("{shown}"));
    // What the three have read, together.
    assert!(scan.contains("output_rows=60.00 K"), "{shown}");
    let aggregate = shown.lines().find(|line| line.contains("mode=Partial"));
    let aggregate = aggregate.unwrap_or_else(|| panic!("{shown}"));
    assert!(aggregate.contains("output_rows="), "{shown}");
    let verbose = format!("EXPLAIN ANALYZE VERBOSE {sum}");
    let shown = query(&session, &verbose).await.unwrap().join("\n");
    assert!(shown.contains("Plan with Full Metrics"), "{shown}");
    // One that does not leave the master.
    let here = "EXPLAIN ANALYZE SELECT count(*) FROM range(1000)";
    let shown = query(&session, here).await.unwrap().join("\n");
    assert!(shown.contains("output_rows="), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_counts_what_tasks_on_workers_have_read() {
    let cluster = Cluster::start(3);
    let session = cluster.session();
    fill(&session, "t").await;
    for level in ["off", "counters"] {
        let set = format!("SET profile.level = '{level}'");
        session.execute_script(&set).await.unwrap();
        // Nobody reads more than the first batch, so the rest is not read on the workers either.
        let long = "SELECT a.id FROM t a, t b WHERE a.id + b.id > 0";
        let mut stream = session.sql(long).await.unwrap();
        stream.next().await.unwrap().unwrap();
        let progress = stream.progress();
        let begun = Instant::now();
        let read = loop {
            if let Some(read) = progress.now().fraction
                && read > 0.0
            {
                break read;
            }
            assert!(begun.elapsed() < skewer_tests::cluster::PATIENCE);
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert!(read < 1.0, "{read}");
        drop(stream);
        // One that is read to its end.
        let all = "SELECT count(*) FROM t a JOIN t b ON a.v = b.v WHERE a.id + b.id > 0";
        let mut seen = Vec::new();
        // It may end before workers have been asked.
        for _ in 0..50 {
            let stream = session.sql(all).await.unwrap();
            let progress = stream.progress();
            let result = tokio::spawn(stream.collect());
            while !result.is_finished() {
                seen.extend(progress.now().fraction);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            result.await.unwrap().unwrap();
            if !seen.is_empty() {
                break;
            }
        }
        assert!(
            seen.iter().all(|read| (0.0..=1.0).contains(read)),
            "{seen:?}"
        );
        assert!(!seen.is_empty(), "level {level}");
    }
}
