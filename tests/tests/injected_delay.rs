//! One random record is delayed: it is the top expensive input, in this process, on three workers
//! in it, and on three that are processes of their own. (`benches` has this experiment at full size
//! and down to 200 µs.)

use std::time::Duration;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use skewer::{Database, DatabaseBuilder, Session};
use skewer_tests::cluster::Cluster;
use skewer_tests::contents::query;
use skewer_tests::delays::{self, DELAY, OF_COLUMNS, OF_ROWS};

const ROWS: i64 = 20_000;
const TRIALS: usize = 3;

fn options(builder: DatabaseBuilder) -> DatabaseBuilder {
    builder.worker_threads(2).functions(delays::functions())
}

fn embedded(workers: usize) -> Session {
    let builder = options(Database::builder()).workers(workers);
    builder.build().unwrap().session()
}

fn three_processes() -> Cluster {
    let program = env!("CARGO_BIN_EXE_worker_with_delays");
    Cluster::of_program(program, 3, options)
}

/// Delays one student in each of some runs, and asks for the most expensive input of each.
async fn expect_found(session: Session, workers: usize, function: &str) {
    let sql = format!(
        "CREATE TABLE students AS SELECT value AS student, value * 7919 % 13 AS grade, \
         5 + value * 31 % 17 AS age FROM generate_series(0, {})",
        ROWS - 1
    );
    session.sql(&sql).await.unwrap();
    session.sql("SET profile.level = 'records'").await.unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(10);
    for _ in 0..TRIALS {
        let student = random.random_range(0..ROWS);
        let sql = format!(
            "SELECT grade, avg({function}(student, age, {student})) FROM students GROUP BY grade"
        );
        let stream = session.sql(&sql).await.unwrap();
        let query_id = stream.query_id().unwrap();
        let batches = stream.collect().await.unwrap();
        let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
        assert_eq!(rows, 13);

        // The function is called where the rows are.
        let sql = format!(
            "SELECT count(DISTINCT worker_id) \
             FROM sys.operator_stats JOIN sys.operators USING (query_id, operator_id) \
             WHERE query_id = {query_id} AND details LIKE '%{function}%' AND rows_in > 0"
        );
        let evaluated = query(&session, &sql).await.unwrap();
        assert_eq!(evaluated, [workers.to_string()], "{function}");

        let sql = format!(
            "SELECT student, impact_ns FROM sys.expensive_inputs AS e \
             JOIN students AS s ON e.row_id = s._row_id AND e.table_name = 'main.students' \
             WHERE query_id = {query_id} AND rank = 1"
        );
        let top = session.sql(&sql).await.unwrap().collect().await.unwrap();
        let top = top
            .iter()
            .find(|batch| batch.num_rows() > 0)
            .expect("a row");
        let [found, impact] = [0, 1].map(|at| top.column(at).as_primitive::<Int64Type>().value(0));
        assert_eq!(found, student, "not the delayed record is on top");
        let impact = Duration::from_nanos(impact.unsigned_abs());
        assert!(
            impact > DELAY / 2,
            "the delay of {DELAY:?} counts as {impact:?}"
        );
    }
}

#[tokio::test]
async fn a_record_delayed_in_a_function_over_columns_is_the_top_expensive_input() {
    expect_found(embedded(1), 1, OF_COLUMNS).await;
}

#[tokio::test]
async fn a_record_delayed_in_a_function_of_one_row_is_the_top_expensive_input() {
    expect_found(embedded(1), 1, OF_ROWS).await;
}

#[tokio::test]
async fn a_record_delayed_on_one_of_three_workers_is_the_top_expensive_input() {
    expect_found(embedded(3), 3, OF_COLUMNS).await;
    expect_found(embedded(3), 3, OF_ROWS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_delayed_in_a_function_over_columns_of_a_process_is_the_top_expensive_input() {
    let cluster = three_processes();
    expect_found(cluster.session(), 3, OF_COLUMNS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_delayed_in_a_function_of_one_row_of_a_process_is_the_top_expensive_input() {
    let cluster = three_processes();
    expect_found(cluster.session(), 3, OF_ROWS).await;
}

/// What a row of a join takes is its record's whose columns the function reads, and counts once where it
/// reads those of both.
#[tokio::test]
async fn a_delayed_record_of_a_join_is_told_from_the_one_that_it_is_joined_with() {
    const DELAYED: i64 = 777;
    let session = embedded(1);
    // The first table by name and by age is not the one that is to be named.
    for sql in [
        "CREATE TABLE people AS SELECT value AS person, value % 3 AS bonus FROM generate_series(0, 1999)",
        "CREATE TABLE students AS SELECT value AS student, value % 7 AS grade, value % 17 AS age \
         FROM generate_series(0, 1999)",
        "SET profile.level = 'records'",
    ] {
        session.sql(sql).await.unwrap();
    }
    let joined = "FROM people AS p JOIN students AS s ON p.person = s.student GROUP BY grade";
    let of_one = format!("SELECT grade, sum({OF_COLUMNS}(student, age, {DELAYED})) {joined}");
    let of_each = format!(
        "SELECT grade, sum({OF_COLUMNS}(person, bonus, -1)), sum({OF_COLUMNS}(student, age, {DELAYED})) \
         {joined}"
    );
    let of_both = format!("SELECT grade, sum({OF_COLUMNS}(student, bonus, {DELAYED})) {joined}");
    // What has taken time before goes on.
    let after_others = format!(
        "SELECT grade, sum({OF_COLUMNS}(taken, bonus, {DELAYED})) FROM people AS p JOIN (\
         SELECT student, grade, {OF_COLUMNS}(student, student, -1) AS taken FROM students) AS s \
         ON p.person = s.student GROUP BY grade"
    );
    for lineage in ["log", "piggyback"] {
        session
            .sql(&format!("SET profile.lineage = '{lineage}'"))
            .await
            .unwrap();
        // The table that is named, and all whose time it is.
        for (sql, named, culprits) in [
            (&of_one, "main.students", &["main.students"][..]),
            (&of_each, "main.students", &["main.students"]),
            (&of_both, "main.people", &["main.people", "main.students"]),
            (
                &after_others,
                "main.students",
                &["main.people", "main.students"],
            ),
        ] {
            let stream = session.sql(sql).await.unwrap();
            let query_id = stream.query_id().unwrap();
            stream.collect().await.unwrap();
            let top = format!(
                "SELECT table_name FROM sys.expensive_inputs WHERE query_id = {query_id} AND rank = 1 \
                 AND row_id = {DELAYED} AND impact_ns > {}",
                DELAY.as_nanos() / 2
            );
            let top = query(&session, &top).await.unwrap();
            assert_eq!(top, [named], "{lineage}: {sql}");
            if lineage == "log" {
                let charged = format!(
                    "SELECT DISTINCT table_name FROM sys.record_latency WHERE query_id = {query_id} \
                     AND latency_ns > {} AND kind = 'computation' ORDER BY table_name",
                    DELAY.as_nanos() / 2
                );
                let charged = query(&session, &charged).await.unwrap();
                assert_eq!(charged, culprits, "{sql}");
            }
        }
    }
}
