//! Quarantines: what sessions see and are told, on several workers, after a restart.

use skewer::{Database, Error, Session};

/// The numbers that a query returns, and what the session says of them.
async fn read(session: &Session, sql: &str) -> (Vec<i64>, Vec<String>) {
    let stream = session.sql(sql).await;
    let stream = stream.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let notices = stream.notices().to_vec();
    let batches = stream.collect().await;
    let batches = batches.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let column = |batch: &skewer::arrow::array::RecordBatch| {
        use skewer::arrow::array::AsArray;
        use skewer::arrow::datatypes::Int64Type;
        let numbers = batch.column(0).as_primitive::<Int64Type>();
        numbers.values().to_vec()
    };
    (batches.iter().flat_map(column).collect(), notices)
}

async fn run(session: &Session, script: &str) {
    let ran = session.execute_script(script).await;
    ran.unwrap_or_else(|error| panic!("{script}: {error}"));
}

const NOTICE: &str = "quarantine large of table t leaves rows out of this query";

#[tokio::test(flavor = "multi_thread")]
async fn a_quarantine_outlives_a_restart_and_its_setting_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Database::open(&path).unwrap();
    let session = db.session();
    run(
        &session,
        "CREATE TABLE t AS SELECT value AS a FROM range(0, 10);
         CREATE QUARANTINE large ON t WHERE (a >= 8) INTO t_large;
         ALTER TABLE t RENAME TO u;
         ALTER TABLE u RENAME TO t;
         SET quarantine = 'on'",
    )
    .await;
    let count = "SELECT count(*) FROM t";
    assert_eq!(read(&session, count).await.0, [8]);
    // Another session has not asked for it.
    assert_eq!(read(&db.session(), count).await, (vec![10], vec![]));
    drop(session);
    db.close().await.unwrap();

    let db = Database::open(&path).unwrap();
    let session = db.session();
    assert_eq!(read(&session, count).await, (vec![10], vec![]));
    assert_eq!(
        read(&session, "SELECT a FROM t_large ORDER BY a").await.0,
        [8, 9]
    );
    run(&session, "SET quarantine = 'on'").await;
    assert_eq!(read(&session, count).await.0, [8]);
    run(&session, "DROP QUARANTINE large").await;
    assert_eq!(read(&session, count).await.0, [10]);
    let view = session.sql("SELECT a FROM t_large").await;
    assert!(matches!(view, Err(Error::UnknownTable { .. })), "{view:?}");
    drop(session);
    db.close().await.unwrap();
    let session = Database::open(&path).unwrap().session();
    assert_eq!(
        read(&session, "SELECT count(*) FROM sys.quarantines")
            .await
            .0,
        [0]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_says_once_per_query_that_rows_are_left_out() {
    let session = Database::in_memory().unwrap().session();
    run(
        &session,
        "CREATE TABLE t AS SELECT value AS a FROM range(0, 10);
         CREATE TABLE u AS SELECT value AS a FROM range(0, 10);
         CREATE VIEW v AS SELECT a FROM t;
         CREATE QUARANTINE large ON t WHERE (a >= 8) INTO t_large;
         CREATE QUARANTINE odd ON u WHERE (a % 2 = 1);
         SET quarantine = 'on'",
    )
    .await;
    let one = vec![NOTICE.to_owned()];
    for sql in [
        "SELECT count(*) FROM t AS x JOIN t AS y USING (a)",
        "SELECT count(*) FROM v",
        "EXPLAIN SELECT a FROM t",
        "DELETE FROM u WHERE a IN (SELECT a FROM t) AND a < 0",
        "CREATE TABLE copied AS SELECT * FROM t",
    ] {
        let stream = session.sql(sql).await.unwrap();
        assert_eq!(stream.notices(), one, "{sql}");
        stream.collect().await.unwrap();
    }
    for sql in [
        "SELECT count(*) FROM t_large",
        "SELECT count(*) FROM information_schema.columns",
        "DESCRIBE v",
        "UPDATE t SET a = a WHERE a = 9",
        "CREATE VIEW w AS SELECT a FROM t",
        "SELECT count(*) FROM copied",
    ] {
        let stream = session.sql(sql).await.unwrap();
        assert_eq!(stream.notices(), [""; 0], "{sql}");
        stream.collect().await.unwrap();
    }
    let stream = session.sql("SELECT 1 FROM t, u").await.unwrap();
    let other = "quarantine odd of table u leaves rows out of this query";
    assert_eq!(stream.notices(), [NOTICE, other]);
    stream.collect().await.unwrap();
    run(&session, "SET quarantine = 'off'").await;
    assert_eq!(
        read(&session, "SELECT count(*) FROM t").await,
        (vec![10], vec![])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_of_one_session_are_no_predicate_of_a_quarantine() {
    use skewer::arrow::datatypes::DataType;
    use skewer::datafusion::common::ScalarValue;
    use skewer::datafusion::logical_expr::Volatility;
    let session = Database::in_memory().unwrap().session();
    session.register_row_udf(
        "is_large",
        vec![DataType::Int64],
        DataType::Boolean,
        Volatility::Immutable,
        |_| Ok(ScalarValue::Boolean(Some(true))),
    );
    run(
        &session,
        "CREATE TABLE t AS SELECT value AS a FROM range(0, 10)",
    )
    .await;
    let refused = session
        .sql("CREATE QUARANTINE ON t WHERE (is_large(a))")
        .await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("there is no function is_large"), "{error}");
    assert!(error.contains("LINE 1") || error.contains('^'), "{error}");
    assert_eq!(read(&session, "SELECT count(*) FROM t").await.0, [10]);
}

/// Each worker leaves out rows of its own segments.
#[tokio::test(flavor = "multi_thread")]
async fn rows_are_left_out_on_three_workers() {
    let builder = Database::builder().workers(3).worker_threads(2);
    let session = builder.build().unwrap().session();
    run(&session, "CREATE TABLE t (a BIGINT, g BIGINT)").await;
    for part in 0..6 {
        let from = part * 100;
        let sql = format!("INSERT INTO t SELECT value, value % 3 FROM range({from}, {from} + 100)");
        run(&session, &sql).await;
    }
    run(
        &session,
        "CREATE QUARANTINE large ON t WHERE (a % 100 >= 90 OR _row_id = 5) INTO t_large;
         SET quarantine = 'on'",
    )
    .await;
    let sums = "SELECT sum(a) AS s FROM t GROUP BY g ORDER BY g";
    let (found, notices) = read(&session, sums).await;
    assert_eq!(notices, [NOTICE]);
    let workers = "SELECT count(DISTINCT worker_id) FROM sys.operator_stats
                   WHERE query_id = last_query_id()";
    assert!(read(&session, workers).await.0[0] >= 3);
    let written = "SELECT sum(a) AS s FROM t WHERE NOT (a % 100 >= 90 OR _row_id = 5)
                   GROUP BY g ORDER BY g";
    run(&session, "SET quarantine = 'off'").await;
    let (expected, notices) = read(&session, written).await;
    assert_eq!((found, notices), (expected, vec![]));
    assert_eq!(read(&session, "SELECT count(*) FROM t_large").await.0, [61]);
    assert_eq!(read(&session, "SELECT count(*) FROM t").await.0, [600]);
}
