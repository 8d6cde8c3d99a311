//! `profile.sample_rate` where grouping would have nearly every group traced.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use skewer::{Database, DatabaseBuilder, Session};

const ROWS: usize = 400_000;

/// The numbers of the first row.
async fn numbers(session: &Session, sql: &str) -> Vec<f64> {
    let batches = session.sql(sql).await.unwrap().collect().await.unwrap();
    let numbers = batches[0].columns().iter().map(|column| {
        let column = cast(column, &DataType::Float64).unwrap();
        column.as_primitive::<Float64Type>().value(0)
    });
    numbers.collect()
}

async fn run(session: &Session, sql: &str) {
    session.sql(sql).await.unwrap().collect().await.unwrap();
}

/// A table of `groups` groups of the same size, in turn, and a session that traces a share of it.
async fn sampled(builder: DatabaseBuilder, groups: usize, rate: f64) -> Session {
    let session = builder.worker_threads(2).build().unwrap().session();
    let create = format!(
        "CREATE TABLE t AS SELECT value % {groups} AS g, value AS v
         FROM generate_series(1, {ROWS})"
    );
    run(&session, &create).await;
    run(&session, "SET profile.level = 'records'").await;
    run(&session, &format!("SET profile.sample_rate = {rate}")).await;
    session
}

/// Of the last query: the rate in the end, and the share of its `rows` result rows that are traced.
async fn traced(session: &Session, rows: usize) -> (f64, f64) {
    let found = numbers(
        session,
        "SELECT (SELECT sample_rate FROM sys.queries WHERE query_id = last_query_id()),
                (SELECT count(*) FROM sys.output_records
                 WHERE query_id = last_query_id() AND record_id IS NOT NULL)",
    )
    .await;
    (found[0], found[1] / rows as f64)
}

/// Of the last query over `t`: the records that the rate in the end admits, and those among them
/// that lead to a result row.
async fn admitted_and_arrived(session: &Session, rate: f64) -> (f64, f64) {
    let found = numbers(
        session,
        &format!(
            "WITH RECURSIVE edges AS (
               SELECT output_id, input_id, table_name FROM sys.lineage
               WHERE query_id = last_query_id()
             ),
             groups AS (
               SELECT record_id AS id FROM sys.output_records WHERE query_id = last_query_id()
               UNION
               SELECT below.input_id FROM groups
               JOIN edges AS below ON below.output_id = groups.id
               WHERE below.table_name IS NULL
             )
             SELECT (SELECT count(*) FROM t WHERE is_sampled(_row_id, {rate:e})),
                    (SELECT count(DISTINCT input_id) FROM edges JOIN groups ON output_id = id
                     WHERE table_name = 'main.t' AND is_sampled(input_id, {rate:e}))"
        ),
    )
    .await;
    (found[0], found[1])
}

#[tokio::test]
async fn the_rate_falls_where_nearly_every_group_would_be_traced() {
    let builders: [fn() -> DatabaseBuilder; 2] =
        [Database::builder, || Database::builder().workers(3)];
    for builder in builders {
        // With partial aggregation and without.
        let groups = 12_000;
        for skipping in ["0.8", "0.0"] {
            let session = sampled(builder(), groups, 0.5).await;
            let skip = [
                "probe_rows_threshold = 100".to_owned(),
                format!("probe_ratio_threshold = {skipping}"),
            ];
            for setting in skip {
                let set = format!("SET datafusion.execution.skip_partial_aggregation_{setting}");
                run(&session, &set).await;
            }
            run(&session, "SELECT g, count(*), max(v) FROM t GROUP BY g").await;
            let (rate, share) = traced(&session, groups).await;
            assert!((0.01..=0.125).contains(&rate), "{rate} {skipping}");
            assert!((0.2..0.97).contains(&share), "{share} {skipping}");
            // What the rate of the end admits is there from the first row to the last.
            let (admitted, arrived) = admitted_and_arrived(&session, rate).await;
            assert_eq!(admitted, arrived, "{rate} {skipping}");
        }
    }
}

#[tokio::test]
async fn the_rate_stays_where_groups_are_few_or_small() {
    for groups in [100, ROWS] {
        let session = sampled(Database::builder(), groups, 0.5).await;
        run(&session, "SELECT g, count(*) FROM t GROUP BY g").await;
        let (rate, share) = traced(&session, groups).await;
        assert_eq!(rate, 0.5, "{groups}");
        assert!(share > 0.45, "{share}");
    }
    let session = sampled(Database::builder(), 4_000, 1.0).await;
    run(&session, "SELECT g, count(*) FROM t GROUP BY g").await;
    assert_eq!(traced(&session, 4_000).await, (1.0, 1.0));
}

#[tokio::test]
async fn what_is_chosen_arrives_where_there_is_one_group_or_groups_are_written_to_disk() {
    // The second rate chooses no row of so few.
    for (rate, chosen) in [(0.01, true), (1e-12, false)] {
        let session = sampled(Database::builder(), 100, rate).await;
        run(&session, "SELECT count(*), sum(v) FROM t").await;
        let (admitted, arrived) = admitted_and_arrived(&session, rate).await;
        assert_eq!((admitted, admitted > 0.0), (arrived, chosen), "{rate}");
        assert_eq!(traced(&session, 1).await.1 > 0.0, chosen, "{rate}");
        // In two steps.
        let between = "SELECT count(*) FROM sys.lineage
                       WHERE query_id = last_query_id() AND table_name IS NULL";
        assert_eq!(numbers(&session, between).await[0] > 0.0, chosen, "{rate}");
    }

    let little = || Database::builder().memory_limit(12 << 20);
    let session = sampled(little(), ROWS, 0.01).await;
    run(&session, "SET datafusion.execution.batch_size = 1024").await;
    run(
        &session,
        "SELECT g, count(*), min(v), max(v) FROM t GROUP BY g",
    )
    .await;
    let merged = "SELECT count(*) FROM sys.operators
                  WHERE query_id = last_query_id() AND kind = 'spilled groups'";
    assert!(numbers(&session, merged).await[0] > 0.0);
    let (admitted, arrived) = admitted_and_arrived(&session, 0.01).await;
    assert!(admitted > 1000.0);
    assert_eq!(admitted, arrived);
}
