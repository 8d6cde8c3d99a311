//! Statements that write on workers in processes of their own: everywhere or nowhere.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use skewer::cluster::MemberState;
use skewer::{Error, Session};
use skewer_tests::cluster::{Cluster, PATIENCE};
use skewer_tests::contents::query;

async fn run(session: &Session, sql: &str) {
    if let Err(error) = query(session, sql).await {
        panic!("{sql}: {error}");
    }
}

fn files_in(directory: &Path) -> usize {
    let Ok(tables) = std::fs::read_dir(directory.join("segments")) else {
        return 0;
    };
    let tables = tables.map(|table| std::fs::read_dir(table.unwrap().path()).unwrap().count());
    tables.sum()
}

/// How many segment files each worker has.
fn files(cluster: &Cluster, workers: u32) -> BTreeMap<u32, usize> {
    let of = |number| (number, files_in(&cluster.worker_directory(number)));
    (1..=workers).map(of).collect()
}

/// Workers remove files when they hear of it.
async fn files_become(cluster: &Cluster, expected: &BTreeMap<u32, usize>, context: &str) {
    let workers = expected.len() as u32;
    let began = Instant::now();
    while files(cluster, workers) != *expected {
        let found = files(cluster, workers);
        let waited = began.elapsed();
        assert!(waited < PATIENCE, "{context}: {found:?}, not {expected:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const FILL: &str = "CREATE TABLE t PARTITION BY HASH (id) AS
     SELECT value AS id, value % 10 AS g FROM generate_series(0, 59999) ORDER BY value";

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_written_and_changed_where_they_are() {
    let cluster = Cluster::start(3);
    let session = cluster.session();
    run(&session, FILL).await;
    let filled = files(&cluster, 3);
    assert!(filled.values().all(|files| *files > 0), "{filled:?}");
    assert_eq!(files_in(&cluster.master_directory()), 0, "at the master");

    run(&session, "CREATE TABLE copy AS SELECT * FROM t").await;
    let copied = files(&cluster, 3);
    assert!(
        copied.iter().all(|(n, files)| *files > filled[n]),
        "{copied:?}"
    );
    run(&session, "DELETE FROM copy WHERE g = 3").await;
    run(&session, "UPDATE copy SET g = 100 WHERE g = 4").await;
    run(&session, "INSERT INTO copy VALUES (60000, 1), (60001, 2)").await;
    let summary = "SELECT count(*), sum(id), sum(g), count(DISTINCT _row_id) FROM copy";
    let expected = [format!(
        "54002|{}|{}|54002",
        60_000i64 * 59_999 / 2 - 6_000 * 3 - 10 * (5_999 * 6_000 / 2) + 120_001,
        6_000 * (1 + 2 + 100 + 5 + 6 + 7 + 8 + 9) + 3,
    )];
    assert_eq!(query(&session, summary).await.unwrap(), expected);
    let ids = "SELECT count(*) FROM t WHERE _row_id = id";
    assert_eq!(query(&session, ids).await.unwrap(), ["60000"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_killed_while_it_writes_fails_the_statement_and_nothing_has_changed() {
    let mut cluster = Cluster::start(3);
    let session = cluster.session();
    // Files go with what refers to them, also if queries saw it.
    run(&session, "SET profile.snapshot_bytes = 0").await;
    run(&session, FILL).await;
    let before = files(&cluster, 3);
    let summary = "SELECT count(*), sum(id), sum(g) FROM t";
    let contents = query(&session, summary).await.unwrap();
    let statements = [
        "INSERT INTO t SELECT a.id, b.g FROM t a, t b WHERE b.id < 2000",
        "UPDATE t SET g = g + 1",
    ];
    for (n, sql) in statements.iter().cycle().take(4).enumerate() {
        let writing = cluster.session();
        let statement = tokio::spawn({
            let sql = (*sql).to_owned();
            async move { query(&writing, &sql).await }
        });
        tokio::time::sleep(Duration::from_millis(20 + 60 * n as u64)).await;
        cluster.kill(2);
        let outcome = statement.await.unwrap();
        cluster.wait_for(2, &MemberState::Lost(Arc::from("")));
        cluster.restart_worker(2);
        match outcome {
            Err(Error::WorkerLost { name, .. }) => assert_eq!(name, "worker 2 (host-2)"),
            Err(error) => panic!("{sql}: {error:?}"),
            Ok(_) => {
                // It was faster. The next round begins with what it left.
                assert!(sql.starts_with("UPDATE"), "{sql}");
                run(&cluster.session(), "UPDATE t SET g = g - 1").await;
            }
        }
        let session = cluster.session();
        assert_eq!(query(&session, summary).await.unwrap(), contents, "{sql}");
        let referenced = query(&session, "SELECT count(*) FROM t").await.unwrap();
        assert_eq!(referenced, ["60000"]);
    }
    // Nothing of what failed is left anywhere: of a table that is dropped nothing stays.
    let session = cluster.session();
    run(&session, "DROP TABLE t").await;
    let none: BTreeMap<u32, usize> = before.keys().map(|number| (*number, 0)).collect();
    files_become(&cluster, &none, "after all").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_is_cancelled_or_wrong_leaves_no_files_on_workers() {
    let cluster = Cluster::start(2);
    let session = cluster.session();
    run(&session, FILL).await;
    run(&session, "CREATE TABLE u (id BIGINT NOT NULL)").await;
    let before = files(&cluster, 2);
    let error = query(
        &session,
        "INSERT INTO u SELECT CASE WHEN id = 59999 THEN NULL ELSE id END FROM t",
    )
    .await
    .unwrap_err();
    assert!(error.to_string().contains("is NOT NULL"), "{error}");
    files_become(&cluster, &before, "NOT NULL").await;

    let cancelled = tokio::time::timeout(
        Duration::from_millis(600),
        query(&session, "INSERT INTO u SELECT a.id FROM t a, t b"),
    );
    assert!(cancelled.await.is_err());
    files_become(&cluster, &before, "cancelled").await;
    assert_eq!(
        query(&session, "SELECT count(*) FROM u").await.unwrap(),
        ["0"]
    );
}
