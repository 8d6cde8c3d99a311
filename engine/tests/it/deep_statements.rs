//! Statements that programs write: they have a result, or are refused with what is too deep.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use skewer::{Database, Error, Session};

async fn first_value(session: &Session, sql: &str) -> Result<String, Error> {
    let batches = session.sql(sql).await?.collect().await?;
    let batch = batches.iter().find(|batch| batch.num_rows() > 0);
    let column = batch.unwrap().column(0);
    let values = ArrayFormatter::try_new(column, &FormatOptions::default()).unwrap();
    Ok(values.value(0).to_string())
}

async fn session(workers: usize) -> Session {
    let database = Database::builder().workers(workers).build().unwrap();
    let session = database.session();
    for sql in [
        "CREATE TABLE t AS SELECT value AS v FROM generate_series(0, 49)",
        "INSERT INTO t SELECT value FROM generate_series(50, 99)",
    ] {
        session.sql(sql).await.unwrap();
    }
    session
}

fn joined(count: usize, between: &str, one: impl Fn(usize) -> String) -> String {
    let parts: Vec<_> = (0..count).map(one).collect();
    parts.join(between)
}

fn nested(count: usize, open: &str, inner: &str, close: &str) -> String {
    format!("{}{inner}{}", open.repeat(count), close.repeat(count))
}

/// Deep statements and their first value.
fn deep() -> Vec<(String, &'static str)> {
    let of_t = |values: String| format!("SELECT {values} FROM t");
    let where_t = |condition: String| format!("SELECT count(*) FROM t WHERE {condition}");
    vec![
        (
            where_t(joined(20_000, " OR ", |i| format!("v = {}", 2 * i))),
            "50",
        ),
        (
            where_t(joined(5_000, " AND ", |i| format!("v <> {}", 2 * i))),
            "50",
        ),
        (
            where_t(joined(100, " AND ", |i| format!("v + {i} > {i}"))),
            "99",
        ),
        (
            where_t(joined(1_000, " OR ", |i| format!("(v = {i} AND v < 10)"))),
            "10",
        ),
        (
            format!(
                "SELECT sum(a) FROM ({}) AS u",
                joined(3_000, " UNION ALL ", |i| format!("SELECT {i} AS a"))
            ),
            "4498500",
        ),
        (
            format!(
                "SELECT count(*) FROM ({}) AS u",
                joined(500, " UNION ", |i| format!("SELECT {} AS a", i % 7))
            ),
            "7",
        ),
        (
            where_t(format!(
                "v IN ({})",
                joined(50_000, ", ", |i| (2 * i).to_string())
            )),
            "50",
        ),
        (
            of_t(format!(
                "sum(CASE v {} ELSE 0 END)",
                joined(3_000, " ", |i| format!("WHEN {i} THEN {}", i % 7))
            )),
            "295",
        ),
        (format!("SELECT {}", nested(2_000, "(", "1", ")")), "1"),
        (
            of_t(format!(
                "max(length({}))",
                vec!["CAST(v AS VARCHAR)"; 300].join(" || ")
            )),
            "600",
        ),
        (
            of_t(format!("sum({})", nested(100, "abs(", "v", ")"))),
            "4950",
        ),
        (of_t(format!("sum(v{})", " + 1".repeat(500))), "54950"),
        (
            format!(
                "SELECT count(*) FROM {}",
                nested(200, "(SELECT v FROM ", "t", " AS q WHERE v >= 0)")
            ) + " AS q",
            "100",
        ),
        (of_t(format!("count(v{})", "::BIGINT".repeat(1_000))), "100"),
        (of_t(format!("count(v{})", " IS NULL".repeat(1_000))), "100"),
        (format!("SELECT {}", nested(8, "(SELECT ", "1", ")")), "1"),
    ]
}

#[tokio::test]
async fn deep_statements_have_results() {
    let session = session(1).await;
    for (sql, expected) in deep() {
        let value = first_value(&session, &sql).await;
        let start: String = sql.chars().take(80).collect();
        assert_eq!(
            value.map_err(|e| e.to_string()),
            Ok(expected.to_owned()),
            "{start}"
        );
    }
}

