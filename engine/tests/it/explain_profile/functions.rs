//! Functions that do not take the same again: that fail, remember, or must not be asked twice.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use datafusion::arrow::array::{AsArray, Int64Array};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use skewer::{Database, Session};

use super::{SLOW, number, slow_on_one_record};

/// What a function does with a value that it has seen.
#[derive(Clone, Copy, PartialEq)]
enum Again {
    Fails,
    Remembers,
}

/// Registers `whole`, a function of whole columns that takes `SLOW` of 1234, and does `again` with
/// values that come once more.
fn register_whole(session: &Session, again: Again) {
    let seen = Mutex::new(HashSet::new());
    let function = move |arguments: &[ColumnarValue]| {
        let values = ColumnarValue::values_to_arrays(arguments)?;
        let values: &Int64Array = values[0].as_primitive::<Int64Type>();
        let mut seen = seen.lock().unwrap();
        for value in values.iter().flatten() {
            let is_new = seen.insert(value);
            match again {
                Again::Fails if !is_new => return exec_err!("{value} was asked for already"),
                _ if is_new && value == 1234 => std::thread::sleep(SLOW),
                _ => {}
            }
        }
        Ok(ColumnarValue::Array(Arc::new(values.clone())))
    };
    let (of, to) = (vec![DataType::Int64], DataType::Int64);
    session.register_udf(create_udf(
        "whole",
        of,
        to,
        Volatility::Immutable,
        Arc::new(function),
    ));
}

async fn profile(session: &Session, query: &str) {
    let profile = format!("EXPLAIN PROFILE {query}");
    session
        .sql(&profile)
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_fails_or_remembers_when_it_is_asked_again_keeps_the_time_it_took() {
    for again in [Again::Fails, Again::Remembers] {
        let (session, id) = slow_on_one_record().await;
        register_whole(&session, again);
        let query = "SELECT k, max(whole(v)) FROM measurements GROUP BY k";
        profile(&session, query).await;
        let of_query = "FROM sys.record_latency WHERE query_id = last_query_id()
                        AND table_name = 'main.measurements'";
        let sum = format!("SELECT CAST(sum(latency_ns) AS BIGINT) {of_query}");
        let sum = number(&session, &sum).await;
        assert!(sum >= SLOW.as_nanos() as i64, "{sum} ns");
        // Of its chunk nobody knows more than that it may be this one.
        let own = format!(
            "SELECT CAST(sum(latency_ns + error_ns) AS BIGINT) {of_query} AND row_id = {id}"
        );
        let own = number(&session, &own).await;
        assert!(own as f64 > 0.9 * SLOW.as_nanos() as f64, "{own} ns");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_takes_seconds_is_found_without_waiting_for_it_again() {
    const SECONDS: Duration = Duration::from_millis(1_100);
    let (session, id) = slow_on_one_record().await;
    let calls = Arc::new(AtomicU64::new(0));
    // Called again, it would take for ever: until the test ends.
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let (counted, ended) = (Arc::clone(&calls), Mutex::new(ended));
    let function = move |arguments: &[ColumnarValue]| {
        let values = ColumnarValue::values_to_arrays(arguments)?;
        if values[0]
            .as_primitive::<Int64Type>()
            .iter()
            .any(|value| value == Some(1234))
        {
            match counted.fetch_add(1, Ordering::Relaxed) {
                0 => std::thread::sleep(SECONDS),
                _ => ended.lock().unwrap().recv().unwrap_or_default(),
            }
        }
        Ok(ColumnarValue::Array(Arc::clone(&values[0])))
    };
    let (of, to) = (vec![DataType::Int64], DataType::Int64);
    let function = create_udf("whole", of, to, Volatility::Immutable, Arc::new(function));
    session.register_udf(function);
    let query = "SELECT k, max(whole(v)) FROM measurements GROUP BY k";
    profile(&session, query).await;
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    let found = format!(
        "SELECT count(*) FROM sys.record_latency WHERE query_id = last_query_id()
         AND table_name = 'main.measurements' AND row_id = {id} AND method = 'replayed'
         AND abs(latency_ns - {}) <= error_ns AND error_ns < 200000000",
        SECONDS.as_nanos()
    );
    assert_eq!(number(&session, &found).await, 1);
    drop(end);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_may_be_a_stall_and_fails_when_it_is_made_again_is_blamed() {
    let (session, id) = slow_on_one_record().await;
    let seen = Mutex::new(HashSet::new());
    session.register_row_udf(
        "once",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Immutable,
        move |arguments| {
            let ScalarValue::Int64(Some(value)) = arguments[0] else {
                return Ok(ScalarValue::Int64(None));
            };
            if !seen.lock().unwrap().insert(value) {
                return exec_err!("{value} was asked for already");
            }
            if value == 1234 {
                std::thread::sleep(Duration::from_millis(40));
            }
            Ok(ScalarValue::Int64(Some(value)))
        },
    );
    profile(
        &session,
        "SELECT k, max(once(v)) FROM measurements GROUP BY k",
    )
    .await;
    let own = format!(
        "SELECT CAST(sum(latency_ns) AS BIGINT) FROM sys.record_latency
         WHERE query_id = last_query_id() AND table_name = 'main.measurements' AND row_id = {id}"
    );
    let own = number(&session, &own).await;
    assert!(own >= 40_000_000, "{own} ns");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volatile_function_is_asked_once_for_each_row() {
    let (session, id) = slow_on_one_record().await;
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    session.register_row_udf(
        "volatile",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Volatile,
        move |arguments| {
            counted.fetch_add(1, Ordering::Relaxed);
            if arguments[0] == ScalarValue::Int64(Some(1234)) {
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(arguments[0].clone())
        },
    );
    profile(&session, "SELECT max(volatile(v)) FROM measurements").await;
    assert_eq!(calls.load(Ordering::Relaxed), 3000);
    let own = format!(
        "SELECT CAST(sum(latency_ns) AS BIGINT) FROM sys.record_latency
         WHERE query_id = last_query_id() AND row_id = {id} AND method = 'measured'"
    );
    let own = number(&session, &own).await;
    assert!(own >= 20_000_000, "{own} ns");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_that_takes_long_to_compile_is_not_compiled_for_each_row() {
    let session = Database::in_memory().unwrap().session();
    let create = "CREATE TABLE words AS SELECT value AS id, 'word ' || value AS s \
                  FROM generate_series(1, 5000)";
    session.sql(create).await.unwrap().collect().await.unwrap();
    // It takes longer than a chunk should, whichever rows are in it.
    profile(
        &session,
        "SELECT count(*) FROM words WHERE s ~ '([a-z]|[0-9]){10,400} x'",
    )
    .await;
    let alone = "SELECT count(*) FROM sys.record_latency \
                 WHERE query_id = last_query_id() AND method = 'measured'";
    let alone = number(&session, alone).await;
    assert!(alone < 500, "{alone} of 5,000 rows were evaluated alone");
}
