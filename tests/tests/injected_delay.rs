//! One random record is delayed: it is the top expensive input. (`benches` has this experiment at
//! full size and down to 200 µs; here the delay is so long that a busy machine cannot matter.)

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use skewer::{Database, Session};

const ROWS: i64 = 20_000;
const DELAY: Duration = Duration::from_millis(60);
const TRIALS: usize = 3;

async fn students() -> Session {
    let session = Database::builder()
        .worker_threads(2)
        .build()
        .unwrap()
        .session();
    let sql = format!(
        "CREATE TABLE students AS SELECT value AS student, value * 7919 % 13 AS grade, \
         5 + value * 31 % 17 AS age FROM generate_series(0, {})",
        ROWS - 1
    );
    session.sql(&sql).await.unwrap();
    session.sql("SET profile.level = 'records'").await.unwrap();
    session
}

fn delay(student: i64, delayed: i64) {
    if student == delayed {
        std::thread::sleep(DELAY);
    }
}

fn first(batches: &[RecordBatch], column: usize) -> i64 {
    let batch = batches
        .iter()
        .find(|batch| batch.num_rows() > 0)
        .expect("a row");
    batch.column(column).as_primitive::<Int64Type>().value(0)
}

/// Registers `checked(student, age)` with a delay for one student, runs the query and asks.
async fn expect_found(register: impl Fn(&Session, i64)) {
    let session = students().await;
    let mut random = ChaCha8Rng::seed_from_u64(10);
    for _ in 0..TRIALS {
        let student = random.random_range(0..ROWS);
        register(&session, student);
        let sql = "SELECT grade, avg(checked(student, age)) FROM students GROUP BY grade";
        let stream = session.sql(sql).await.unwrap();
        let query_id = stream.query_id().unwrap();
        assert_eq!(
            stream
                .collect()
                .await
                .unwrap()
                .iter()
                .map(RecordBatch::num_rows)
                .sum::<usize>(),
            13
        );
        let sql = format!(
            "SELECT student, row_id, impact_ns FROM sys.expensive_inputs AS e \
             JOIN students AS s ON e.row_id = s._row_id AND e.table_name = 'main.students' \
             WHERE query_id = {query_id} AND rank = 1"
        );
        let top = session.sql(&sql).await.unwrap().collect().await.unwrap();
        assert_eq!(first(&top, 0), student, "not the delayed record is on top");
        let impact = Duration::from_nanos(first(&top, 2) as u64);
        assert!(
            impact > DELAY / 2,
            "the delay of {DELAY:?} counts as {impact:?}"
        );
    }
}

#[tokio::test]
async fn a_record_delayed_in_a_function_over_columns_is_the_top_expensive_input() {
    expect_found(|session, delayed| {
        session.register_udf(create_udf(
            "checked",
            vec![DataType::Int64, DataType::Int64],
            DataType::Int64,
            Volatility::Immutable,
            Arc::new(move |arguments| {
                let columns = ColumnarValue::values_to_arrays(arguments)?;
                let students = columns[0].as_primitive::<Int64Type>().values();
                let ages = columns[1].as_primitive::<Int64Type>().iter();
                let ages: Int64Array = students
                    .iter()
                    .zip(ages)
                    .map(|(student, age)| {
                        delay(*student, delayed);
                        age
                    })
                    .collect();
                Ok(ColumnarValue::Array(Arc::new(ages) as ArrayRef))
            }),
        ));
    })
    .await;
}

#[tokio::test]
async fn a_record_delayed_in_a_function_of_one_row_is_the_top_expensive_input() {
    expect_found(|session, delayed| {
        session.register_row_udf(
            "checked",
            vec![DataType::Int64, DataType::Int64],
            DataType::Int64,
            Volatility::Immutable,
            move |row| {
                if let ScalarValue::Int64(Some(student)) = row[0] {
                    delay(student, delayed);
                }
                Ok(row[1].clone())
            },
        );
    })
    .await;
}