#[tokio::test]
async fn deep_statements_have_results_on_workers() {
    let session = session(3).await;
    for (sql, expected) in deep() {
        let value = first_value(&session, &sql).await;
        let start: String = sql.chars().take(80).collect();
        assert_eq!(
            value.map_err(|e| e.to_string()),
            Ok(expected.to_owned()),
            "{start}"
        );
    }
}

#[tokio::test]
async fn deep_statements_can_be_explained_prepared_and_stored() {
    let session = session(1).await;
    let chain = joined(1_000, " OR ", |i| format!("v = {}", 2 * i));
    let deep = format!("SELECT count(*) AS n FROM t WHERE {chain} OR v + 1 = 2");
    for sql in [
        format!("EXPLAIN {deep}"),
        format!("CREATE VIEW deep AS {deep}"),
        format!("CREATE TABLE made AS {deep}"),
        format!("PREPARE deep AS {deep} + $1"),
        format!("DELETE FROM t WHERE v = 99 AND ({chain})"),
        format!("EXPLAIN PROFILE {deep}"),
    ] {
        let start: String = sql.chars().take(80).collect();
        if let Err(error) = session.sql(&sql).await {
            panic!("{start}: {error}");
        }
    }
    for sql in ["SELECT n FROM deep", "SELECT n FROM made"] {
        assert_eq!(first_value(&session, sql).await.unwrap(), "51");
    }
    let stored = session.sql("SHOW CREATE VIEW deep").await.unwrap();
    let stored = stored.collect().await.unwrap();
    let definition = stored[0].column(1).as_string::<i32>().value(0);
    assert!(definition.contains("v = 1998"), "{definition}");
}

#[tokio::test]
async fn what_is_too_deep_is_refused_and_the_session_goes_on() {
    let session = session(1).await;
    for (sql, expected) in [
        (
            format!("SELECT {}", nested(7_000, "(", "1", ")")),
            "more than 3500 brackets",
        ),
        (
            format!("SELECT {}", "(".repeat(1_000_000)),
            "more than 3500 brackets",
        ),
        (
            format!("SELECT 1{}", " + 1".repeat(20_000)),
            "more than 3500 expressions",
        ),
        (
            format!("SELECT 1{}", "+1".repeat(600_000)),
            "more than 1000000 words",
        ),
        (
            format!("SELECT 1{} )", " + 1".repeat(100_000)),
            "syntax error",
        ),
        (
            format!("SELECT {}", nested(501, "abs(", "1", ")")),
            "more than 500 calls",
        ),
        (
            format!("SELECT {}1", "- ".repeat(501)),
            "more than 500 calls",
        ),
        (
            format!("SELECT {}", nested(17, "(SELECT ", "1", ")")),
            "more than 16 subqueries",
        ),
        (
            format!("SELECT CAST(NULL AS {}", "ARRAY<".repeat(100_000)),
            "more than 3500 brackets",
        ),
        (
            format!("SELECT NULL::INT{}", "[]".repeat(100_000)),
            "more than 3500 brackets",
        ),
        (
            format!("{}SELECT 1", "EXPLAIN ".repeat(100_000)),
            "more than 16 EXPLAIN",
        ),
        (
            format!("SELECT {}1 +", "CAST(".repeat(60)),
            "a mistake within calls",
        ),
        (
            format!("SELECT {}1 +", "POSITION(".repeat(40)),
            "a mistake within calls",
        ),
        (
            joined(29_999, " ", |i| {
                if i % 2 == 0 {
                    "SELECT 1"
                } else {
                    ["UNION", "EXCEPT"][i / 2 % 2]
                }
                .to_owned()
            }),
            "more than 3500 expressions",
        ),
    ] {
        let start: String = sql.chars().take(40).collect();
        let error = match session.sql(&sql).await {
            Ok(_) => panic!("{start}: no error"),
            Err(error) => error.to_string(),
        };
        let said: String = error.chars().take(400).collect();
        assert!(error.contains(expected), "{start}: {said}");
        assert!(
            error.len() < 1_000,
            "{start}: {} bytes of error",
            error.len()
        );
        assert_eq!(first_value(&session, "SELECT 1").await.unwrap(), "1");
    }
}
