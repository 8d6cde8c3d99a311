//! EXPLAIN PROFILE of a query that one record makes slow.

use std::time::Duration;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Volatility;
use skewer::{Database, Session};

/// Much longer than any hiccup of a busy machine.
const SLOW: Duration = Duration::from_millis(400);

/// A table whose record with `v = 1234` takes `slow` long, and the id of that record.
async fn slow_on_one_record() -> (Session, i64) {
    let session = Database::in_memory().unwrap().session();
    session.register_row_udf(
        "slow",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Immutable,
        |arguments| {
            if arguments[0] == ScalarValue::Int64(Some(1234)) {
                std::thread::sleep(SLOW);
            }
            Ok(arguments[0].clone())
        },
    );
    let create = "CREATE TABLE measurements AS
                  SELECT value % 5 AS k, value AS v, 'note ' || value AS note
                  FROM generate_series(1, 3000)";
    session.sql(create).await.unwrap().collect().await.unwrap();
    let id = session
        .sql("SELECT _row_id FROM measurements WHERE v = 1234")
        .await
        .unwrap();
    let id = id.collect().await.unwrap();
    let id = id[0].column(0).as_primitive::<Int64Type>().value(0);
    (session, id)
}

const QUERY: &str = "SELECT k, max(slow(v)) FROM measurements GROUP BY k";

