//! Sessions that can only look.

use std::time::Duration;

use skewer::{Database, Error, ReadOnly, Session};
use tokio::time::timeout;

/// A statement that is stopped ends far sooner.
const BOUND: Duration = Duration::from_secs(60);

async fn run(session: &Session, sql: &str) -> Result<usize, Error> {
    let ended = timeout(BOUND, async { session.sql(sql).await?.collect().await });
    let batches = ended
        .await
        .unwrap_or_else(|_| panic!("{sql} does not end"))?;
    Ok(batches.iter().map(|batch| batch.num_rows()).sum())
}

#[tokio::test]
async fn a_read_only_session_looks_changes_nothing_and_leaves_no_record() {
    let database = Database::in_memory().unwrap();
    let writer = database.session();
    run(&writer, "CREATE TABLE t AS SELECT 1 AS a")
        .await
        .unwrap();
    let session = database.read_only_session(ReadOnly::default());
    let count = "SELECT count(*) FROM sys.queries";
    let before: Vec<(i64,)> = writer.query_as(count).await.unwrap();
    for sql in [
        "SELECT a FROM t",
        "EXPLAIN ANALYZE SELECT a FROM t",
        "SHOW TABLES",
    ] {
        assert!(run(&session, sql).await.unwrap() > 0, "{sql}");
    }
    for sql in [
        "INSERT INTO t VALUES (2)",
        "DROP TABLE t",
        "COPY t TO '/tmp/never.csv'",
        "EXPLAIN PROFILE SELECT a FROM t",
        "SET profile.level = 'records'",
    ] {
        let refused = run(&session, sql).await;
        assert!(
            matches!(refused, Err(Error::ReadOnlySession)),
            "{sql}: {refused:?}"
        );
    }
    let refused = session.profile("SELECT a FROM t").await;
    assert!(matches!(refused, Err(Error::ReadOnlySession)));
    assert_eq!(writer.query_as::<(i64,)>(count).await.unwrap(), before);
    assert_eq!(run(&session, "SELECT a FROM t").await.unwrap(), 1);
}

#[tokio::test]
async fn a_read_only_statement_ends_when_its_time_is_over_and_the_session_goes_on() {
    let limits = ReadOnly {
        timeout: Duration::from_millis(300),
        ..ReadOnly::default()
    };
    let session = Database::in_memory().unwrap().read_only_session(limits);
    let slow = "SELECT count(*) FROM generate_series(1, 1000000) AS a, generate_series(1, 1000000) AS b \
                WHERE a.value % 7 = b.value % 11";
    let ended = run(&session, slow).await;
    assert!(matches!(ended, Err(Error::TimedOut(_))), "{ended:?}");
    assert_eq!(run(&session, "SELECT 1").await.unwrap(), 1);
}

#[tokio::test]
async fn a_read_only_session_has_memory_of_its_own() {
    let database = Database::in_memory().unwrap();
    let limits = ReadOnly {
        memory: 256 << 10,
        timeout: BOUND,
    };
    let sql = "SELECT count(DISTINCT value) FROM generate_series(1, 500000)";
    let refused = run(&database.read_only_session(limits), sql).await;
    let Err(Error::OutOfMemory(text)) = refused else {
        panic!("{refused:?}");
    };
    assert!(text.contains("a read-only session has no more"), "{text}");
    assert_eq!(run(&database.session(), sql).await.unwrap(), 1);
}
