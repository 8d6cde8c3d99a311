//! Reports propose quarantines, and say which ones left rows out.

use std::time::Duration;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Volatility;
use skewer::Database;

use super::{documents, lines, number, slow_on_one_record};

/// The statements of a report's section about a quarantine.
fn proposed(text: &[String]) -> Vec<&str> {
    let lines = text.iter().skip_while(|line| *line != "Quarantine");
    let section = lines.take_while(|line| !line.is_empty());
    let statements = section.map(|line| line.trim());
    statements.filter(|line| line.ends_with(';')).collect()
}

/// A report as one line.
fn flowing(text: &[String]) -> String {
    let text = text.join(" ");
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

const QUERY: &str = "SELECT count(*), max(parse(line, 'txt')) FROM documents";

#[tokio::test(flavor = "multi_thread")]
async fn the_proposed_statements_leave_the_expensive_rows_out() {
    let session = documents().await;
    let profile = format!("EXPLAIN PROFILE {QUERY}");
    let text = lines(&session, &profile).await;
    let all = text.join("\n");
    let statements = proposed(&text);
    let [create, switch] = statements.as_slice() else {
        panic!("{all}");
    };
    assert!(
        create.starts_with("CREATE QUARANTINE ON documents WHERE (length(line) > "),
        "{all}"
    );
    assert_eq!(*switch, "SET quarantine = 'on';", "{all}");
    assert!(
        flowing(&text).contains("That is an estimate, which EXPLAIN PROFILE"),
        "{all}"
    );
    for statement in &statements {
        session
            .sql(statement)
            .await
            .unwrap()
            .collect()
            .await
            .unwrap();
    }
    // The row is out of the query, and the query is not slow any more.
    assert_eq!(
        number(&session, "SELECT count(*) FROM documents").await,
        2102
    );
    let text = lines(&session, &profile).await;
    let all = text.join("\n");
    assert!(!all.contains("●"), "{all}");
    assert!(proposed(&text).is_empty(), "{all}");
    let flow = flowing(&text);
    assert!(
        flow.contains("Left out ◇ Quarantine documents_quarantine, length(line) > "),
        "{all}"
    );
    assert!(
        flow.contains(": 1 row of 2,103 of documents (< 0.1 %)."),
        "{all}"
    );
    // Of a query that has ended, the report says the same.
    let shown = lines(&session, "SHOW PROFILE").await.join("\n");
    assert!(shown.contains("Quarantine documents_quarantine"), "{shown}");

    // With all rows the report knows that there is a quarantine for them.
    session.sql("SET quarantine = 'off'").await.unwrap();
    let text = lines(&session, &profile).await;
    let all = text.join("\n");
    assert_eq!(proposed(&text), ["SET quarantine = 'on';"], "{all}");
    assert!(
        flowing(&text).contains("Quarantine documents_quarantine has them already."),
        "{all}"
    );
    session.sql("DROP QUARANTINE ON documents").await.unwrap();
    let count = "SELECT count(*) FROM sys.quarantines";
    assert_eq!(number(&session, count).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quarantine_of_what_without_left_out_has_a_measured_gain() {
    let session = documents().await;
    let sql = format!("EXPLAIN PROFILE {QUERY} WITHOUT (id = 1700)");
    let text = lines(&session, &sql).await;
    let all = text.join("\n");
    let with = number(&session, "SELECT last_query_id()").await - 1;
    let statements = proposed(&text);
    assert_eq!(
        statements[0], "CREATE QUARANTINE ON documents WHERE (id = 1700);",
        "{all}"
    );
    let measured = format!("as measured against query {with}.");
    assert!(flowing(&text).contains(&measured), "{all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_predicate_the_record_is_named_by_its_id() {
    let (session, id) = slow_on_one_record().await;
    // Its value is an ordinary one, but for the profile.
    let query = "SELECT k, max(slow(v)) FROM measurements GROUP BY k";
    let other = "CREATE QUARANTINE measurements_quarantine ON measurements WHERE (v < 0)";
    session.sql(other).await.unwrap();
    let text = lines(&session, &format!("EXPLAIN PROFILE {query}")).await;
    let all = text.join("\n");
    let statements = proposed(&text);
    let by_value = "CREATE QUARANTINE measurements_quarantine_2 ON measurements WHERE (v = 1234);";
    let by_id = format!(
        "CREATE QUARANTINE measurements_quarantine_2 ON measurements WHERE (_row_id = {id});"
    );
    let is_expected = statements[0] == by_value || statements[0] == by_id;
    assert!(is_expected, "{all}");
    for statement in &statements {
        session.sql(statement).await.unwrap();
    }
    let left = "SELECT count(*) FROM measurements WHERE v = 1234";
    assert_eq!(number(&session, left).await, 0);
    // The report's own statements see all rows: it can still show the record of the first run.
    let first = number(
        &session,
        "SELECT min(query_id) FROM sys.queries WHERE sql LIKE 'SELECT k%'",
    );
    let shown = lines(&session, &format!("SHOW PROFILE {}", first.await))
        .await
        .join("\n");
    assert!(shown.contains("v: 1234, note: 'note 1234'"), "{shown}");
}

/// What most queries go without must be an exception.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_part_of_a_table_is_not_proposed() {
    for (slow, is_proposed) in [(150, false), (15, true)] {
        let session = Database::in_memory().unwrap().session();
        session.register_row_udf(
            "slow",
            vec![DataType::Int64],
            DataType::Int64,
            Volatility::Immutable,
            move |arguments| {
                if matches!(arguments[0], ScalarValue::Int64(Some(value)) if value <= slow) {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Ok(arguments[0].clone())
            },
        );
        let create = "CREATE TABLE t AS SELECT value AS v FROM generate_series(1, 300)";
        session.sql(create).await.unwrap().collect().await.unwrap();
        let text = lines(&session, "EXPLAIN PROFILE SELECT max(slow(v)) FROM t").await;
        let all = text.join("\n");
        // The report says which rows they are.
        assert!(
            flowing(&text).contains("v < ") || flowing(&text).contains("v <= "),
            "{all}"
        );
        let statements = proposed(&text);
        assert_eq!(
            !statements.is_empty(),
            is_proposed,
            "{slow} rows are slow:\n{all}"
        );
    }
}
