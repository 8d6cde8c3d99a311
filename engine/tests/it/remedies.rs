//! Setting `remedies`: the same rows with remedies and without, and what schema `sys` says of them.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use skewer::{Database, Session};

async fn run(session: &Session, sql: &str) -> Vec<RecordBatch> {
    let stream = session.sql(sql).await;
    let stream = stream.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let rows = stream.collect().await;
    rows.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// The rows as sorted lines.
async fn rows(session: &Session, sql: &str) -> Vec<String> {
    let batches = run(session, sql).await;
    let text = pretty_format_batches(&batches).unwrap().to_string();
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

async fn number(session: &Session, sql: &str) -> i64 {
    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::Int64Type;
    let batches = run(session, sql).await;
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

/// Tables whose key has a value that half of the rows have, NULLs, and others.
async fn filled(workers: Option<usize>, rows: usize) -> Session {
    let builder = Database::builder().worker_threads(2);
    let database = match workers {
        Some(workers) => builder.workers(workers).build(),
        None => builder.build(),
    };
    let session = database.unwrap().session();
    for (table, many) in [("l", rows), ("r", rows / 10 + 1)] {
        // Segments of their own, so that all workers have some.
        for part in 0..3 {
            let select = format!(
                "SELECT CASE value % 10 WHEN 0 THEN NULL WHEN 1 THEN value % 101 WHEN 2 THEN 3 ELSE 7 END AS k,
                   CASE value % 4 WHEN 0 THEN NULL ELSE 'text ' || value % 5 END AS s, value AS v
                 FROM generate_series({}, {})",
                part * many / 3,
                (part + 1) * many / 3
            );
            let sql = match part {
                0 => format!("CREATE TABLE {table} AS {select}"),
                _ => format!("INSERT INTO {table} {select}"),
            };
            run(&session, &sql).await;
        }
    }
    // No side is collected: joins exchange both.
    for setting in [
        "datafusion.optimizer.hash_join_single_partition_threshold = 0",
        "datafusion.optimizer.hash_join_single_partition_threshold_rows = 0",
        "datafusion.optimizer.repartition_file_min_size = 0",
        "datafusion.execution.target_partitions = 3",
    ] {
        run(&session, &format!("SET {setting}")).await;
    }
    session
}

/// Queries with exchanges of each kind.
const QUERIES: [&str; 16] = [
    "SELECT count(*), sum(l.v), sum(r.v) FROM l JOIN r ON l.k = r.k",
    "SELECT count(*), sum(l.v), sum(r.v), count(r.v) FROM l LEFT JOIN r ON l.k = r.k AND r.v % 3 = 0",
    "SELECT count(*), sum(l.v), sum(r.v), count(l.v) FROM l RIGHT JOIN r ON l.k = r.k AND l.v % 3 = 0",
    "SELECT count(*), sum(l.v), sum(r.v), count(l.v) FROM l FULL JOIN r ON l.k = r.k AND l.v % 50 = 0",
    "SELECT count(*), sum(v) FROM l WHERE k IN (SELECT k FROM r WHERE v % 7 > 1)",
    "SELECT count(*), sum(v) FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = l.k AND r.v % 7 > 1 AND r.k <> 7)",
    "SELECT count(*), sum(v) FROM r WHERE EXISTS (SELECT 1 FROM l WHERE r.k = l.k AND l.v % 7 > 1)",
    "SELECT count(*), sum(v) FROM r WHERE NOT EXISTS (SELECT 1 FROM l WHERE r.k = l.k AND l.k <> 3)",
    "SELECT count(*), sum(v) FROM l WHERE k NOT IN (SELECT k FROM r WHERE k IS NOT NULL AND k <> 7)",
    "SELECT count(*) FROM l WHERE v % 2 = 0 OR k IN (SELECT k FROM r WHERE k <> 7)",
    "SELECT l.k, l.s, count(*), sum(r.v) FROM l JOIN r ON l.k = r.k AND l.s = r.s GROUP BY l.k, l.s",
    "SELECT l.k, count(*), sum(r.v) FROM l LEFT JOIN r ON l.k = r.k GROUP BY l.k",
    "SELECT k, s, count(*), median(v) FROM l GROUP BY k, s",
    "SELECT sum(n), max(n) FROM (SELECT row_number() OVER (PARTITION BY k ORDER BY v) AS n FROM l)",
    "SELECT count(*), count(a.v), count(b.v) FROM l AS a JOIN r AS b ON a.k = b.k LEFT JOIN r AS c ON b.k = c.k AND c.v % 90 = 0",
    "SELECT count(*), sum(a.v) FROM l AS a JOIN r AS b ON a.k IS NOT DISTINCT FROM b.k",
];

/// Every query has the same rows with any remedies that do not change its result.
async fn remedies_change_no_result(session: &Session, seeds: u64) {
    let mut had = 0;
    for sql in QUERIES {
        run(session, "SET remedies = 'off'").await;
        let expected = rows(session, sql).await;
        for seed in 0..seeds {
            run(session, &format!("SET remedies = 'random {seed}'")).await;
            let found = rows(session, sql).await;
            if found != expected {
                let had = "SELECT remedy, exchange_id, is_applied FROM sys.remedies WHERE query_id = last_query_id()";
                let had = rows(session, had).await.join("\n");
                let operators = "SELECT operator_id, name, details, remedies FROM sys.operators
                                 WHERE query_id = last_query_id() ORDER BY operator_id";
                let operators = run(session, operators).await;
                let operators = pretty_format_batches(&operators).unwrap();
                panic!(
                    "seed {seed}: {sql}\n{found:?}\ninstead of\n{expected:?}\nwith\n{had}\nin\n{operators}"
                );
            }
            had += number(
                session,
                "SELECT count(*) FROM sys.remedies WHERE is_applied AND query_id = last_query_id()",
            )
            .await;
            run(session, "SET remedies = 'off'").await;
            rows(session, sql).await;
        }
    }
    assert!(had > 10, "only {had} remedies were applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn remedies_change_no_result_in_a_process() {
    for rows in [30, 3000, 20_000] {
        remedies_change_no_result(&filled(None, rows).await, 6).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn remedies_change_no_result_on_workers() {
    for rows in [30, 5000] {
        remedies_change_no_result(&filled(Some(3), rows).await, 6).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn remedies_change_no_result_at_level_records() {
    let session = filled(None, 2000).await;
    run(&session, "SET profile.level = 'records'").await;
    remedies_change_no_result(&session, 4).await;
}

/// All remedies occur in these queries.
#[tokio::test(flavor = "multi_thread")]
async fn each_remedy_is_possible_somewhere() {
    let session = filled(Some(3), 1000).await;
    for sql in QUERIES {
        run(&session, sql).await;
    }
    let sql = "SELECT DISTINCT remedies FROM sys.operators WHERE remedies IS NOT NULL";
    let found = rows(&session, sql).await.join("\n");
    for remedy in ["map", "split", "deal NULL", "drop NULL"] {
        assert!(found.contains(remedy), "{remedy} is not in\n{found}");
    }
}

/// A statement whose exchange sends most rows to one partition gets a remedy in its second run.
#[tokio::test(flavor = "multi_thread")]
async fn skew_has_a_remedy_in_the_second_run() {
    let session = filled(None, 200_000).await;
    let sql = "SELECT count(*), sum(length(l.s) + r.v) FROM l JOIN r ON l.k = r.k AND r.v % 40 = 7";
    run(&session, "SET remedies = 'auto'").await;
    let first = rows(&session, sql).await;
    let advised = rows(
        &session,
        "SELECT remedy, subject, because, predicted_ns FROM sys.remedies WHERE query_id = last_query_id()",
    )
    .await
    .join("\n");
    assert!(
        advised.contains("split") && advised.contains("key 7"),
        "{advised}"
    );
    assert_eq!(rows(&session, sql).await, first);
    let applied = "SELECT count(*) FROM sys.remedies WHERE query_id = last_query_id() AND is_applied AND verdict = 'trial'";
    assert!(number(&session, applied).await > 0, "{advised}");
    let explained = rows(&session, &format!("EXPLAIN {sql}")).await.join("\n");
    assert!(explained.contains("key 7"), "{explained}");
}

/// Partial groups are one row for each key and task, however many rows went into them.
#[tokio::test(flavor = "multi_thread")]
async fn keys_of_groups_that_carry_lists_are_heavy_by_their_values() {
    let session = filled(None, 20_000).await;
    run(
        &session,
        "SELECT k, median(v), count(DISTINCT s) FROM l GROUP BY k",
    )
    .await;
    let seen = "SELECT count(*) FROM sys.key_frequencies
                WHERE query_id = last_query_id() AND input IS NULL AND key = '7'
                  AND tuples BETWEEN 1 AND 10 AND list_values BETWEEN 12000 AND 16000
                  AND list_share BETWEEN 0.6 AND 0.8";
    let all = "SELECT * FROM sys.key_frequencies WHERE query_id = last_query_id()";
    let all = rows(&session, all).await.join("\n");
    assert_eq!(number(&session, seen).await, 1, "{all}");
}

/// Four keys on two partitions: where three of them meet, a map helps. Each partial group is one row, so only the
/// values in its list say that it is heavy.
#[tokio::test(flavor = "multi_thread")]
async fn groups_that_carry_lists_have_remedies() {
    let session = filled(None, 200_000).await;
    run(&session, "SET datafusion.execution.target_partitions = 2").await;
    let mut proposed = Vec::new();
    for keys in 0..6 {
        let sql = format!(
            "SELECT v % 4 + {keys} * 4, array_length(array_sort(array_agg('text ' || v))) FROM l GROUP BY 1"
        );
        run(&session, &sql).await;
        let candidates = "SELECT because FROM sys.remedy_candidates
                          WHERE query_id = last_query_id() AND remedy = 'map' AND subject = 'heavy keys'
                            AND because LIKE '2_ \\% of ______ values in lists of exchange %'";
        let lines = rows(&session, candidates).await;
        proposed.extend(
            lines
                .into_iter()
                .filter(|line| line.contains(" values in lists ")),
        );
    }
    assert!(!proposed.is_empty());
}
