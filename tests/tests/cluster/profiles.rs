//! Profiles of queries that run on several processes.

use std::collections::BTreeSet;
use std::sync::Arc;

use skewer::cluster::MemberState;
use skewer::{Database, Session};
use skewer_tests::cluster::Cluster;
use skewer_tests::contents::query;

use crate::reads::fill;

/// Words of different lengths, of which one is far longer than the others: what compares them
/// takes time that grows with the square of that.
async fn words(session: &Session) {
    let script = "
        CREATE TABLE words (g BIGINT, s VARCHAR);
        INSERT INTO words SELECT value % 7, 'word ' || value FROM generate_series(1, 4000);
        INSERT INTO words SELECT value % 7, 'more ' || value FROM generate_series(1, 4000);
        INSERT INTO words VALUES (3, repeat('slow ', 1200));
        INSERT INTO words SELECT value % 7, 'last ' || value FROM generate_series(1, 4000);";
    session.execute_script(script).await.unwrap();
}

const COMPARED: &str = "SELECT g, max(levenshtein(s, reverse(s))) FROM words GROUP BY g";

async fn run(session: &Session, sql: &str) -> Vec<String> {
    match query(session, sql).await {
        Ok(rows) => rows,
        Err(error) => panic!("{sql}: {error}"),
    }
}

async fn at_level(session: &Session, level: &str) {
    let set = format!("SET profile.level = '{level}'");
    session.execute_script(&set).await.unwrap();
}

