//! EXPLAIN PROFILE of queries that few records make slow.

mod columns;
mod compared;
mod diagnoses;
mod exported;
mod functions;
mod kinds;
mod quarantine;
mod report;

use std::time::Duration;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Volatility;
use skewer::{Database, Session};

/// Much longer than any hiccup of a busy machine.
const SLOW: Duration = Duration::from_millis(400);

/// Registers `slow`, which gives its argument back and takes `SLOW` for some.
fn register_slow(session: &Session, is_slow: fn(i64) -> bool) {
    session.register_row_udf(
        "slow",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Immutable,
        move |arguments| {
            if matches!(arguments[0], ScalarValue::Int64(Some(value)) if is_slow(value)) {
                std::thread::sleep(SLOW);
            }
            Ok(arguments[0].clone())
        },
    );
}

/// A table whose record with `v = 1234` takes `slow` long, and the id of that record.
async fn slow_on_one_record() -> (Session, i64) {
    let session = Database::in_memory().unwrap().session();
    register_slow(&session, |value| value == 1234);
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

async fn number(session: &Session, sql: &str) -> i64 {
    let batches = session.sql(sql).await.unwrap().collect().await.unwrap();
    batches[0].column(0).as_primitive::<Int64Type>().value(0)
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
