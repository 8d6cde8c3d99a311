//! The report over fixed rows of schema `sys`, against golden files.
//!
//! `SKEWER_REGENERATE=1 cargo test -p skewer report` writes the files anew: review the difference.

mod anomalies;
mod case;
mod cases;
mod lost_worker;
mod without_record;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::catalog::{
    CatalogProvider, MemTable, MemoryCatalogProvider, MemorySchemaProvider, SchemaProvider,
    TableProvider,
};
use datafusion::prelude::{SessionConfig, SessionContext};
use skewer_profiling::SysTables;
use skewer_profiling::sampling::Choice;
use skewer_sql::ProfileFormat;
use unicode_width::UnicodeWidthStr;

use super::answer::Ask;
use super::{Circumstances, Options, Report};
use crate::error::Error;
use crate::tables_read::TablesRead;
use case::QUERY;
use cases::Carts;

/// Schema `sys` in a context of its own, and one user table from which every record is fetched.
struct Fixture {
    context: SessionContext,
    tables: Arc<SysTables>,
}

impl Fixture {
    fn new(tables: &Arc<SysTables>) -> Self {
        let config = SessionConfig::new()
            .with_default_catalog_and_schema("skewer", "main")
            .with_target_partitions(2);
        let context = SessionContext::new_with_config(config);
        let catalog = MemoryCatalogProvider::new();
        catalog
            .register_schema("sys", tables.schema_provider())
            .unwrap();
        let main = MemorySchemaProvider::new();
        main.register_table("input".to_owned(), input()).unwrap();
        catalog.register_schema("main", Arc::new(main)).unwrap();
        context.register_catalog("skewer", Arc::new(catalog));
        tables.register_functions(&context);
        Self {
            context,
            tables: Arc::clone(tables),
        }
    }
}

/// The table of figure 5; the second line is long.
fn input() -> Arc<dyn TableProvider> {
    let lines = (1..=5).map(|row| "lorem ipsum ".repeat(if row == 2 { 1000 } else { 10 + row }));
    let batch = RecordBatch::try_from_iter([
        (
            "name",
            Arc::new(StringArray::from(vec!["h1", "h2", "h3", "h4", "h5"])) as ArrayRef,
        ),
        ("line", Arc::new(StringArray::from_iter_values(lines))),
        ("_row_id", Arc::new(Int64Array::from(vec![1, 2, 3, 4, 5]))),
    ]);
    let batch = batch.unwrap();
    Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap())
}

#[async_trait]
impl Ask for Fixture {
    async fn ask(&self, sql: &str) -> Result<Vec<RecordBatch>, Error> {
        if let Some((_, row_id)) = sql.split_once(" WHERE _row_id = ") {
            let column = |text: String| Arc::new(StringArray::from(vec![text])) as ArrayRef;
            let record = RecordBatch::try_from_iter([
                ("name", column(format!("h{row_id}"))),
                ("line", column("lorem ipsum ".repeat(1000))),
            ]);
            return Ok(vec![record?]);
        }
        Ok(self.context.sql(sql).await?.collect().await?)
    }

    async fn view_sql(&self, view: &str, query_id: i64) -> Result<String, Error> {
        Ok(self.tables.expanded_sql(view, query_id).await?)
    }

    fn replaced(&self, _tables_read: &TablesRead) -> Vec<String> {
        Vec::new()
    }
}

async fn report(tables: &Arc<SysTables>) -> Report {
    let (fixture, circumstances) = (Fixture::new(tables), Circumstances::default());
    let report = Report::read(&fixture, QUERY, &circumstances);
    report.await.unwrap()
}

fn written(report: &Report, format: ProfileFormat, as_sql: bool) -> Vec<String> {
    report.lines(Options { format, as_sql })
}

/// Compares with a golden file, or writes it.
fn golden(file: &str, lines: &[String]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/report/golden");
    skewer_testing::golden(&path.join(file), &(lines.join("\n") + "\n"));
}

/// Checks a report's text against its file, and that it fits into a terminal.
fn golden_text(file: &str, report: &Report) {
    let lines = written(report, ProfileFormat::Text, false);
    for line in &lines {
        assert!(line.width() <= super::layout::WIDTH, "too wide: {line}");
        assert_eq!(line.trim_end(), line);
    }
    golden(file, &lines);
}

