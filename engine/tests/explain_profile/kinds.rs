//! What kinds operators have, in one process and on several workers.

use std::collections::BTreeSet;

use skewer::{Database, Session};

use super::{column, lines};

async fn run(session: &Session, sql: &str) {
    let stream = session.sql(sql).await;
    let stream = stream.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let rows = stream.collect().await;
    rows.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// A database with a table of several segments, so that every worker owns some, and a small one.
async fn filled(workers: usize) -> Session {
    let database = Database::builder().workers(workers).worker_threads(2);
    let session = database.build().unwrap().session();
    run(
        &session,
        "CREATE TABLE t AS SELECT value AS a, value % 7 AS g, 'row ' || value AS s
         FROM generate_series(1, 1000)",
    )
    .await;
    for n in 1..=4 {
        let sql = format!(
            "INSERT INTO t SELECT value, value % 7, 'row ' || value
             FROM generate_series({n}001, {n}500)"
        );
        run(&session, &sql).await;
    }
    run(&session, "CREATE TABLE names (g BIGINT, name VARCHAR)").await;
    run(
        &session,
        "INSERT INTO names VALUES (0, 'zero'), (1, 'one'), (2, 'two'), (9, 'nine')",
    )
    .await;
    session
}

const OPERATORS: &str =
    "SELECT DISTINCT kind || ': ' || name || CASE WHEN is_internal THEN ', internal' ELSE '' END
       || coalesce(', ' || routing, '') || coalesce(', ' || captured_records, '')
     FROM sys.operators WHERE query_id = last_query_id() ORDER BY 1";

#[tokio::test(flavor = "multi_thread")]
async fn look() {
    for workers in [1, 3] {
        let session = filled(workers).await;
        run(&session, "SET profile.level = 'records'").await;
        for sql in [
            "SELECT g, count(*) FROM t WHERE a > 10 GROUP BY g ORDER BY g",
            "SELECT count(*) FROM t JOIN names n ON t.g = n.g",
            "SELECT count(*) FROM t a, names n WHERE a.g < n.g",
            "SELECT sum(r) FROM (SELECT sum(a) OVER (ORDER BY a ROWS 3 PRECEDING) AS r FROM t)",
            "SELECT count(*) FROM (SELECT a FROM t ORDER BY a LIMIT 5 OFFSET 2)",
            "SELECT sum(v) FROM (SELECT a AS v FROM t UNION ALL SELECT g FROM names)",
            "SELECT count(*) FROM (SELECT unnest([a, g]) FROM t)",
            "SELECT sum(column1) FROM (VALUES (1), (2))",
            "SELECT 1",
            "WITH RECURSIVE r AS (SELECT a FROM t WHERE a = 1 UNION ALL SELECT a + 1 FROM r WHERE a < 5) SELECT sum(a) FROM r",
            "SELECT max(md5(s)) FROM t",
            "SELECT g, a % 2, count(*) FROM t GROUP BY CUBE (g, a % 2)",
            "SELECT count(*) FROM (SELECT random() AS r FROM t) AS a WHERE r = (SELECT max(v) FROM (SELECT a.r AS v UNION SELECT -1.0) AS x)",
            "SELECT count(*), count(s) FROM (SELECT g, array_agg(a) AS list FROM t GROUP BY g) AS l, LATERAL (SELECT sum(x) AS s FROM unnest(l.list) AS x)",
            "SELECT g, (SELECT sum(x) FROM unnest(list) AS x) FROM (SELECT g, array_agg(a) AS list FROM t GROUP BY g) AS l",
            "INSERT INTO names SELECT g, s FROM t",
            "INSERT INTO names VALUES (3, 'three')",
            "UPDATE names SET name = 'x' WHERE g = 1",
            "SELECT count(*) FROM sys.operators",
            "SELECT count(*) FROM sys.expensive_inputs",
        ] {
            run(&session, sql).await;
            println!("{workers}: {sql}");
            for line in column(&session, OPERATORS).await {
                println!("    {line}");
            }
            if workers == 3 {
                let id = super::number(&session, "SELECT last_query_id()").await;
                println!(
                    "{}",
                    lines(&session, &format!("SHOW PROFILE {id}"))
                        .await
                        .join("\n")
                );
            }
        }
    }
}