/// The word that the last query is slow for, and how many rows of the result it is in.
async fn slow_word(session: &Session) -> (String, String) {
    let expensive = "SELECT table_name, row_id, outputs FROM sys.expensive_inputs
                     WHERE query_id = last_query_id() AND rank = 1";
    let found = query(session, expensive).await.unwrap();
    let columns: Vec<&str> = found[0].split('|').collect();
    assert_eq!(columns[0], "main.words");
    let record = format!(
        "SELECT left(s, 5) || length(s) FROM words WHERE _row_id = {}",
        columns[1]
    );
    let word = query(session, &record).await.unwrap().remove(0);
    (word, columns[2].to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_record_is_isolated_on_three_processes_as_in_one() {
    let one = Database::in_memory().unwrap().session();
    let cluster = Cluster::start(3);
    let three = cluster.session();
    let (mut found, mut captured_on) = (Vec::new(), Vec::new());
    for session in [&one, &three] {
        words(session).await;
        at_level(session, "records").await;
        let rows = query(session, COMPARED).await.unwrap();
        assert_eq!(rows.len(), 7);
        // Every word is in the lineage of exactly one row of the result, wherever it was read.
        let traced = "SELECT count(*), count(DISTINCT input_id) FROM sys.lineage
                      WHERE query_id = last_query_id() AND table_name = 'main.words'";
        assert_eq!(query(session, traced).await.unwrap(), ["12001|12001"]);
        let captured = "SELECT DISTINCT worker_id FROM sys.lineage
                        WHERE query_id = last_query_id() ORDER BY worker_id";
        captured_on.push(query(session, captured).await.unwrap());
        // A group's time is what its slowest word took before the shuffle, and what grouping took.
        let parts = "SELECT bool_and(total_ns = computation_ns + shuffle_ns), min(shuffle_ns) > 0
                     FROM sys.output_latency WHERE query_id = last_query_id()";
        assert_eq!(query(session, parts).await.unwrap(), ["true|true"]);
        let before = "SELECT count(*), max(abs(groups.ns - words.ns)) <= 1000 FROM
                        (SELECT max(computation_ns) AS ns FROM sys.output_latency
                         WHERE query_id = last_query_id()) AS groups,
                        (SELECT max(ns) AS ns FROM
                           (SELECT sum(latency_ns) AS ns FROM sys.record_latency
                            WHERE query_id = last_query_id() AND kind = 'computation'
                            GROUP BY row_id)) AS words";
        assert_eq!(query(session, before).await.unwrap(), ["1|true"]);
        found.push(slow_word(session).await);
        // Carried in the rows instead of logged it is the same.
        run(session, "SET profile.lineage = 'piggyback'").await;
        assert_eq!(run(session, COMPARED).await.len(), 7);
        let log = "SELECT count(*) FROM sys.lineage WHERE query_id = last_query_id()";
        assert_eq!(run(session, log).await, ["0"]);
        found.push(slow_word(session).await);
        run(session, "SET profile.lineage = 'log'").await;
    }
    assert_eq!(captured_on, [vec!["0"], vec!["1", "2", "3"]]);
    let slow = ("slow 6000".to_owned(), "1".to_owned());
    assert_eq!(found, vec![slow; 4]);

    let profile = format!("EXPLAIN PROFILE {COMPARED}");
    let report = query(&three, &profile).await.unwrap().join("\n");
    assert!(report.contains("slow slow slow"), "{report}");
    assert!(!report.contains("missing"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_writes_is_traced_where_its_rows_are_made_and_written() {
    let one = Database::in_memory().unwrap().session();
    let cluster = Cluster::start(3);
    let three = cluster.session();
    let compared = "SELECT g, s, levenshtein(s, reverse(s)) AS d FROM words";
    let mut found = Vec::new();
    for session in [&one, &three] {
        words(session).await;
        at_level(session, "records").await;
        run(session, &format!("CREATE TABLE compared AS {compared}")).await;
        let traced = "SELECT count(*), count(DISTINCT output_row), count(DISTINCT record_id)
                      FROM sys.output_records
                      WHERE query_id = last_query_id() AND table_name = 'main.words'";
        assert_eq!(run(session, traced).await, ["12001|12001|12001"]);
        found.push(slow_word(session).await);
        // The result row that waited for it is made of it alone.
        let slowest = "SELECT output_row FROM sys.output_latency
                       WHERE query_id = last_query_id() ORDER BY total_ns DESC LIMIT 1";
        let slowest = run(session, slowest).await.remove(0);
        let back = format!(
            "SELECT left(s, 5) || length(s) FROM words JOIN backward_trace(last_query_id(), {slowest})
             AS trace ON words._row_id = trace.row_id"
        );
        assert_eq!(run(session, &back).await, ["slow 6000"]);
        let inserted = "INSERT INTO compared SELECT g, max(s), count(*) FROM words GROUP BY g";
        run(session, inserted).await;
        let traced = "SELECT count(DISTINCT output_row), count(DISTINCT record_id)
                      FROM sys.output_records WHERE query_id = last_query_id()";
        assert_eq!(run(session, traced).await, ["7|7"]);
        let edges = "SELECT count(DISTINCT input_id) FROM sys.lineage
                     WHERE query_id = last_query_id() AND table_name = 'main.words'";
        assert_eq!(run(session, edges).await, ["12001"]);
        let rows = "SELECT count(*), sum(g), sum(d), sum(length(s)) FROM compared";
        found.push((run(session, rows).await.remove(0), String::new()));
    }
    assert_eq!(found[0], ("slow 6000".to_owned(), "1".to_owned()));
    assert_eq!(found[..2], found[2..]);

    let profile = format!("EXPLAIN PROFILE INSERT INTO compared {compared}");
    let report = run(&three, &profile).await.join("\n");
    assert!(report.contains("slow slow slow"), "{report}");
    assert!(!report.contains("missing"), "{report}");
    // All of them wrote, and nothing but what they wrote came to the master.
    let writers = "SELECT DISTINCT s.worker_id FROM sys.operator_stats s JOIN sys.operators o
                     ON s.query_id = o.query_id AND s.operator_id = o.operator_id
                   WHERE s.query_id = last_query_id() AND o.name = 'WriteSegmentsExec'
                   ORDER BY s.worker_id";
    assert_eq!(run(&three, writers).await, ["1", "2", "3"]);
    let moved = "SELECT count(*) FROM sys.operators
                 WHERE query_id = last_query_id() AND name = 'RouteExec'";
    assert_eq!(
        run(&three, moved).await,
        ["0"],
        "rows are written where they are made"
    );
    let came = "SELECT sum(tuples) BETWEEN 1 AND 30 FROM sys.tuples_sent
                WHERE query_id = last_query_id() AND destination_worker = 0";
    assert_eq!(run(&three, came).await, ["true"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lineage_of_a_row_leads_to_the_rows_it_was_made_of_on_all_processes() {
    let cluster = Cluster::start(3);
    let session = cluster.session();
    fill(&session, "t").await;
    at_level(&session, "records").await;
    let sql = "SELECT a.v % 5 AS d, count(*) FROM t a JOIN t b ON a.id = b.id
               WHERE a.id % 999 = 7 GROUP BY d ORDER BY d";
    let rows = query(&session, sql).await.unwrap();
    for (number, row) in rows.iter().enumerate() {
        let (digit, count) = row.split_once('|').unwrap();
        // Each row of the join comes from one row of `t` on either side, which is the same.
        let back = format!(
            "SELECT count(*), count(DISTINCT row_id) FROM backward_trace(last_query_id(), {number})
             WHERE table_name = 'main.t'"
        );
        let found = query(&session, &back).await.unwrap();
        let distinct = found[0].split('|').nth(1).unwrap();
        assert_eq!(distinct, count, "{row}: {found:?}");
        let ids = format!("SELECT row_id FROM backward_trace(last_query_id(), {number})");
        let traced: BTreeSet<String> = query(&session, &ids).await.unwrap().into_iter().collect();
        let expected = format!("SELECT _row_id FROM t WHERE id % 999 = 7 AND v % 5 = {digit}");
        at_level(&session, "off").await;
        let direct: BTreeSet<String> = query(&session, &expected)
            .await
            .unwrap()
            .into_iter()
            .collect();
        assert_eq!(traced, direct);
        at_level(&session, "records").await;
        query(&session, sql).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_crosses_between_processes_is_counted_by_sender_and_receiver() {
    let cluster = Cluster::start(3);
    let session = cluster.session();
    fill(&session, "t").await;
    for level in ["counters", "calls"] {
        at_level(&session, level).await;
        let sql = "SELECT id, count(*) FROM t GROUP BY id ORDER BY id";
        assert_eq!(query(&session, sql).await.unwrap()[0], "1|1");
        let pairs = "SELECT count(DISTINCT source_worker * 10 + destination_worker)
                     FROM sys.tuples_sent
                     WHERE query_id = last_query_id() AND source_worker > 0
                       AND destination_worker > 0 AND source_worker <> destination_worker";
        assert_eq!(query(&session, pairs).await.unwrap(), ["6"], "{level}");
        // Whatever was hashed arrived: nothing is aggregated before, since all keys differ.
        let shuffled = "SELECT sum(tuples) FROM sys.tuples_sent AS sent
                        JOIN sys.operators AS operators
                          ON sent.query_id = operators.query_id
                         AND sent.exchange_id = operators.operator_id
                        WHERE sent.query_id = last_query_id() AND destination_worker > 0
                          AND operators.name = 'NetworkShuffleExec'";
        assert_eq!(
            query(&session, shuffled).await.unwrap(),
            ["60000"],
            "{level}"
        );
        let scanned = "SELECT stats.worker_id, sum(stats.rows_out)
                       FROM sys.operator_stats AS stats JOIN sys.operators AS operators
                         ON stats.query_id = operators.query_id
                        AND stats.operator_id = operators.operator_id
                       WHERE stats.query_id = last_query_id()
                         AND operators.name = 'DataSourceExec'
                       GROUP BY stats.worker_id HAVING sum(stats.rows_out) > 0
                       ORDER BY stats.worker_id";
        let scanned = query(&session, scanned).await.unwrap();
        assert_eq!(scanned.len(), 3, "{level}: {scanned:?}");
        // Fragments are a tree whose root makes the result; the scan's runs on all workers.
        let fragments = "SELECT count(*) FILTER (WHERE fragments.parent_fragment_id IS NULL),
                                count(*) FILTER (WHERE consumers.fragment_id IS NOT NULL) > 1,
                                count(*) - count(DISTINCT fragments.fragment_id)
                         FROM sys.fragments AS fragments LEFT JOIN sys.fragments AS consumers
                           ON fragments.query_id = consumers.query_id
                          AND fragments.parent_fragment_id = consumers.fragment_id
                         WHERE fragments.query_id = last_query_id()";
        assert_eq!(
            query(&session, fragments).await.unwrap(),
            ["1|true|0"],
            "{level}"
        );
        let scan = "SELECT min(tasks) >= 3, count(*) FROM sys.fragments
                    WHERE query_id = last_query_id() AND plan LIKE '%DataSourceExec%'";
        assert_eq!(query(&session, scan).await.unwrap(), ["true|1"], "{level}");
        // Each operator is in the text of one fragment.
        let lines = "SELECT sum(length(plan) - length(replace(plan, chr(10), '')))
                            - (SELECT count(*) FROM sys.operators WHERE query_id = last_query_id())
                     FROM sys.fragments WHERE query_id = last_query_id()";
        assert_eq!(query(&session, lines).await.unwrap(), ["0"], "{level}");
        let calls = "SELECT count(DISTINCT worker_id) FROM sys.operator_calls
                     WHERE query_id = last_query_id() AND worker_id > 0";
        let expected = if level == "calls" { "3" } else { "0" };
        assert_eq!(query(&session, calls).await.unwrap(), [expected], "{level}");
        let within = "SELECT count(*) FROM sys.operator_calls AS calls
                      JOIN sys.queries AS queries ON calls.query_id = queries.query_id
                      WHERE calls.query_id = last_query_id()
                        AND (calls.started_at < queries.started_at - INTERVAL '100 milliseconds'
                          OR calls.ended_at > queries.ended_at + INTERVAL '100 milliseconds')";
        assert_eq!(query(&session, within).await.unwrap(), ["0"], "{level}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_workers_recorded_outlives_them_and_the_master() {
    let mut cluster = Cluster::start(2);
    let session = cluster.session();
    fill(&session, "t").await;
    at_level(&session, "records").await;
    query(&session, "SELECT v % 3 AS d, sum(id) FROM t GROUP BY d")
        .await
        .unwrap();
    let id = query(&session, "SELECT last_query_id()").await.unwrap();
    let id: i64 = id[0].parse().unwrap();
    let edges = format!(
        "SELECT worker_id, count(*) FROM sys.lineage WHERE query_id = {id}
                         GROUP BY worker_id ORDER BY worker_id"
    );
    let before = query(&session, &edges).await.unwrap();
    assert_eq!(before.len(), 2, "{before:?}");
    // It ends in an orderly manner, and comes back.
    cluster.terminate(2);
    assert_eq!(cluster.ended(2).code(), Some(0));
    cluster.wait_for(2, &MemberState::Lost(Arc::from("")));
    let state = "SELECT state FROM sys.workers WHERE query_id IS NULL AND worker_id = 2";
    assert_eq!(query(&session, state).await.unwrap(), ["lost"]);
    cluster.restart_worker(2);
    drop(session);
    cluster.restart_master();
    cluster.wait_for(1, &MemberState::Alive);
    cluster.wait_for(2, &MemberState::Alive);
    let session = cluster.session();
    assert_eq!(query(&session, &edges).await.unwrap(), before);
    let slowest = format!("SELECT count(*) FROM sys.output_latency WHERE query_id = {id}");
    assert_eq!(query(&session, &slowest).await.unwrap(), ["3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_of_a_lost_worker_says_that_something_is_missing() {
    let mut cluster = Cluster::start(2);
    let session = cluster.session();
    fill(&session, "t").await;
    at_level(&session, "counters").await;
    let sum = query(&session, "SELECT sum(id) FROM t").await.unwrap();
    assert_eq!(sum, ["1800030000"]);
    let id = query(&session, "SELECT last_query_id()").await.unwrap();
    cluster.kill(2);
    cluster.wait_for(2, &MemberState::Lost(Arc::from("")));
    let workers = format!(
        "SELECT DISTINCT worker_id FROM sys.operator_stats WHERE query_id = {} ORDER BY 1",
        id[0]
    );
    assert_eq!(query(&session, &workers).await.unwrap(), ["0", "1"]);
    let all = "SELECT count(DISTINCT worker_id) FROM sys.operator_stats";
    assert_eq!(query(&session, all).await.unwrap(), ["2"]);
}