async fn lines(session: &Session, sql: &str) -> Vec<String> {
    let stream = session.sql(sql).await.unwrap();
    let schema = stream.schema();
    assert_eq!(schema.fields().len(), 1);
    assert_eq!(schema.field(0).name(), "EXPLAIN PROFILE");
    let batches: Vec<RecordBatch> = stream.collect().await.unwrap();
    let lines = batches
        .iter()
        .flat_map(|batch| batch.column(0).as_string::<i32>().iter());
    lines.map(|line| line.unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_record_that_makes_a_query_slow_is_named_and_shown() {
    let (session, id) = slow_on_one_record().await;
    let text = lines(&session, &format!("EXPLAIN PROFILE {QUERY}")).await;
    let all = text.join("\n");
    let named = text
        .iter()
        .filter(|line| line.starts_with("  ● "))
        .collect::<Vec<_>>();
    assert_eq!(named.len(), 1, "{all}");
    assert!(
        named[0].starts_with(&format!(
            "  ● Row {id} of measurements kept a result row waiting for "
        )),
        "{all}"
    );
    assert!(all.contains("v: 1234, note: 'note 1234'"), "{all}");
    assert!(all.contains("Scan measurements"), "{all}");
    let last = format!("  SELECT _row_id, * FROM measurements WHERE _row_id = {id};");
    assert!(text.contains(&last), "{all}");
    for line in text.iter().filter(|line| line.starts_with("  SELECT ")) {
        if line.ends_with(';') {
            let rows = session.sql(line).await.unwrap().collect().await.unwrap();
            assert!(rows.iter().any(|batch| batch.num_rows() > 0), "{line}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_was_only_counted_is_profiled_again_by_its_id() {
    let (session, id) = slow_on_one_record().await;
    let stream = session.sql(QUERY).await.unwrap();
    let query_id = stream.query_id().unwrap();
    stream.collect().await.unwrap();
    let text = lines(&session, &format!("EXPLAIN PROFILE QUERY {query_id}")).await;
    let all = text.join("\n");
    assert!(
        all.contains(&format!("● Row {id} of measurements kept")),
        "{all}"
    );
    assert!(all.contains(QUERY), "{all}");
    // The second run is a query of its own, which can be run again in the same way.
    let again = number(&session, "SELECT last_query_id()").await;
    assert!(again > query_id);
    let sql = format!("EXPLAIN PROFILE (LEVEL counters) QUERY {again}");
    assert!(lines(&session, &sql).await.join("\n").contains(QUERY));

    let insert = "INSERT INTO measurements SELECT * FROM measurements";
    let stream = session.sql(insert).await.unwrap();
    let query_id = stream.query_id().unwrap();
    stream.collect().await.unwrap();
    let sql = format!("EXPLAIN PROFILE QUERY {query_id}");
    let error = session.sql(&sql).await.err().unwrap().to_string();
    assert!(error.contains(insert), "{error}");
    let rows = number(&session, "SELECT count(*) FROM measurements").await;
    assert_eq!(rows, 6000);
}

async fn number(session: &Session, sql: &str) -> i64 {
    let batches = session.sql(sql).await.unwrap().collect().await.unwrap();
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_report_leaves_no_trace_of_its_own() {
    let (session, _) = slow_on_one_record().await;
    let text = lines(&session, &format!("EXPLAIN PROFILE {QUERY}")).await;
    let last = session.sql("SELECT last_query_id()").await.unwrap();
    let last = last.collect().await.unwrap();
    let last = last[0].column(0).as_primitive::<Int64Type>().value(0);
    assert!(
        text[0].starts_with(&format!("Query {last} · ")),
        "{}",
        text[0]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn json_and_graphviz_are_well_formed_and_every_printed_statement_runs() {
    let (session, id) = slow_on_one_record().await;
    let json = lines(&session, &format!("EXPLAIN PROFILE (FORMAT json) {QUERY}")).await;
    let json: serde_json::Value = serde_json::from_str(&json.join("\n")).unwrap();
    assert_eq!(json["query"]["level"], "records");
    assert_eq!(json["query"]["rows_returned"], 5);
    let first = &json["expensive_inputs"]["records"][0];
    assert_eq!(first["row_id"], id);
    assert_eq!(first["anomaly"], "critical path");

    let dot = lines(
        &session,
        &format!("EXPLAIN PROFILE (FORMAT graphviz) {QUERY}"),
    )
    .await;
    assert_eq!(dot[0], "digraph profile {");
    assert!(dot.iter().any(|line| line.contains(" -> ")));

    let script = lines(&session, &format!("EXPLAIN PROFILE (AS SQL) {QUERY}")).await;
    let statements = session.split(&script.join("\n"));
    assert!(statements.len() >= 6, "{script:?}");
    for statement in statements {
        let rows = session.sql(&statement.sql).await.unwrap();
        rows.collect().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lower_levels_say_why_there_are_no_records() {
    let (session, _) = slow_on_one_record().await;
    for level in ["counters", "calls"] {
        let sql = format!("EXPLAIN PROFILE (LEVEL {level}) {QUERY}");
        let text = lines(&session, &sql).await.join("\n");
        assert!(
            text.contains(&format!("level {level} keeps no latencies")),
            "{text}"
        );
        assert!(text.contains("Aggregate"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn show_create_view_prints_the_sql_behind_a_view_which_gives_the_same() {
    let (session, id) = slow_on_one_record().await;
    lines(&session, &format!("EXPLAIN PROFILE {QUERY}")).await;
    let text = async |sql: &str| {
        let batches = session.sql(sql).await.unwrap().collect().await.unwrap();
        batches[0].column(1).as_string::<i32>().value(0).to_owned()
    };
    let printed = text("SHOW CREATE VIEW sys.expensive_inputs").await;
    let ids = async |sql: String| {
        let batches = session.sql(&sql).await.unwrap().collect().await.unwrap();
        let column = |batch: &RecordBatch| {
            let ids = batch.column_by_name("row_id").unwrap().clone();
            ids.as_primitive::<Int64Type>().values().to_vec()
        };
        let mut ids: Vec<i64> = batches.iter().flat_map(column).collect();
        ids.sort_unstable();
        ids
    };
    let by_text = ids(printed).await;
    assert!(by_text.contains(&id));
    let by_view = "SELECT row_id FROM sys.expensive_inputs WHERE query_id = last_query_id()";
    assert_eq!(by_text, ids(by_view.to_owned()).await);
}

/// A table of 2,103 documents, one of them two million characters long, of which `parse` takes
/// `SLOW`; documents of kind `pdf` take 5 ms each.
async fn documents() -> Session {
    let session = Database::in_memory().unwrap().session();
    session.register_row_udf(
        "parse",
        vec![DataType::Utf8, DataType::Utf8],
        DataType::Int64,
        Volatility::Immutable,
        |arguments| {
            let [ScalarValue::Utf8(Some(line)), kind] = arguments else {
                return Ok(ScalarValue::Int64(None));
            };
            if line.len() > 1_000_000 {
                std::thread::sleep(SLOW);
            }
            if *kind == ScalarValue::Utf8(Some("pdf".to_owned())) {
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(ScalarValue::Int64(Some(line.len() as i64)))
        },
    );
    for sql in [
        "CREATE TABLE documents AS SELECT value AS id, \
         CASE WHEN value = 1700 THEN repeat('x', 2000000) ELSE repeat('y', value % 300) END AS line, \
         CASE WHEN value % 70 = 3 THEN 'pdf' WHEN value % 3 = 0 THEN 'txt' ELSE 'md' END AS kind \
         FROM generate_series(1, 2103)",
        "CREATE TABLE kinds AS SELECT DISTINCT kind FROM documents",
    ] {
        session.sql(sql).await.unwrap().collect().await.unwrap();
    }
    session
}

async fn column(session: &Session, sql: &str) -> Vec<String> {
    let batches = session.sql(sql).await.unwrap().collect().await.unwrap();
    let texts = batches.iter().flat_map(|batch| {
        let column = datafusion::arrow::compute::cast(batch.column(0), &DataType::Utf8).unwrap();
        let column = column.as_string::<i32>().clone();
        (0..column.len())
            .map(move |row| column.value(row).to_owned())
            .collect::<Vec<_>>()
    });
    texts.collect()
}

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
    assert!(!all.contains("What tells them apart"), "{all}");

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
    let query = "SELECT sum(length(md5(line))) FROM documents WHERE id <> 1700";
    let all = lines(&session, &format!("EXPLAIN PROFILE {query}"))
        .await
        .join("\n");
    assert!(!all.contains("What tells them apart"), "{all}");
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
    let again = lines(&session, &format!("EXPLAIN PROFILE QUERY {id}"))
        .await
        .join("\n");
    assert!(again.contains(&said), "{again}");
    run("UPDATE documents SET kind = 'rtf' WHERE id = 7").await;
    run("CREATE OR REPLACE TABLE documents AS SELECT 1 AS id").await;
    let all = lines(&session, &show).await.join("\n");
    let said = "! Table documents is another than the one that query";
    assert!(all.contains(said), "{all}");
    run("DROP TABLE documents").await;
    let all = lines(&session, &show).await.join("\n");
    assert!(
        all.contains("! There is no table documents any more"),
        "{all}"
    );
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
async fn two_profiles_are_compared() {
    let session = documents().await;
    let query = "SELECT count(*), max(parse(line, 'txt')) FROM documents";
    let profile = format!("EXPLAIN PROFILE {query} WITHOUT (id = 1700)");
    lines(&session, &profile).await;
    let after = number(&session, "SELECT last_query_id()").await;
    let before = after - 1;
    let long = number(&session, "SELECT _row_id FROM documents WHERE id = 1700").await;
    let text = lines(&session, &format!("EXPLAIN PROFILE DIFF {before}, {after}")).await;
    let all = text.join("\n");
    let head = format!("Query {before} → query {after} · ");
    assert!(
        text[0].starts_with(&head) && text[0].contains("÷ "),
        "{all}"
    );
    assert!(text[0].ends_with("different plans"), "{all}");
    let record = format!("· Row {long} of documents: ");
    let only = format!("only in query {before}.");
    let found = text.iter().find(|line| line.contains(&record));
    assert!(found.is_some(), "{all}");
    assert!(all.contains(only.trim_end_matches('.')), "{all}");
    for line in &text {
        assert!(line.chars().count() <= 100, "{line}");
    }

    // The same query once more has the same plan.
    lines(&session, &format!("EXPLAIN PROFILE QUERY {before}")).await;
    let again = number(&session, "SELECT last_query_id()").await;
    let sql = format!("EXPLAIN PROFILE (FORMAT json) DIFF {before}, {again}");
    let json: serde_json::Value =
        serde_json::from_str(&lines(&session, &sql).await.join("\n")).unwrap();
    assert_eq!(json["same_plan"], true);
    assert_eq!(json["before"]["query_id"], before);
    assert_eq!(json["after"]["query_id"], again);
    let operators = json["operators"].as_array().unwrap();
    assert!(!operators.is_empty());
    for operator in operators {
        let id = &operator["operator_id"];
        assert!(
            id["before"].is_i64() && id["before"] == id["after"],
            "{operator}"
        );
    }
    assert!(json["records"][0]["self_ns"]["before"].is_i64(), "{json}");

    let sql = format!("EXPLAIN PROFILE (AS SQL) DIFF {before}, {again}");
    for statement in session.split(&lines(&session, &sql).await.join("\n")) {
        session
            .sql(&statement.sql)
            .await
            .unwrap()
            .collect()
            .await
            .unwrap();
    }
    for (sql, says) in [
        (
            "EXPLAIN PROFILE DIFF 4711, 1",
            "sys.queries has no query 4711",
        ),
        (
            "EXPLAIN PROFILE (LEVEL calls) DIFF 1, 2",
            "which runs nothing",
        ),
        (
            "EXPLAIN PROFILE (FORMAT graphviz) DIFF 1, 2",
            "text and json",
        ),
    ] {
        let error = session.sql(sql).await.err().unwrap().to_string();
        assert!(error.contains(says), "{sql}: {error}");
    }
}

/// The report's text without its first line, which tells times, and without its reservations.
fn body(lines: &[String]) -> Vec<String> {
    let lines = lines[1..].iter().filter(|line| !line.starts_with("  ! "));
    lines.cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exported_profile_is_read_by_another_database() {
    let session = documents().await;
    let query = "SELECT kind, max(parse(line, 'txt')) FROM documents GROUP BY kind";
    lines(&session, &format!("EXPLAIN PROFILE {query}")).await;
    let id = number(&session, "SELECT last_query_id()").await;
    let shown = lines(&session, &format!("SHOW PROFILE {id}")).await;
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("profile");
    let export = format!("EXPORT PROFILE {id} TO '{}'", path.display());
    let exported = column(&session, &format!("{export} (FORMAT parquet)")).await;
    assert_eq!(exported, [path.display().to_string()]);
    let twice = session.sql(&export).await.err().unwrap().to_string();
    assert!(
        twice.ends_with("the directory is there and not empty"),
        "{twice}"
    );
    // Any tool that reads Parquet can read it.
    let file = format!("'{}'", path.join("record_latency.parquet").display());
    let rows = number(&session, &format!("SELECT count(*) FROM {file}")).await;
    let sys = format!("SELECT count(*) FROM sys.record_latency WHERE query_id = {id}");
    assert_eq!(rows, number(&session, &sys).await);

    let elsewhere = tempfile::tempdir().unwrap();
    let import = format!("IMPORT PROFILE FROM '{}'", path.display());
    let database = Database::open(elsewhere.path().join("db")).unwrap();
    let other = database.session();
    other
        .sql("SELECT 1")
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    let new = number(&other, &import).await;
    for table in [
        "operators",
        "operator_stats",
        "lineage",
        "record_latency",
        "output_records",
    ] {
        let count = |id: i64| format!("SELECT count(*) FROM sys.{table} WHERE query_id = {id}");
        let (here, there) = (count(id), count(new));
        let rows = number(&session, &here).await;
        assert!(rows > 0, "{table}");
        assert_eq!(rows, number(&other, &there).await, "{table}");
    }
    let sums =
        "sum(input_latency_ns), sum(input_id), sum(output_id * 7), count(DISTINCT worker_id)";
    let sums =
        |id: i64| format!("SELECT concat_ws(' ', {sums}) FROM sys.lineage WHERE query_id = {id}");
    assert_eq!(
        column(&session, &sums(id)).await,
        column(&other, &sums(new)).await
    );
    let report = lines(&other, &format!("SHOW PROFILE {new}")).await;
    let all = report.join("\n");
    let said = format!("  ! It was imported from '{}': the tables", path.display());
    assert!(all.contains(&said[..40]), "{all}");
    // Everything but what is asked of the table itself.
    let tables = |line: &&String| {
        ![
            "the record",
            "What tells",
            "◆",
            "instead of",
            "SELECT",
            "EXPLAIN",
        ]
        .iter()
        .any(|part| line.contains(part))
    };
    let of_both = [body(&shown), body(&report)].map(|lines| {
        let lines: Vec<String> = lines.iter().filter(tables).cloned().collect();
        lines
            .join("\n")
            .replace("\n\n\n", "\n\n")
            .trim_end()
            .to_owned()
    });
    assert_eq!(of_both[0], of_both[1]);
    assert!(all.contains("(its table is not here)"), "{all}");
    let error = other.sql(&format!("SELECT * FROM sys.blame({new})")).await;
    assert!(
        error
            .err()
            .unwrap()
            .to_string()
            .contains("was imported from")
    );
    // It is there when the database is opened again, and new queries have ids of their own.
    drop(other);
    database.close().unwrap();
    let other = Database::open(elsewhere.path().join("db"))
        .unwrap()
        .session();
    let again = lines(&other, &format!("SHOW PROFILE {new}")).await;
    assert_eq!(again, report);
    assert!(number(&other, &import).await > new);

    // What is missing or damaged is named.
    let broken = |file: &str, text: &str| std::fs::write(path.join(file), text).unwrap();
    broken("lineage.parquet", "nonsense");
    let error = other.sql(&import).await.err().unwrap().to_string();
    assert!(
        error.contains("lineage.parquet: it is not a readable Parquet file"),
        "{error}"
    );
    std::fs::remove_file(path.join("lineage.parquet")).unwrap();
    let error = other.sql(&import).await.err().unwrap().to_string();
    assert!(error.contains("lineage.parquet"), "{error}");
    broken(
        "manifest.json",
        r#"{"format_version":99,"skewer":"9.0","query_id":1,"sql":"","tables":{}}"#,
    );
    let error = other.sql(&import).await.err().unwrap().to_string();
    assert!(
        error.contains("format_version is 99, written by Skewer 9.0"),
        "{error}"
    );
    let error = other
        .sql("IMPORT PROFILE FROM '/nowhere'")
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("it is no exported profile"), "{error}");
    let error = session
        .sql("EXPORT PROFILE 4711 TO 'x'")
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.starts_with("sys.queries has no query 4711"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_operators_are_exported_as_trace_events() {
    let database = Database::builder()
        .workers(3)
        .worker_threads(2)
        .build()
        .unwrap();
    let session = database.session();
    let create =
        "CREATE TABLE t AS SELECT value % 7 AS k, value AS v FROM generate_series(1, 30000)";
    session.sql(create).await.unwrap().collect().await.unwrap();
    let query = "SELECT k, count(*), max(v) FROM t GROUP BY k ORDER BY k";
    lines(&session, &format!("EXPLAIN PROFILE (LEVEL calls) {query}")).await;
    let id = number(&session, "SELECT last_query_id()").await;
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("trace.json");
    let export = format!(
        "EXPORT PROFILE {id} TO '{}' (FORMAT perfetto)",
        path.display()
    );
    session.sql(&export).await.unwrap().collect().await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(trace["displayTimeUnit"], "ns");
    let events = trace["traceEvents"].as_array().unwrap();

    // Chrome's trace event format: complete events and metadata, each with what it must have.
    let mut calls = Vec::new();
    let mut named = std::collections::BTreeSet::new();
    for event in events {
        let number = |field: &str| {
            event[field]
                .as_f64()
                .unwrap_or_else(|| panic!("{field}: {event}"))
        };
        let thread = (number("pid") as i64, number("tid") as i64);
        assert!(
            event["name"].as_str().is_some_and(|name| !name.is_empty()),
            "{event}"
        );
        match event["ph"].as_str() {
            Some("M") => {
                assert!(event["args"]["name"].is_string(), "{event}");
                named.insert((event["name"].as_str().unwrap().to_owned(), thread));
            }
            Some("X") => {
                let (from, length) = (number("ts"), number("dur"));
                assert!(from >= 0.0 && length >= 0.0, "{event}");
                assert!(event["args"]["rows"].is_i64(), "{event}");
                calls.push((thread, from, from + length));
            }
            _ => panic!("no such phase: {event}"),
        }
    }
    let sys = format!("SELECT count(*) FROM sys.operator_calls WHERE query_id = {id}");
    assert_eq!(calls.len() as i64, number(&session, &sys).await);
    let workers: std::collections::BTreeSet<i64> = calls.iter().map(|call| call.0.0).collect();
    assert!(workers.len() > 1, "{workers:?}");
    for (thread, ..) in &calls {
        assert!(
            named.contains(&("thread_name".to_owned(), *thread)),
            "{thread:?}"
        );
        assert!(
            named.contains(&("process_name".to_owned(), (thread.0, 0))),
            "{thread:?}"
        );
    }
    // Calls of a thread are within each other or apart.
    calls.sort_by(|a, b| {
        a.0.cmp(&b.0)
            .then(a.1.total_cmp(&b.1))
            .then(b.2.total_cmp(&a.2))
    });
    let mut open: Vec<((i64, i64), f64)> = Vec::new();
    for (thread, from, to) in calls {
        // Rounding to a floating-point number of microseconds.
        let epsilon = 1e-3;
        open.retain(|(other, end)| *other == thread && *end > from + epsilon);
        assert!(
            open.iter().all(|(_, end)| *end + epsilon >= to),
            "{thread:?} at {from}"
        );
        open.push((thread, to));
    }
    // At level counters there is nothing to draw.
    session.sql(query).await.unwrap().collect().await.unwrap();
    let id = number(&session, "SELECT last_query_id()").await;
    let export = format!(
        "EXPORT PROFILE {id} TO '{}' (FORMAT perfetto)",
        path.display()
    );
    let error = session.sql(&export).await.err().unwrap().to_string();
    assert!(
        error.contains("EXPLAIN PROFILE (LEVEL calls) QUERY"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_was_only_counted_has_a_diagnosis_and_the_way_to_look_closer() {
    let session = Database::builder()
        .worker_threads(2)
        .build()
        .unwrap()
        .session();
    session.register_row_udf(
        "slow",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Immutable,
        |arguments| {
            if matches!(arguments[0], ScalarValue::Int64(Some(7..=9))) {
                std::thread::sleep(SLOW);
            }
            Ok(arguments[0].clone())
        },
    );
    let create = "CREATE TABLE t AS SELECT value AS v, \
                  CASE WHEN value % 10 > 0 THEN 0 ELSE value END AS k \
                  FROM generate_series(1, 300000)";
    session.sql(create).await.unwrap().collect().await.unwrap();
    let diagnoses = async |sql: &str| {
        session.sql(sql).await.unwrap().collect().await.unwrap();
        let id = number(&session, "SELECT last_query_id()").await;
        let found = format!(
            "SELECT rule || ': ' || coalesce(zoom_sql, '') || ' ' || advice FROM sys.diagnoses \
             WHERE query_id = {id} ORDER BY rule"
        );
        (id, column(&session, &found).await)
    };
    let (id, found) = diagnoses("SELECT max(slow(v)) FROM t").await;
    let zoom = format!("EXPLAIN PROFILE QUERY {id} ");
    let tasks = "concat_ws(' ', operator_id, partition, rows_in, rows_out, self_ns)";
    let tasks = format!("SELECT {tasks} FROM sys.operator_stats WHERE query_id = {id} ORDER BY 1");
    let tasks = column(&session, &tasks).await;
    for rule in ["slow rows", "task imbalance"] {
        let start = format!("{rule}: {zoom}");
        assert!(
            found.iter().any(|one| one.starts_with(&start)),
            "{rule}: {found:?} {tasks:?}"
        );
    }
    let report = lines(&session, zoom.trim_end()).await.join("\n");
    assert!(report.contains("● Row "), "{report}");

    let window = "SELECT max(r) FROM (SELECT row_number() OVER (PARTITION BY k) AS r FROM t)";
    let (_, found) = diagnoses(window).await;
    let skew = found
        .iter()
        .find(|one| one.starts_with("data skew: EXPLAIN PROFILE QUERY"));
    let skew = skew.unwrap_or_else(|| panic!("{found:?}"));
    assert!(skew.contains("% of all rows have the key 0"), "{skew}");

    // What changes something is not offered to be run again.
    let (_, found) = diagnoses(&format!("CREATE TABLE u AS {window}")).await;
    assert!(
        found.iter().any(|one| one.starts_with("data skew:  ")),
        "{found:?}"
    );

    let (_, found) = diagnoses("SELECT count(*) FROM generate_series(1, 10)").await;
    assert_eq!(found, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_expired_is_told_from_what_never_was() {
    let session = Database::in_memory().unwrap().session();
    for n in 0..3 {
        let sql = format!("SELECT {n} AS n FROM generate_series(1, 10)");
        session.sql(&sql).await.unwrap().collect().await.unwrap();
    }
    let last = number(&session, "SELECT last_query_id()").await;
    // Asking for the last query was one.
    let newest = last + 1;
    let error = session.sql(&format!("SHOW PROFILE {}", last + 2)).await;
    let error = error.err().unwrap().to_string();
    assert_eq!(
        error,
        format!(
            "sys.queries has no query {}; the newest is {newest}",
            last + 2
        )
    );
    // The log is written, and looked through, whenever that is set.
    let set = "SET profile.retention_age = '1 second'";
    let left = format!("SELECT count(*) FROM sys.queries WHERE query_id <= {last}");
    let begun = std::time::Instant::now();
    loop {
        session.sql(set).await.unwrap().collect().await.unwrap();
        if number(&session, &left).await == 0 {
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "nothing has expired"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let sql = "SELECT 1 FROM generate_series(1, 10)";
    session.sql(sql).await.unwrap().collect().await.unwrap();
    for statement in ["SHOW PROFILE", "EXPLAIN PROFILE QUERY"] {
        let error = session.sql(&format!("{statement} {last}")).await;
        let error = error.err().unwrap().to_string();
        assert!(
            error.starts_with(&format!("sys.queries has no query {last}; ")),
            "{error}"
        );
        assert!(error.contains("profile.retention_age"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_of_a_failed_query_ends_with_the_statement_that_shows_what_it_did() {
    let (session, _) = slow_on_one_record().await;
    let sql = "EXPLAIN PROFILE SELECT k, max(10 / (v - 2000)) FROM measurements GROUP BY k";
    let error = session.sql(sql).await.err().unwrap().to_string();
    assert!(error.starts_with("division by zero\n"), "{error}");
    let (_, show) = error.rsplit_once(": ").unwrap();
    assert!(show.starts_with("SHOW PROFILE "), "{error}");
    let all = lines(&session, show).await.join("\n");
    let partial = "! The query failed, what follows is what it did until then: division by zero";
    assert!(all.contains(partial), "{all}");
    assert!(all.contains("Scan measurements"), "{all}");
}
