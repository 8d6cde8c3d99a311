//! What tells expensive records apart in the user's own columns, and what has become of them.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Volatility;
use skewer::Database;

use super::{SLOW, column, documents, lines, number};

#[tokio::test(flavor = "multi_thread")]
async fn expensive_records_are_told_apart_by_their_columns_and_that_is_verified() {
    let session = documents().await;
    let query = "SELECT count(*), max(parse(line, 'txt')) FROM documents";
    let text = lines(&session, &format!("EXPLAIN PROFILE {query}")).await;
    let all = text.join("\n");
    let said = "◆ length(line) > 1000000: 1 row of 2,103 of documents (< 0.1 %), ";
    assert!(all.contains(said), "{all}");
    let id = number(&session, "SELECT last_query_id()").await;
    let blame = format!("FROM sys.blame({id})");
    let rows = column(&session, &format!("SELECT predicate {blame} ORDER BY rank")).await;
    assert_eq!(rows[0], "length(line) > 1000000", "{rows:?}");
    let exact = format!(
        "SELECT matched_rows = 1 AND abs(row_share - 1.0 / 2103) < 1e-9 AND latency_share > 0.9 \
         AND table_name = 'main.documents' AND without_ns < query_ns - 300000000 \
         {blame} WHERE rank = 1"
    );
    assert_eq!(column(&session, &exact).await, ["true"]);
    // The predicate stands as it is in a WHERE.
    let sql = format!("SELECT id FROM documents WHERE {}", rows[0]);
    assert_eq!(number(&session, &sql).await, 1700);

    let verify = column(&session, &format!("SELECT verify {blame} WHERE rank = 1")).await;
    let expected = format!("EXPLAIN PROFILE QUERY {id} WITHOUT (length(line) > 1000000);");
    assert_eq!(verify, std::slice::from_ref(&expected));
    assert!(text.contains(&format!("  {expected}")), "{all}");
    let verified = lines(&session, &verify[0]).await;
    let all = verified.join("\n");
    let said = "◇ length(line) > 1000000: 1 row of 2,103 of documents (< 0.1 %).";
    assert!(all.contains(said), "{all}");
    let with = format!("(query {id}): ");
    let compared = verified.iter().find(|line| line.contains(&with));
    assert!(
        compared.is_some_and(|line| line.contains("× as fast")),
        "{all}"
    );
    // Something else may tell the rest apart: longer lines do take longer.
    assert!(!all.contains("◆ length(line) > 1000000"), "{all}");
    for told in all.split("◆ length(line)").skip(1) {
        let share = told.split(" % of the time").next().unwrap();
        let share = share.rsplit([' ', ',']).next().unwrap();
        assert!(share.parse::<f64>().unwrap() < 50.0, "{all}");
    }

    let json = verify[0].replace("PROFILE QUERY", "PROFILE (FORMAT json) QUERY");
    let json: serde_json::Value =
        serde_json::from_str(&lines(&session, &json).await.join("\n")).unwrap();
    let left_out = &json["left_out"];
    assert_eq!(left_out["rows"][0]["rows"], 1);
    assert_eq!(left_out["rows"][0]["table_rows"], 2103);
    assert_eq!(left_out["with_query_id"], id);
    let (without, with) = (&left_out["query_ns"], &left_out["with_query_ns"]);
    let slow = SLOW.as_nanos() as i64;
    assert!(
        without.as_i64().unwrap() + slow / 2 < with.as_i64().unwrap(),
        "{left_out}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_category_whose_records_are_expensive_is_named() {
    let session = documents().await;
    let query = "SELECT kinds.kind, max(parse(line, documents.kind)) FROM documents JOIN kinds \
                 ON documents.kind = kinds.kind WHERE length(line) < 1000 GROUP BY kinds.kind";
    lines(&session, &format!("EXPLAIN PROFILE {query}")).await;
    let id = number(&session, "SELECT last_query_id()").await;
    let blame = format!("FROM sys.blame({id}) WHERE table_name = 'main.documents' ORDER BY rank");
    let predicates = column(&session, &format!("SELECT predicate {blame}")).await;
    assert_eq!(
        predicates.first().map(String::as_str),
        Some("kind = 'pdf'"),
        "{predicates:?}"
    );
    let rows = column(&session, &format!("SELECT matched_rows {blame}")).await;
    assert_eq!(rows[0], "31");
    // Both tables have that column: the statement says which is meant.
    let verify = column(&session, &format!("SELECT verify {blame}")).await;
    let expected = format!("EXPLAIN PROFILE QUERY {id} WITHOUT documents (kind = 'pdf');");
    assert_eq!(verify[0], expected);
    let all = lines(&session, &verify[0]).await.join("\n");
    assert!(all.contains("31 rows of 2,103 of documents"), "{all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_cost_alike_are_not_blamed() {
    let session = documents().await;
    // Each takes 5 ms, which is all of the query's time.
    let query = "SELECT sum(parse(repeat(' ', id % 3), 'pdf')) FROM documents WHERE id % 20 = 1";
    let all = lines(&session, &format!("EXPLAIN PROFILE {query}"))
        .await
        .join("\n");
    assert!(!all.contains("What tells them apart"), "{all}");
    let id = number(&session, "SELECT last_query_id()").await;
    let measured = format!(
        "SELECT CAST(sum(latency_ns) AS BIGINT) FROM sys.record_latency WHERE query_id = {id}"
    );
    assert!(number(&session, &measured).await > 106 * 5_000_000);
    let blamed = format!("SELECT count(*) FROM sys.blame({id})");
    assert_eq!(number(&session, &blamed).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_gone_and_took_little_are_not_blamed() {
    let session = documents().await;
    let run = async |sql: &str| session.sql(sql).await.unwrap().collect().await.unwrap();
    run("CREATE TABLE pdfs AS SELECT value AS id, 'pdf' AS kind FROM generate_series(1, 60)").await;
    // Each of the pdfs takes 5 ms, and kinds next to nothing.
    let query = "SELECT count(*) FROM pdfs JOIN kinds ON pdfs.kind = kinds.kind \
                 WHERE parse(repeat(' ', id % 3), pdfs.kind) >= 0 AND upper(kinds.kind) <> 'DOC'";
    lines(&session, &format!("EXPLAIN PROFILE {query}")).await;
    let id = number(&session, "SELECT last_query_id()").await;
    let measured = format!(
        "SELECT count(DISTINCT row_id) FROM sys.record_latency WHERE query_id = {id} \
         AND kind = 'computation' AND table_name = 'main."
    );
    assert_eq!(number(&session, &format!("{measured}pdfs'")).await, 60);
    assert_eq!(number(&session, &format!("{measured}kinds'")).await, 3);
    run("DELETE FROM kinds").await;
    let blamed = format!("SELECT count(*) FROM sys.blame({id})");
    assert_eq!(number(&session, &blamed).await, 0);
    run("DELETE FROM pdfs").await;
    let error = session.sql(&blamed).await.err().unwrap().to_string();
    let said = "60 rows of pdfs, which took 100 % of the time";
    assert!(error.contains(said), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_wrote_is_not_advised_to_run_again() {
    let session = documents().await;
    let run = async |sql: &str| session.sql(sql).await.unwrap().collect().await.unwrap();
    let write = "CREATE TABLE parsed AS SELECT parse(line, 'txt') AS p FROM documents";
    lines(&session, &format!("EXPLAIN PROFILE {write}")).await;
    let id = number(&session, "SELECT last_query_id()").await;
    let blame = format!("SELECT count(*) FROM sys.blame({id})");
    assert!(number(&session, &blame).await > 0);
    run("DELETE FROM documents WHERE id = 1700").await;
    let error = session.sql(&blame).await.err().unwrap().to_string();
    assert!(error.contains("is no longer there: deleted"), "{error}");
    assert!(!error.contains("EXPLAIN PROFILE"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_says_what_has_become_of_the_tables_since() {
    let session = documents().await;
    let query = "SELECT count(*), max(parse(line, 'txt')) FROM documents";
    lines(&session, &format!("EXPLAIN PROFILE {query}")).await;
    let id = number(&session, "SELECT last_query_id()").await;
    let show = format!("SHOW PROFILE {id}");
    let all = lines(&session, &show).await.join("\n");
    assert!(!all.contains("! "), "{all}");
    assert!(all.contains("line: 'xxxx"), "{all}");
    let run = async |sql: &str| session.sql(sql).await.unwrap().collect().await.unwrap();
    run("DELETE FROM documents WHERE id = 1700").await;
    let all = lines(&session, &show).await.join("\n");
    let said = format!(
        "! Rows of documents have changed since query {id} ran: it had 2103 then, and has 2102 now."
    );
    assert!(all.contains(&said), "{all}");
    assert!(
        all.contains("(it is no longer in its table: deleted since"),
        "{all}"
    );
    let blame = format!("SELECT count(*) FROM sys.blame({id})");
    let error = session.sql(&blame).await.err().unwrap().to_string();
    // Nearly all of it, which may be rounded to all.
    let nearly_all = error.replace("which took 100 %", "which took 9");
    assert!(
        nearly_all.contains("1 row of documents, which took 9"),
        "{error}"
    );
    for said in [
        "% of the time of the table's records in query ",
        "is no longer there: deleted",
    ] {
        assert!(error.contains(said), "{error}");
    }
    let again_sql = format!("EXPLAIN PROFILE QUERY {id}");
    let again = lines(&session, &again_sql).await.join("\n");
    assert!(again.contains(&said), "{again}");
    let as_then = format!("! It ran on the tables as query {id} saw them.");
    assert!(again.contains(&as_then), "{again}");
    assert!(again.contains("line: 'xxxx"), "{again}");
    run("UPDATE documents SET kind = 'rtf' WHERE id = 7").await;
    run("CREATE OR REPLACE TABLE documents AS SELECT 1 AS id").await;
    let all = lines(&session, &show).await.join("\n");
    let said = "! Table documents is another than the one that query";
    assert!(all.contains(said), "{all}");
    // Its rows have the same numbers, and nothing to do with those that the query read.
    let said = "(its table has been replaced by another)";
    assert!(all.contains(said), "{all}");
    assert!(!all.contains("SELECT _row_id, * FROM documents"), "{all}");
    let error = session.sql(&blame).await.err().unwrap().to_string();
    let said = "table documents has been replaced since query";
    assert!(error.contains(said), "{error}");
    run("DROP TABLE documents").await;
    let again = lines(&session, &again_sql).await.join("\n");
    assert!(again.contains(&as_then), "{again}");
    assert!(again.contains("line: 'xxxx"), "{again}");
    let without = format!("{again_sql} WITHOUT (length(line) > 1000000)");
    let without = lines(&session, &without).await.join("\n");
    assert!(without.contains("1 row of 2,103 of documents"), "{without}");
    run("SET profile.snapshot_bytes = 0").await;
    let error = session.sql(&again_sql).await.err().unwrap().to_string();
    assert!(error.contains("documents"), "{error}");
    let all = lines(&session, &show).await.join("\n");
    assert!(all.contains("! Table documents, which query"), "{all}");
    let error = session
        .sql("SHOW PROFILE 4711")
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.starts_with("sys.queries has no query 4711; the newest is "),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_no_longer_there_is_said() {
    let session = documents().await;
    let query = "SELECT count(*), max(parse(line, 'txt')) FROM documents";
    lines(&session, &format!("EXPLAIN PROFILE {query}")).await;
    let id = number(&session, "SELECT last_query_id()").await;
    let drop = session.sql("DROP TABLE documents").await.unwrap();
    drop.collect().await.unwrap();
    let blame = format!("SELECT count(*) FROM sys.blame({id})");
    let error = session.sql(&blame).await.err().unwrap().to_string();
    assert!(error.contains("table documents "), "{error}");
    // Nothing is offered that would be an error.
    let report = lines(&session, &format!("SHOW PROFILE {id}")).await;
    let report = report.join("\n");
    assert!(report.contains("● Row "), "{report}");
    assert!(!report.contains("FROM documents WHERE _row_id"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_a_long_record_is_saved_without_it() {
    let session = Database::in_memory().unwrap().session();
    let create = "CREATE TABLE texts AS SELECT value AS id, \
                  CASE WHEN value = 1700 THEN repeat('abc', 8000000) ELSE 'short ' || value END AS s \
                  FROM generate_series(1, 2000)";
    session.sql(create).await.unwrap().collect().await.unwrap();
    let query = "SELECT max(length(upper(s))) FROM texts";
    let asked = lines(&session, &format!("EXPLAIN PROFILE (AS SQL) {query}")).await;
    // All but some thousands of 24 million bytes are the record's.
    let asked = asked.join("\n");
    assert!(asked.contains("CAST(0.99"), "{asked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_bytes_are_told_by_their_length() {
    let session = Database::in_memory().unwrap().session();
    session.register_row_udf(
        "weigh",
        vec![DataType::BinaryView],
        DataType::Int64,
        Volatility::Immutable,
        |arguments| {
            let [ScalarValue::BinaryView(Some(bytes))] = arguments else {
                return Ok(ScalarValue::Int64(None));
            };
            if bytes.len() > 100_000 {
                std::thread::sleep(SLOW);
            }
            Ok(ScalarValue::Int64(Some(bytes.len() as i64)))
        },
    );
    let create = "CREATE TABLE images AS SELECT value AS id, \
                  CAST(repeat('x', CASE WHEN value = 70 THEN 200000 ELSE 10 END) AS BYTEA) AS pixels \
                  FROM generate_series(1, 500)";
    session.sql(create).await.unwrap().collect().await.unwrap();
    lines(
        &session,
        "EXPLAIN PROFILE SELECT max(weigh(pixels)) FROM images",
    )
    .await;
    let blamed = "SELECT predicate FROM sys.blame(last_query_id())";
    let blamed = column(&session, blamed).await;
    assert!(
        blamed
            .iter()
            .any(|one| one.starts_with("octet_length(pixels) > ")),
        "{blamed:?}"
    );
}
