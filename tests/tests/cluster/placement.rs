//! Where rows are: joins of what is together, and rows that move to other workers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use skewer::cluster::MemberState;
use skewer::{Database, Error, Session};
use skewer_tests::cluster::{Cluster, PATIENCE};
use skewer_tests::contents::{contents, query};

async fn run(session: &Session, sql: &str) {
    if let Err(error) = query(session, sql).await {
        panic!("{sql}: {error}");
    }
}

/// Compares all tables, and says where they differ first.
async fn same_contents(session: &Session, oracle: &Session, context: &str) {
    let expected = contents(oracle).await.unwrap();
    let found = contents(session).await.unwrap();
    assert!(expected.keys().eq(found.keys()), "{context}");
    for (table, rows) in &expected {
        let of_table = &found[table];
        let differing = rows.iter().zip(of_table).find(|(a, b)| a != b);
        assert_eq!(differing, None, "{context}: {table}");
        assert_eq!(rows.len(), of_table.len(), "{context}: {table}");
    }
}

async fn exchanges(session: &Session, sql: &str) -> usize {
    let plan = query(session, &format!("EXPLAIN {sql}")).await.unwrap();
    let plan = plan.join("\n");
    assert!(plan.contains("on workers 1 to "), "{plan}");
    plan.matches("NetworkShuffleExec").count() + plan.matches("NetworkBroadcastExec").count()
}

/// Rows of a table by the worker that has them.
async fn rows_by_worker(session: &Session, table: &str) -> BTreeMap<i64, u64> {
    let mut rows = BTreeMap::new();
    let level = "SET profile.level = 'counters'";
    run(session, level).await;
    run(
        session,
        // Every row is read: a maximum would skip those that cannot be it any more.
        &format!("SELECT sum(_row_id) FROM {table} WHERE _row_id >= 0"),
    )
    .await;
    let read = "SELECT s.worker_id, sum(s.rows_out) FROM sys.operator_stats s
         JOIN sys.operators o ON s.query_id = o.query_id AND s.operator_id = o.operator_id
         WHERE s.query_id = last_query_id() AND o.name = 'DataSourceExec'
         GROUP BY 1 HAVING sum(s.rows_out) > 0";
    for line in query(session, read).await.unwrap() {
        let (worker, of_worker) = line.split_once('|').unwrap();
        rows.insert(worker.parse().unwrap(), of_worker.parse().unwrap());
    }
    run(session, "RESET profile.level").await;
    rows
}

fn files_in(directory: &Path) -> usize {
    let Ok(tables) = std::fs::read_dir(directory.join("segments")) else {
        return 0;
    };
    let tables = tables.map(|table| std::fs::read_dir(table.unwrap().path()).unwrap().count());
    tables.sum()
}

/// Waits for something that workers do when they hear of it.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const TABLES: &[&str] = &[
    "CREATE TABLE a (k BIGINT, v BIGINT) PARTITION BY HASH (k)",
    "CREATE TABLE b (w VARCHAR, k INT) PARTITION BY HASH (k)",
    "CREATE TABLE c (k BIGINT, v BIGINT)",
    "INSERT INTO a SELECT value % 3000, value FROM generate_series(1, 20000) ORDER BY value",
    "INSERT INTO b SELECT 'w' || value, CAST(value % 4000 AS INT) FROM generate_series(1, 20000) ORDER BY 1",
    "INSERT INTO c SELECT value, -value FROM generate_series(1, 150000) ORDER BY value",
];