#[tokio::test(flavor = "multi_thread")]
async fn figure_5_names_h2() {
    let report = report(&cases::figure_5()).await;
    golden_text("figure_5.txt", &report);
    golden(
        "figure_5.json",
        &written(&report, ProfileFormat::Json, false),
    );
    golden(
        "figure_5.dot",
        &written(&report, ProfileFormat::Graphviz, false),
    );
    golden("figure_5.sql", &written(&report, ProfileFormat::Text, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_key_is_blamed_on_shuffle_latency_and_on_no_record() {
    let report = report(&cases::hot_key()).await;
    assert!(report.inputs.anomalous().next().is_none());
    golden_text("hot_key.txt", &report);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_with_much_work_in_sum_is_named_though_nothing_waits_for_it() {
    golden_text("self_time.txt", &report(&cases::self_time()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_most_rows_were_made_of_is_named_though_no_expression_took_long() {
    let carts = Carts::default();
    let of_all = report(&carts.fan_out()).await;
    golden_text("fan_out.txt", &of_all);
    golden(
        "fan_out.json",
        &written(&of_all, ProfileFormat::Json, false),
    );
    for (carts, named) in [
        (Carts { large: 3, ..carts }, false),
        // Ten times the mean of the others is the least.
        (Carts { large: 29, ..carts }, false),
        (Carts { large: 30, ..carts }, true),
        // Of few carts one may stand out, but not alone.
        (Carts { carts: 1, ..carts }, false),
        // Its rows took 384 ms, more or less than 5 % of the query.
        (
            Carts {
                large: 96,
                scan_ms: 6_500,
                ..carts
            },
            true,
        ),
        (
            Carts {
                large: 96,
                scan_ms: 7_200,
                ..carts
            },
            false,
        ),
        // No unnest has made rows of it; a join that looks up a kind for each item does not either.
        (
            Carts {
                makes_rows: "FilterExec",
                ..carts
            },
            false,
        ),
        (
            Carts {
                makes_rows: "FilterExec",
                joined: 2,
                ..carts
            },
            true,
        ),
    ] {
        let report = report(&carts.fan_out()).await;
        let found: Vec<_> = report.inputs.anomalous().collect();
        let expected: &[i64] = if named { &[1] } else { &[] };
        let ids: Vec<_> = found.iter().map(|input| input.row_id).collect();
        assert_eq!(ids, expected, "{carts:?}: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_records_that_are_alike_the_first_three_are_named() {
    for (alike, expected) in [(2, &[1, 2][..]), (5, &[1, 2, 3])] {
        let carts = Carts {
            carts: 100,
            alike,
            ..Carts::default()
        };
        let report = report(&carts.fan_out()).await;
        let found: Vec<_> = report.inputs.anomalous().collect();
        let ids: Vec<_> = found.iter().map(|input| input.row_id).collect();
        assert_eq!(ids, expected, "{found:?}");
        let all = 3 * (100 - alike) + 3_000 * alike;
        for input in found {
            let fan_out = input.fan_out.as_ref();
            let rows = fan_out.map(|fan_out| (fan_out.rows, fan_out.table_rows));
            assert_eq!(rows, Some((3_000, all)));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn much_time_of_recording_is_said() {
    async fn said(carts: Carts) -> Option<String> {
        let report = report(&carts.fan_out()).await;
        let mut all = report.header.reservations().into_iter();
        all.find(|reservation| reservation.starts_with("Recording took"))
    }
    // Operators work four milliseconds for each of four items, and two in scans.
    let carts = Carts {
        carts: 1,
        large: 4,
        scan_ms: 1,
        ..Carts::default()
    };
    let with = |recording_ms| Carts {
        recording_ms,
        ..carts
    };
    assert_eq!(said(with(1)).await, None);
    let half = said(with(9)).await;
    assert!(half.is_some_and(|said| said.contains("50 %")));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_sampled_records_the_traced_ones_are_compared() {
    let rates = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4];
    let mut rates = rates.into_iter();
    let sample_rate = rates.find(|rate| Choice::of_rate(*rate).traces(1)).unwrap();
    let carts = Carts {
        sample_rate,
        ..Carts::default()
    };
    let report = report(&carts.fan_out()).await;
    let found = report.inputs.anomalous().next().unwrap();
    let choice = Choice::of_rate(sample_rate);
    let others = (2..=40).filter(|cart| choice.traces(*cart)).count();
    let expected = format!(
        "3,000 of the {} traced rows",
        super::units::count(3_000 + 3 * others as i64)
    );
    let sentence = found.sentence(&report.header);
    assert!(sentence.contains(&expected), "{sentence}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_whose_records_cost_alike_has_no_expensive_input() {
    golden_text("ordinary.txt", &report(&cases::ordinary()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn level_counters_shows_the_plan_and_says_why_there_are_no_records() {
    let report = report(&cases::counters()).await;
    golden_text("counters.txt", &report);
    golden(
        "counters.json",
        &written(&report, ProfileFormat::Json, false),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_other_workers_is_said_and_helpers_of_the_planner_are_not_shown() {
    let report = report(&cases::on_workers()).await;
    golden_text("on_workers.txt", &report);
    let join = report.plan.operator(4).unwrap();
    assert_eq!(join.parent_operator_id, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn level_off_has_nothing_but_the_query() {
    golden_text("off.txt", &report(&cases::off()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_printed_statement_runs_as_it_stands() {
    for tables in [cases::figure_5(), cases::hot_key(), cases::self_time()] {
        let report = report(&tables).await;
        let fixture = Fixture::new(&tables);
        let script = written(&report, ProfileFormat::Text, true).join("\n");
        let pieces = skewer_sql::split(&script);
        assert_eq!(pieces.len(), report.asked.len(), "{script}");
        for piece in pieces {
            fixture.ask(&piece.sql).await.unwrap();
        }
        let deeper = report.deeper.iter();
        // What is run again runs in a database.
        for statement in deeper.filter(|statement| !statement.starts_with("EXPLAIN PROFILE")) {
            let statement = statement.trim_end_matches(';');
            fixture.ask(statement).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_sys_does_not_know_is_an_error() {
    let tables = cases::figure_5();
    let circumstances = Circumstances::default();
    let fixture = Fixture::new(&tables);
    let report = Report::read(&fixture, 999, &circumstances);
    let error = report.await.unwrap_err();
    assert!(error.to_string().contains("999"), "{error}");
}
