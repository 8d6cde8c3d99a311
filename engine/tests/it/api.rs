//! What programs use beside SQL text: registered tables, typed rows, the blocking facade, options.

use std::sync::Arc;

use skewer::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use skewer::{ClusterOptions, Database, Session, blocking, params};

fn numbers(values: &[i64]) -> RecordBatch {
    let values = Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
    RecordBatch::try_from_iter([("n", values)]).unwrap()
}

async fn error(session: &Session, sql: &str) -> String {
    match session.sql(sql).await {
        Ok(stream) => stream.collect().await.unwrap_err().to_string(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn a_registered_batch_is_a_table_of_its_session() {
    let database = Database::in_memory().unwrap();
    let (session, other) = (database.session(), database.session());
    session
        .register_batch("numbers", numbers(&[1, 2, 3]))
        .unwrap();
    let sum = "SELECT sum(n) FROM numbers";
    let rows: Vec<(i64,)> = session.query_as(sum).await.unwrap();
    assert_eq!(rows, [(6,)]);
    let sql = "SELECT a.n FROM numbers AS a JOIN main.numbers AS b USING (n) ORDER BY 1 DESC";
    let rows: Vec<(i64,)> = session.query_as(sql).await.unwrap();
    assert_eq!(rows, [(3,), (2,), (1,)]);
    // It is listed, and its queries are recorded.
    let listed = "SELECT count(*) FROM information_schema.tables WHERE table_name = 'numbers'";
    assert_eq!(session.query_as::<(i64,)>(listed).await.unwrap(), [(1,)]);
    let profile = session.profile(sum).await.unwrap();
    assert_eq!(profile.summary.rows_returned, Some(1));
    // Another session does not have it.
    assert!(error(&other, sum).await.contains("numbers"));
    // The last one registered is the one that is read.
    session.register_batch("numbers", numbers(&[10])).unwrap();
    assert_eq!(session.query_as::<(i64,)>(sum).await.unwrap(), [(10,)]);
    assert!(session.deregister_table("numbers"));
    assert!(!session.deregister_table("numbers"));
    assert!(error(&session, sum).await.contains("numbers"));
}

#[tokio::test]
async fn a_registered_table_cannot_be_written_and_hides_no_stored_one() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    session.sql("CREATE TABLE t (n BIGINT)").await.unwrap();
    session.sql("CREATE VIEW v AS SELECT 1 AS n").await.unwrap();
    for name in ["t", "v"] {
        let refused = session.register_batch(name, numbers(&[1])).unwrap_err();
        assert!(refused.to_string().contains("exists already"), "{refused}");
    }
    session.register_batch("r", numbers(&[1])).unwrap();
    let insert = error(&session, "INSERT INTO r VALUES (2)").await;
    assert!(
        insert.contains("r cannot be changed: the program registered it"),
        "{insert}"
    );
    let view = error(&session, "CREATE VIEW w AS SELECT n FROM r").await;
    assert!(view.contains("view w cannot read r"), "{view}");
    session
        .sql("CREATE TABLE kept AS SELECT n FROM r")
        .await
        .unwrap();
    // A stored table of the same name comes first.
    session.sql("CREATE TABLE r (n BIGINT)").await.unwrap();
    let rows: Vec<(i64,)> = session.query_as("SELECT count(*) FROM r").await.unwrap();
    assert_eq!(rows, [(0,)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_of_the_process_read_a_registered_table() {
    let database = Database::builder().workers(3).build().unwrap();
    let session = database.session();
    let create = "CREATE TABLE t AS SELECT value AS n FROM range(0, 1000)";
    session.sql(create).await.unwrap();
    session
        .register_batch("few", numbers(&[7, 8, 2000]))
        .unwrap();
    let sql = "SELECT t.n FROM t JOIN few ON t.n = few.n ORDER BY 1";
    let rows: Vec<(i64,)> = session.query_as(sql).await.unwrap();
    assert_eq!(rows, [(7,), (8,)]);
}

#[tokio::test]
async fn rows_become_values_and_values_become_parameters() {
    let session = Database::in_memory().unwrap().session();
    let sql = "SELECT $1 + 1, $2 || 'x', $3 IS NULL, DATE '2026-01-31', 1.50, CAST('a' AS BYTEA), \
               CAST(NULL AS BIGINT)";
    type Row = (i64, String, bool, String, f64, Vec<u8>, Option<i64>);
    let values = params![41, "te", None::<i64>];
    let rows: Vec<Row> = session.query_as_with(sql, &values).await.unwrap();
    let expected = (
        42,
        "tex".to_owned(),
        true,
        "2026-01-31".to_owned(),
        1.5,
        b"a".to_vec(),
        None,
    );
    assert_eq!(rows, [expected]);
    let wrong = session.query_as::<(i64,)>("SELECT 'seven' AS seven").await;
    let wrong = wrong.unwrap_err().to_string();
    assert!(
        wrong.contains("column seven of row 1 has the value seven"),
        "{wrong}"
    );
}

#[test]
fn a_program_without_async_code_has_the_same_database() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let database = blocking::Database::open(&path).unwrap();
    let session = database.session();
    session
        .execute("CREATE TABLE t (a BIGINT, b VARCHAR)")
        .unwrap();
    let insert = "INSERT INTO t VALUES ($1, $2), (2, 'two')";
    assert_eq!(session.execute_with(insert, &params![1, "one"]).unwrap(), 2);
    assert_eq!(session.execute("DELETE FROM t WHERE a = 2").unwrap(), 1);
    assert_eq!(session.execute("SET timezone = 'UTC'").unwrap(), 0);
    let names = Arc::new(StringArray::from(vec!["one"])) as ArrayRef;
    let names = RecordBatch::try_from_iter([("b", names)]).unwrap();
    session.register_batch("names", names).unwrap();
    let sql = "SELECT a, b FROM t JOIN names USING (b)";
    let rows: Vec<(i64, String)> = session.query_as(sql).unwrap();
    assert_eq!(rows, [(1, "one".to_owned())]);
    let stream = session.stream("SELECT * FROM range(0, 100000)").unwrap();
    assert_eq!(stream.schema().field(0).name(), "value");
    let rows: usize = stream.map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(rows, 100_000);
    // Dropped halfway, a stream leaves the session usable.
    let mut stream = session.stream("SELECT * FROM range(0, 100000000)").unwrap();
    stream.next().unwrap().unwrap();
    drop(stream);
    let profile = session.profile("SELECT count(*) FROM t").unwrap();
    assert_eq!(profile.summary.status, "finished");
    assert!(session.query("SELECT nothing").is_err());
    drop(session);
    database.close().unwrap();
    let again = blocking::Database::open(&path).unwrap().session();
    assert_eq!(again.query_as::<(i64,)>("SELECT a FROM t").unwrap(), [(1,)]);
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let cluster = || ClusterOptions::new(directory.path());
    for (builder, reason) in [
        (
            Database::builder()
                .path(directory.path())
                .workers(2)
                .cluster(cluster()),
            "workers and cluster",
        ),
        (
            Database::builder().cluster(cluster()),
            "cluster without path",
        ),
        (Database::builder().workers(0), "workers(0)"),
    ] {
        let error = builder.build().unwrap_err().to_string();
        assert!(error.contains("contradict each other"), "{error}");
        assert!(error.contains(reason), "{error}");
    }
}