const JOIN: &str = "SELECT count(*), sum(a.v), count(b.w) FROM a FULL JOIN b ON a.k = b.k";
const GROUPS: &str = "SELECT count(*), sum(n), max(k) FROM
     (SELECT a.k, count(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY a.k)";

async fn filled(session: &Session) {
    // Files go as soon as their rows have moved, also those that queries saw.
    run(session, "SET profile.snapshot_bytes = 0").await;
    for sql in TABLES {
        run(session, sql).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rebalance_gives_a_new_worker_its_share_and_keeps_together_what_is_joined() {
    let mut cluster = Cluster::start(3);
    let session = cluster.session();
    // Older than its workers.
    let oracle = Database::in_memory().unwrap().session();
    filled(&oracle).await;
    filled(&session).await;
    assert_eq!(exchanges(&session, JOIN).await, 0);
    let answers = |session: &Session| {
        let session = session.clone();
        async move {
            let join = query(&session, JOIN).await.unwrap();
            (join, query(&session, GROUPS).await.unwrap())
        }
    };
    let right = answers(&oracle).await;
    assert_eq!(answers(&session).await, right);

    assert_eq!(cluster.add_worker(), 4);
    // What is together stays so, also when rows are added.
    for sql in [
        "INSERT INTO a SELECT value, -1 FROM generate_series(2900, 3300) ORDER BY value",
        "UPDATE b SET k = k + 100 WHERE k % 7 = 0",
        "DELETE FROM a WHERE v % 13 = 5",
    ] {
        run(&session, sql).await;
        run(&oracle, sql).await;
    }
    assert_eq!(exchanges(&session, JOIN).await, 0);
    let right = answers(&oracle).await;
    assert_eq!(answers(&session).await, right);
    assert!(!rows_by_worker(&session, "a").await.contains_key(&4));

    // Who reads while rows move has those of before or after it.
    let reading = tokio::spawn({
        let session = cluster.session();
        let right = right.clone();
        async move {
            for _ in 0..4 {
                assert_eq!(query(&session, JOIN).await.unwrap(), right.0);
            }
        }
    });
    let moved = query(&session, "REBALANCE").await.unwrap();
    reading.await.unwrap();
    for table in ["a", "b", "c"] {
        let line = format!("main.{table}|4|0|");
        assert!(moved.iter().any(|l| l.starts_with(&line)), "{moved:?}");
        let rows = rows_by_worker(&session, table).await;
        let all: u64 = rows.values().sum();
        let share = all / 4;
        for worker in 1..=4 {
            let has = rows.get(&worker).copied().unwrap_or(0);
            assert!(has.abs_diff(share) <= share / 5 + 8192, "{table}: {rows:?}");
        }
        assert!(rows[&4] > share / 2, "{table}: {rows:?}");
    }
    assert_eq!(exchanges(&session, JOIN).await, 0);
    assert_eq!(answers(&session).await, right);
    same_contents(&session, &oracle, "moved").await;
    // There is nothing to do any more.
    assert!(query(&session, "REBALANCE").await.unwrap().is_empty());
    // Of what has moved nothing is left where it was.
    run(&session, "DROP TABLE a").await;
    run(&session, "DROP TABLE b").await;
    run(&session, "DROP TABLE c").await;
    let directories: Vec<_> = (1..=4).map(|n| cluster.worker_directory(n)).collect();
    until("files are left", || {
        directories.iter().all(|directory| files_in(directory) == 0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rebalance_moves_what_the_master_has_and_says_what_it_cannot_move() {
    let mut cluster = Cluster::start(0);
    let session = cluster.session();
    let oracle = Database::in_memory().unwrap().session();
    let error = query(&session, "REBALANCE").await.unwrap_err();
    assert!(error.to_string().contains("without workers"), "{error}");
    filled(&session).await;
    filled(&oracle).await;
    assert!(files_in(&cluster.master_directory()) > 0);
    cluster.add_worker();
    cluster.add_worker();
    run(&session, "REBALANCE TABLE a, c").await;
    let rows = rows_by_worker(&session, "c").await;
    assert_eq!(rows.keys().copied().collect::<Vec<_>>(), [1, 2], "{rows:?}");
    assert_eq!(rows[&1], rows[&2]);
    let moved = query(&session, "REBALANCE").await.unwrap();
    assert!(moved[0].starts_with("main.b|0|20000|0"), "{moved:?}");
    assert_eq!(exchanges(&session, JOIN).await, 0);
    same_contents(&session, &oracle, "from the master").await;
    assert_eq!(files_in(&cluster.master_directory()), 0);

    cluster.add_worker();
    cluster.kill(2);
    cluster.wait_for(2, &MemberState::Lost(Arc::from("")));
    let told = query(&session, "REBALANCE").await.unwrap();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].contains("not moved: worker 2"), "{told:?}");
    cluster.restart_worker(2);
    run(&session, "REBALANCE").await;
    same_contents(&session, &oracle, "after the worker was back").await;
    assert!(rows_by_worker(&session, "a").await[&3] > 5000);
    let error = query(&session, "REBALANCE TABLE nobody").await.unwrap_err();
    assert!(matches!(error, Error::UnknownTable { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_killed_while_rows_move_loses_none_of_them() {
    let mut cluster = Cluster::start(2);
    let session = cluster.session();
    let oracle = Database::in_memory().unwrap().session();
    filled(&session).await;
    filled(&oracle).await;
    let mut interrupted = 0;
    for round in 0..4_u32 {
        let new = cluster.add_worker();
        let moving = tokio::spawn({
            let session = cluster.session();
            async move { query(&session, "REBALANCE").await }
        });
        // The first rows have arrived, or some more; there are three tables.
        let arrivals = cluster.worker_directory(new);
        until("nothing moves", || {
            files_in(&arrivals) > 0 || moving.is_finished()
        })
        .await;
        tokio::time::sleep(Duration::from_millis(u64::from(round / 2) * 100)).await;
        // One that gives, or the one that gets.
        let victim = if round % 2 == 0 { new } else { 1 };
        cluster.kill(victim);
        let outcome = moving.await.unwrap();
        cluster.wait_for(victim, &MemberState::Lost(Arc::from("")));
        cluster.restart_worker(victim);
        interrupted += u32::from(match outcome {
            Ok(told) => told.iter().any(|line| line.contains("not moved")),
            Err(Error::WorkerLost { .. }) => true,
            Err(error) => panic!("round {round}: {error:?}"),
        });
        let session = cluster.session();
        let context = format!("round {round}");
        same_contents(&session, &oracle, &context).await;
        run(&session, "REBALANCE").await;
        assert_eq!(exchanges(&session, JOIN).await, 0, "round {round}");
        same_contents(&session, &oracle, &context).await;
    }
    assert!(interrupted > 0, "every move was over before the kill");
    let session = cluster.session();
    for table in ["a", "b", "c"] {
        run(&session, &format!("DROP TABLE {table}")).await;
    }
    let directories: Vec<_> = (1..=6).map(|n| cluster.worker_directory(n)).collect();
    until("files are left", || {
        directories.iter().all(|directory| files_in(directory) == 0)
    })
    .await;
}

/// What gives an answer wherever rows are.
const QUERIES: &[&str] = &[
    "SELECT count(*), sum(a.v), count(b.w) FROM a FULL JOIN b ON a.k = b.k",
    "SELECT a.k, count(*), min(b.w) FROM a JOIN b ON a.k = b.k GROUP BY a.k ORDER BY a.k",
    "SELECT count(*) FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)",
    "SELECT k, count(*), sum(v) FROM a GROUP BY k ORDER BY k",
    "SELECT count(*), sum(x.v) FROM a x JOIN a y ON x.k = y.k AND x.v < y.v",
    "SELECT count(*), count(c.v) FROM a LEFT JOIN c ON a.k = c.k",
];

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_right_wherever_rows_have_come_to_be() {
    let seed = std::env::var("SKEWER_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    // The first rows may be older than the workers.
    let mut cluster = Cluster::start(random.random_range(0..3));
    let oracle = Database::in_memory().unwrap().session();
    let mut told = Vec::new();
    let mut both = async |cluster: &Cluster, sql: &str| {
        told.push(sql.to_owned());
        run(&oracle, sql).await;
        run(&cluster.session(), sql).await;
    };
    for sql in &TABLES[..3] {
        both(&cluster, sql).await;
    }
    let (mut together, mut apart) = (0, 0);
    for step in 0..40 {
        let (n, m) = (random.random_range(1..400), random.random_range(2..9));
        let table = ["a", "b", "c"][random.random_range(0..3)];
        match random.random_range(0..12) {
            0..=2 if table == "b" => {
                let insert = "INSERT INTO b SELECT 'w' || value, CAST(value % 300 AS INT)";
                both(
                    &cluster,
                    &format!("{insert} FROM generate_series({n}, {n} * {m}) ORDER BY 1"),
                )
                .await;
            }
            0..=2 => {
                let insert = format!("INSERT INTO {table} SELECT value % 350, value");
                both(
                    &cluster,
                    &format!("{insert} FROM generate_series({n}, {n} * {m}) ORDER BY value"),
                )
                .await;
            }
            3 => both(&cluster, &format!("DELETE FROM {table} WHERE k % {m} = 1")).await,
            4 => {
                both(
                    &cluster,
                    &format!("UPDATE a SET v = v + 1 WHERE k % {m} = 0"),
                )
                .await
            }
            5 => {
                both(
                    &cluster,
                    &format!("UPDATE {table} SET k = k + {m} WHERE k % {m} = 0"),
                )
                .await
            }
            6 => {
                both(
                    &cluster,
                    &format!("UPDATE a SET k = NULL, v = {n} WHERE v % 50 = {m}"),
                )
                .await
            }
            7 if cluster.workers() < 5 => {
                cluster.add_worker();
            }
            8 if cluster.workers() > 0 => {
                let victim = random.random_range(1..=cluster.workers());
                cluster.kill(victim);
                cluster.wait_for(victim, &MemberState::Lost(Arc::from("")));
                // What others write meanwhile goes elsewhere.
                let insert =
                    "INSERT INTO a SELECT value, -value FROM generate_series(1, 50) ORDER BY value";
                both(&cluster, insert).await;
                cluster.restart_worker(victim);
            }
            9 | 10 if cluster.workers() > 0 => {
                run(&cluster.session(), "REBALANCE").await;
            }
            _ => {
                both(
                    &cluster,
                    "INSERT INTO a VALUES (7, 1), (NULL, 2), (8, NULL)",
                )
                .await
            }
        }
        let session = cluster.session();
        let sql = QUERIES[step % QUERIES.len()];
        for sql in [sql, QUERIES[0]] {
            let expected = query(&oracle, sql).await.unwrap();
            let found = query(&session, sql).await.unwrap();
            assert_eq!(found, expected, "seed {seed}, step {step}: {sql}");
        }
        let plan = query(&session, &format!("EXPLAIN {}", QUERIES[0]))
            .await
            .unwrap();
        let rows = "SELECT (SELECT count(*) FROM a) > 0 AND (SELECT count(*) FROM b) > 0";
        let worth_a_shuffle = query(&oracle, rows).await.unwrap() == ["true"];
        match plan.join("\n").contains("NetworkShuffleExec") {
            true => apart += 1,
            false if cluster.workers() > 1 && worth_a_shuffle => together += 1,
            false => {}
        }
    }
    same_contents(&cluster.session(), &oracle, &format!("seed {seed}")).await;
    assert!(together > 0 && apart > 0, "{together} and {apart}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_small_inserts_do_not_leave_many_files() {
    let cluster = Cluster::start(2);
    let session = cluster.session();
    run(
        &session,
        "CREATE TABLE a (k BIGINT, v BIGINT) PARTITION BY HASH (k)",
    )
    .await;
    run(&session, "CREATE TABLE c (k BIGINT, v BIGINT)").await;
    for n in 0..60 {
        run(
            &session,
            &format!("INSERT INTO a VALUES ({n}, {n}), ({n} + 1000, 0)"),
        )
        .await;
        run(&session, &format!("INSERT INTO c VALUES ({n}, {n})")).await;
    }
    let directories: Vec<_> = (1..=2).map(|n| cluster.worker_directory(n)).collect();
    until("segments are not merged", || {
        let files: usize = directories
            .iter()
            .map(|directory| files_in(directory))
            .sum();
        files < 40
    })
    .await;
    let expected: Vec<String> = (0..60).map(|n| format!("{n}|{n}|{n}")).collect();
    let ids = "SELECT _row_id, k, v FROM c ORDER BY _row_id";
    assert_eq!(query(&session, ids).await.unwrap(), expected);
    let ids = "SELECT count(*), count(DISTINCT _row_id), sum(v) FROM a";
    assert_eq!(query(&session, ids).await.unwrap(), ["120|120|1770"]);
    let join = "SELECT count(*) FROM a x JOIN a y ON x.k = y.k";
    assert_eq!(exchanges(&session, join).await, 0);
    assert_eq!(query(&session, join).await.unwrap(), ["120"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn millions_of_rows_are_deleted_and_updated_at_once() {
    let cluster = Cluster::start(2);
    let session = cluster.session();
    run(
        &session,
        "CREATE TABLE t AS SELECT value AS id, 'text ' || (value % 1000) AS s
         FROM generate_series(0, 1999999) ORDER BY value",
    )
    .await;
    // No two of them are neighbours.
    run(&session, "DELETE FROM t WHERE id % 2 = 1").await;
    let left = "SELECT count(*), sum(id), count(DISTINCT _row_id) FROM t";
    assert_eq!(
        query(&session, left).await.unwrap(),
        ["1000000|999999000000|1000000"]
    );
    // More bytes than a plan may have that is sent.
    let update = "UPDATE t SET s = repeat('x', 300) || id WHERE id % 4 = 0";
    run(&session, update).await;
    let changed = "SELECT count(*) FROM t WHERE s = repeat('x', 300) || id";
    assert_eq!(query(&session, changed).await.unwrap(), ["500000"]);
    let unchanged = "SELECT count(*) FROM t WHERE s = 'text ' || (id % 1000)";
    assert_eq!(query(&session, unchanged).await.unwrap(), ["500000"]);
    let ids = "SELECT count(*) FROM t WHERE _row_id <> id";
    assert_eq!(query(&session, ids).await.unwrap(), ["0"]);
}
