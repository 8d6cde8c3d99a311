//! Columns that are kept decoded: the same rows as without, whatever happens to tables, memory and readers.

use std::time::Duration;

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use futures::StreamExt;
use skewer::{Database, Session};

async fn run(session: &Session, sql: &str) -> Vec<RecordBatch> {
    let ran = session.sql(sql).await;
    let stream = ran.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let rows = stream.collect().await;
    rows.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

async fn text(session: &Session, sql: &str) -> String {
    let rows = run(session, sql).await;
    pretty_format_batches(&rows).unwrap().to_string()
}

async fn number(session: &Session, sql: &str) -> i64 {
    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::Int64Type;
    let rows = run(session, sql).await;
    rows[0].column(0).as_primitive::<Int64Type>().value(0)
}

/// What the scans of the last query counted.
async fn counted(session: &Session, metric: &str) -> i64 {
    let sql = format!(
        "SELECT coalesce(sum(value), 0) FROM sys.operator_metrics
         WHERE query_id = last_query_id() AND metric = '{metric}'"
    );
    number(session, &sql).await
}

/// The pieces of row groups and columns that the last query found and those that it decoded.
async fn hits_and_misses(session: &Session) -> (i64, i64) {
    let hits = counted(session, "cache_hits").await;
    (hits, counted(session, "cache_misses").await)
}

fn database() -> Database {
    Database::builder().worker_threads(2).build().unwrap()
}

const WIDE: &str =
    "CREATE TABLE t AS SELECT value AS id, value % 7 AS k, CAST(value AS DOUBLE) / 3 AS f,
                    'text of some length, number ' || (value % 1000) AS s, NULLIF(value % 5, 0) AS n
                    FROM generate_series(1, 300000)";

#[tokio::test(flavor = "multi_thread")]
async fn the_second_query_decodes_nothing() {
    let session = database().session();
    run(&session, WIDE).await;
    let query = "SELECT k, sum(f), max(s), count(n) FROM t WHERE id > 10 GROUP BY k ORDER BY k";
    let first = text(&session, query).await;
    let (hits, misses) = hits_and_misses(&session).await;
    assert_eq!(hits, 0);
    // Five columns of each row group.
    let groups = misses / 5;
    assert!(groups >= 3 && misses % 5 == 0, "{misses}");
    assert!(counted(&session, "bytes_scanned").await > 0);
    assert_eq!(text(&session, query).await, first);
    assert_eq!(hits_and_misses(&session).await, (5 * groups, 0));
    assert!(counted(&session, "bytes_from_cache").await > 300_000 * 8);
    assert_eq!(counted(&session, "bytes_scanned").await, 0);
    // Columns that are missing are decoded beside those that are there.
    run(&session, "SET cache_size = 0").await;
    run(&session, "RESET cache_size").await;
    run(&session, "SELECT sum(k), sum(f) FROM t").await;
    assert_eq!(text(&session, query).await, first);
    assert_eq!(hits_and_misses(&session).await, (2 * groups, 3 * groups));
    assert_eq!(text(&session, query).await, first);
    assert_eq!(hits_and_misses(&session).await, (5 * groups, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_of_few_rows_reads_pages_and_keeps_nothing() {
    let session = database().session();
    run(&session, WIDE).await;
    let point = "SELECT s FROM t WHERE id = 123456";
    let found = text(&session, point).await;
    assert!(found.contains("number 456"), "{found}");
    assert_eq!(number(&session, "SELECT count(*) FROM sys.cache").await, 0);
    // LIMIT leaves after the first rows.
    run(&session, "SELECT * FROM t LIMIT 3").await;
    assert_eq!(number(&session, "SELECT count(*) FROM sys.cache").await, 0);
    // Where the columns are there, pages are ranges of them.
    run(&session, "SELECT count(DISTINCT s), sum(id) FROM t").await;
    assert_eq!(text(&session, point).await, found);
    assert_eq!(hits_and_misses(&session).await, (2, 0));
    assert_eq!(
        number(
            &session,
            "SELECT count(*) FROM (SELECT s FROM t LIMIT 100003)"
        )
        .await,
        100_003
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_limits_and_conditions_that_change_skip_the_same_rows() {
    let session = database().session();
    run(&session, WIDE).await;
    let queries = [
        "SELECT id, k, s FROM t ORDER BY id DESC LIMIT 4",
        "SELECT id, s, n FROM t ORDER BY k, id LIMIT 4",
        "SELECT id, s FROM t WHERE id % 2 = 0 ORDER BY id LIMIT 3 OFFSET 150000 - 5",
        "SELECT t.id, t.s FROM t JOIN (VALUES (123456), (250000)) AS x (id) ON t.id = x.id ORDER BY t.id",
        "SELECT count(*), min(id) FROM t WHERE id > 299990 OR id < 5",
        "SELECT count(*), sum(n) FROM t WHERE id BETWEEN 100000 AND 200000 AND n IS NOT NULL",
    ];
    let mut expected = Vec::new();
    run(&session, "SET cache_size = 0").await;
    for query in queries {
        expected.push(text(&session, query).await);
    }
    run(&session, "RESET cache_size").await;
    for round in 0..3 {
        for (query, expected) in queries.iter().zip(&expected) {
            assert_eq!(
                &text(&session, query).await,
                expected,
                "{query}, round {round}"
            );
        }
        run(
            &session,
            "SELECT count(id), count(k), count(f), count(s), sum(n), max(f) FROM t WHERE f > 0",
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_of_the_cache_tells_what_is_there() {
    let session = database().session();
    run(&session, WIDE).await;
    run(&session, "SELECT sum(f) FROM t").await;
    run(&session, "SELECT sum(f) FROM t").await;
    let listed = text(
        &session,
        "SELECT worker_id, table_name, column_name, sum(bytes) / 100000 AS bytes,
                sum(row_groups) = sum(hits) AS once, max(last_used_at) <= now() AS past
         FROM sys.cache GROUP BY worker_id, table_name, column_name",
    )
    .await;
    let expected = "\
+-----------+------------+-------------+-------+------+------+
| worker_id | table_name | column_name | bytes | once | past |
+-----------+------------+-------------+-------+------+------+
| 0         | main.t     | f           | 24    | true | true |
+-----------+------------+-------------+-------+------+------+";
    assert_eq!(listed, expected);
    // Its segments are gone once no query's snapshot has them.
    run(&session, "SET profile.snapshot_bytes = 0").await;
    run(&session, "DROP TABLE t").await;
    let left = "SELECT count(*) FROM sys.cache";
    for _ in 0..100 {
        if number(&session, left).await == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the cache keeps columns of a table that was dropped");
}

/// Statements that change tables in all ways that leave segments of several kinds.
const CHANGES: [&str; 16] = [
    "CREATE TABLE t (id BIGINT NOT NULL, s VARCHAR, at TIMESTAMP WITH TIME ZONE, d DECIMAL(12, 2))",
    "CREATE TABLE nested AS SELECT value AS id, [value, NULL, value + 1] AS list,
       named_struct('a', value, 'b', 'text number ' || value) AS s FROM generate_series(1, 20000)",
    "INSERT INTO t SELECT value, 'text of number ' || (value % 100),
       to_timestamp_seconds(1767225600 + value * 60), value FROM generate_series(1, 30000)",
    "INSERT INTO t VALUES (0, NULL, NULL, NULL)",
    "DELETE FROM t WHERE id % 10 = 3",
    "UPDATE t SET s = 'changed', d = d + 0.5 WHERE id BETWEEN 100 AND 9000",
    "ALTER TABLE t ADD COLUMN more BIGINT",
    "INSERT INTO t SELECT value, 'later', NULL, 1, value FROM generate_series(40001, 41000)",
    "UPDATE t SET more = id * 2 WHERE id < 50",
    "ALTER TABLE t RENAME TO u",
    "CREATE TABLE t AS SELECT * FROM u WHERE id < 1000",
    "DROP TABLE u",
    "ALTER TABLE t RENAME TO u",
    "CREATE TABLE t AS SELECT id, s, at, d, more FROM u",
    "DELETE FROM nested WHERE id > 15000",
    "TRUNCATE TABLE u",
];

/// Queries whose result does not depend on the order of rows.
const QUERIES: [&str; 9] = [
    "SELECT count(*), count(s), min(s), max(s), sum(d), min(at), max(at), sum(id) FROM t",
    "SELECT * FROM t WHERE id BETWEEN 90 AND 120 ORDER BY id",
    "SELECT count(DISTINCT _row_id) FROM t WHERE id % 1000 = 7",
    "SELECT s, count(*), sum(d) FROM t GROUP BY s ORDER BY s NULLS LAST LIMIT 7",
    "SELECT id, at FROM t ORDER BY id DESC LIMIT 5",
    "SELECT a.id, b.s FROM t a JOIN t b ON a.id = b.id + 1 WHERE b.id < 200 ORDER BY a.id LIMIT 20",
    "SELECT count(*), sum(list[1]), sum(list[3]), max(s['b']), sum(s['a']) FROM nested",
    "SELECT * FROM nested WHERE id % 5000 = 1 ORDER BY id",
    "SELECT count(*) FROM t WHERE at > TIMESTAMP '2026-01-05 00:00:00'",
];

/// Runs what tables allow: some come and go.
async fn answers(session: &Session) -> Vec<String> {
    let mut answers = Vec::new();
    for query in QUERIES {
        answers.push(answer(session, query).await);
    }
    answers
}

async fn answer(session: &Session, query: &str) -> String {
    let rows = match session.sql(query).await {
        Ok(stream) => stream.collect().await,
        Err(error) => Err(error),
    };
    match rows {
        Ok(rows) => pretty_format_batches(&rows).unwrap().to_string(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_change_have_the_rows_that_they_have_without_a_cache() {
    let without = Database::builder().worker_threads(2).cache_size(0);
    let without = without.build().unwrap().session();
    let with = [
        database().session(),
        // Of 100 MB, a quarter.
        Database::builder()
            .worker_threads(2)
            .memory_limit(100 << 20)
            .build()
            .unwrap()
            .session(),
        // So small that entries come and go.
        Database::builder()
            .worker_threads(3)
            .cache_size(2 << 20)
            .build()
            .unwrap()
            .session(),
    ];
    for change in CHANGES {
        run(&without, change).await;
        let expected = answers(&without).await;
        let all = ["records", "calls", "off", "counters"];
        // The first with all levels; the others find and evict at any.
        for (session, levels) in with.iter().zip([&all[..], &all[..1], &all[2..]]) {
            run(session, change).await;
            for level in levels {
                run(session, &format!("SET profile.level = '{level}'")).await;
                assert_eq!(
                    answers(session).await,
                    expected,
                    "{change} at level {level}"
                );
            }
            // Ids of rows depend on who wrote them: only the same database has the same.
            let ids = "SELECT _row_id, * FROM t ORDER BY _row_id";
            let cached = answer(session, ids).await;
            assert_eq!(answer(session, ids).await, cached, "{change}");
            let size = text(session, "SHOW cache_size").await;
            run(session, "SET cache_size = 0").await;
            assert_eq!(answer(session, ids).await, cached, "{change}");
            run(session, "RESET cache_size").await;
            assert_eq!(text(session, "SHOW cache_size").await, size);
            let instants = "SELECT min(at), max(at) FROM t";
            for zone in ["Asia/Tokyo", "America/New_York"] {
                for one in [session, &without] {
                    run(one, &format!("SET timezone = '{zone}'")).await;
                }
                let shown = answer(session, instants).await;
                assert_eq!(shown, answer(&without, instants).await, "{change}");
            }
            for one in [session, &without] {
                run(one, "RESET timezone").await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn segments_that_are_merged_while_queries_run_lose_no_row() {
    let session = database().session();
    run(&session, "CREATE TABLE t (id BIGINT, s VARCHAR)").await;
    for begin in 0..20 {
        let insert = format!(
            "INSERT INTO t SELECT value, 'number ' || value FROM generate_series({}, {})",
            begin * 100,
            begin * 100 + 99
        );
        run(&session, &insert).await;
        let sum = number(&session, "SELECT sum(id) FROM t").await;
        let rows = (begin + 1) * 100;
        assert_eq!(sum, rows * (rows - 1) / 2);
    }
    // Compaction follows half a second after the last insert.
    for _ in 0..30 {
        let rows = "SELECT count(DISTINCT s) FROM t";
        assert_eq!(number(&session, rows).await, 2000);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lineage_is_the_same_from_the_cache() {
    let session = database().session();
    run(&session, WIDE).await;
    run(&session, "DELETE FROM t WHERE id % 3 = 0").await;
    run(&session, "SET profile.level = 'records'").await;
    let traced = "SELECT row_id FROM backward_trace(last_query_id(), 1) ORDER BY row_id LIMIT 50";
    let query = "SELECT k, count(*), sum(f) FROM t WHERE id < 250000 GROUP BY k ORDER BY k";
    let mut seen = Vec::new();
    for round in 0..3 {
        let rows = text(&session, query).await;
        if round > 0 {
            let (hits, misses) = hits_and_misses(&session).await;
            assert!(hits > 0 && misses == 0, "{hits} {misses}");
        }
        run(&session, query).await;
        seen.push((rows, text(&session, traced).await));
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0], seen[2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_get_the_memory_that_the_cache_holds() {
    let sorted = "SELECT count(*) FROM (SELECT s, f, id FROM t ORDER BY s, f DESC LIMIT 250000)";
    let joined = "SELECT count(*) FROM t a JOIN t b ON a.id = b.id AND a.s = b.s";
    let limited = |cache: usize| {
        let builder = Database::builder()
            .worker_threads(2)
            .memory_limit(100 << 20);
        builder.cache_size(cache).build().unwrap().session()
    };
    // All of the memory may be the cache's, as long as nobody else needs it.
    for session in [limited(0), limited(100 << 20)] {
        run(&session, WIDE).await;
        for _ in 0..2 {
            run(
                &session,
                "SELECT sum(id), max(s), sum(k), sum(n), sum(f) FROM t",
            )
            .await;
            assert_eq!(number(&session, sorted).await, 250_000);
            assert_eq!(number(&session, joined).await, 300_000);
        }
    }
    let session = limited(100 << 20);
    run(&session, WIDE).await;
    run(
        &session,
        "SELECT sum(id), max(s), sum(k), sum(n), sum(f) FROM t",
    )
    .await;
    let held = "SELECT coalesce(sum(bytes), 0) FROM sys.cache";
    assert!(number(&session, held).await > 5 << 20);
    run(&session, "SET memory_limit = '1MB'").await;
    assert!(number(&session, held).await <= 1 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_at_once_and_readers_that_leave_get_all_rows() {
    let database = Database::builder()
        .worker_threads(2)
        .cache_size(6 << 20)
        .build()
        .unwrap();
    run(&database.session(), WIDE).await;
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let session = database.session();
            tokio::spawn(async move {
                for round in 0..6 {
                    if (task + round) % 3 == 0 {
                        // Left in the middle of a row group that is being filled.
                        let mut rows = session.sql("SELECT s, f FROM t").await.unwrap();
                        rows.next().await.unwrap().unwrap();
                        continue;
                    }
                    let sums = "SELECT sum(id) + sum(k) + count(n) + count(s) FROM t";
                    let expected = 300_000 * 300_001 / 2 + 899_998 + 240_000 + 300_000;
                    assert_eq!(number(&session, sums).await, expected);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let held = "SELECT coalesce(sum(bytes), 0) FROM sys.cache";
    assert!(number(&database.session(), held).await <= 6 << 20);
}
