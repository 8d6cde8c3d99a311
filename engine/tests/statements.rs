//! Statements through the public API.

use datafusion::arrow::util::pretty::pretty_format_batches;
use skewer::{Database, Error, Session};

async fn rows(session: &Session, sql: &str) -> String {
    let batches = match session.sql(sql).await {
        Ok(stream) => stream.collect().await,
        Err(error) => panic!("{sql}: {error}"),
    };
    let batches = batches.unwrap_or_else(|e| panic!("{sql}: {e}"));
    pretty_format_batches(&batches).unwrap().to_string()
}

#[tokio::test]
async fn a_table_lives_and_dies() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db")).unwrap();
    let s = db.session();
    for sql in [
        "CREATE TABLE t (a INT NOT NULL, b VARCHAR)",
        "INSERT INTO t VALUES (1, 'x'), (2, NULL)",
        "INSERT INTO t (a) SELECT value FROM generate_series(3, 5)",
        "UPDATE t SET b = upper(b) || 'y', a = a * 10 WHERE a IN (SELECT 1)",
        "DELETE FROM t WHERE _row_id = 1",
        "SELECT *, _row_id FROM t ORDER BY a",
        "SELECT count(*) FROM t",
        "ALTER TABLE t ADD COLUMN c DOUBLE",
        "SELECT * FROM t ORDER BY a",
        "CREATE VIEW v (x) AS SELECT a + 1 FROM t",
        "SELECT sum(x) FROM v",
        "SHOW TABLES",
        "SHOW CREATE TABLE t",
        "DESCRIBE t",
        "SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'main'",
        "CREATE TABLE u AS SELECT * FROM t",
        "CREATE TABLE n (a INT NOT NULL)",
        "DROP TABLE t",
        "SELECT * FROM u",
        "PREPARE p AS SELECT $1 + 1 AS n",
        "EXECUTE p(41)",
        "SET profile.level = 'calls'",
        "SHOW profile.level",
        "SELECT query_id, sql, status, error, profile_level, rows_returned FROM sys.queries ORDER BY query_id",
        "EXPLAIN SELECT * FROM u WHERE a > 1",
        "EXPLAIN ANALYZE SELECT * FROM u WHERE a > 1",
        "EXPLAIN PROFILE SELECT b, count(*) FROM u GROUP BY b",
    ] {
        println_for_the_curious(sql, &rows(&s, sql).await);
    }
    for sql in [
        "SELECT * FROM v",
        "SELECT * FROM tt",
        "SELECT aa FROM u",
        "INSERT INTO n VALUES (NULL)",
        "SELECT 'x' + 1",
        "SELECT CAST('x' AS INT)",
        "SELECT 1 / 0",
        "SET profile.levle = 'off'",
        "SET profile.level = 'some'",
        "SELEC",
        "INSERT INTO sys.queries VALUES (1)",
    ] {
        let error: Error = match s.sql(sql).await {
            Err(error) => error,
            Ok(stream) => stream.collect().await.unwrap_err(),
        };
        println_for_the_curious(sql, &error.to_string());
    }
    drop(s);
    db.close().unwrap();
    let db = Database::open(dir.path().join("db")).unwrap();
    let s = db.session();
    println_for_the_curious("after reopening", &rows(&s, "SELECT * FROM u").await);
    println_for_the_curious(
        "queries",
        &rows(
            &s,
            "SELECT query_id, sql FROM sys.queries ORDER BY query_id",
        )
        .await,
    );
}

/// `cargo test -- --nocapture` shows what the statements gave.
#[expect(clippy::print_stdout, reason = "shown only on request")]
fn println_for_the_curious(sql: &str, result: &str) {
    println!("> {sql}\n{result}\n");
}
