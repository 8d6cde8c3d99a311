//! Profiles and reports over fixed rows of schema `sys`, against golden files.
//!
//! `SKEWER_REGENERATE=1 cargo test -p skewer-report` writes the files anew: review the difference.

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
use datafusion::common::Result;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use skewer_compat::session::repaired;
use skewer_diagnosis::text::WIDTH;
use skewer_diagnosis::units::count;
use skewer_diagnosis::{Profile, ProfileSource, RunContext, TableQuarantine};
use skewer_profiling::SysTables;
use skewer_profiling::sampling::Choice;
use skewer_report::{Document, Options, Style, render};
use skewer_sql::ProfileFormat;
use unicode_width::UnicodeWidthStr;

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
        let context = repaired(SessionStateBuilder::new().with_config(config));
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
impl ProfileSource for Fixture {
    async fn query(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        if let Some((_, row_id)) = sql.split_once(" WHERE _row_id = ") {
            let column = |text: String| Arc::new(StringArray::from(vec![text])) as ArrayRef;
            let record = RecordBatch::try_from_iter([
                ("name", column(format!("h{row_id}"))),
                ("line", column("lorem ipsum ".repeat(1000))),
            ]);
            return Ok(vec![record?]);
        }
        self.context.sql(sql).await?.collect().await
    }

    async fn view_sql(&self, view: &str, query_id: i64) -> Result<String> {
        self.tables.expanded_sql(view, query_id).await
    }

    fn replaced_tables(&self, _tables_read: &str) -> Vec<String> {
        Vec::new()
    }

    fn quarantines_of(&self, table: &str) -> Option<Vec<TableQuarantine>> {
        (table == "main.input").then(Vec::new)
    }
}

async fn profile(tables: &Arc<SysTables>) -> Profile {
    let (fixture, context) = (Fixture::new(tables), RunContext::default());
    let profile = Profile::read(&fixture, QUERY, &context);
    profile.await.unwrap()
}

fn written(profile: &Profile, format: ProfileFormat, as_sql: bool) -> Vec<String> {
    render(profile, Options { format, as_sql }).texts()
}

/// Compares with a golden file, or writes it.
fn golden(file: &str, lines: &[String]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    skewer_testing::golden(&path.join(file), &(lines.join("\n") + "\n"));
}

/// Checks a report's text against its file, and that it fits into a terminal.
fn golden_text(file: &str, profile: &Profile) {
    let lines = written(profile, ProfileFormat::Text, false);
    for line in &lines {
        assert!(line.width() <= WIDTH, "too wide: {line}");
        assert_eq!(line.trim_end(), line);
    }
    golden(file, &lines);
}

#[tokio::test(flavor = "multi_thread")]
async fn figure_5_names_h2() {
    let profile = profile(&cases::figure_5()).await;
    golden_text("figure_5.txt", &profile);
    golden(
        "figure_5.json",
        &written(&profile, ProfileFormat::Json, false),
    );
    golden(
        "figure_5.dot",
        &written(&profile, ProfileFormat::Graphviz, false),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_key_is_blamed_on_shuffle_latency_and_on_no_record() {
    let profile = profile(&cases::hot_key()).await;
    assert!(profile.expensive_inputs.anomalous().next().is_none());
    golden_text("hot_key.txt", &profile);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_with_much_work_in_sum_is_named_though_nothing_waits_for_it() {
    golden_text("self_time.txt", &profile(&cases::self_time()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_most_rows_were_made_of_is_named_though_no_expression_took_long() {
    let carts = Carts::default();
    let of_all = profile(&carts.fan_out()).await;
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
        let profile = profile(&carts.fan_out()).await;
        let found: Vec<_> = profile.expensive_inputs.anomalous().collect();
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
        let profile = profile(&carts.fan_out()).await;
        let found: Vec<_> = profile.expensive_inputs.anomalous().collect();
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
        let profile = profile(&carts.fan_out()).await;
        let mut all = profile.summary.caveats().into_iter();
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
    let profile = profile(&carts.fan_out()).await;
    let found = profile.expensive_inputs.anomalous().next().unwrap();
    let choice = Choice::of_rate(sample_rate);
    let others = (2..=40).filter(|cart| choice.traces(*cart)).count();
    let expected = format!(
        "3,000 of the {} traced rows",
        count(3_000 + 3 * others as i64)
    );
    let sentence = found.sentence(&profile.summary);
    assert!(sentence.contains(&expected), "{sentence}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_whose_records_cost_alike_has_no_expensive_input() {
    golden_text("ordinary.txt", &profile(&cases::ordinary()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn level_counters_shows_the_plan_and_says_why_there_are_no_records() {
    let profile = profile(&cases::counters()).await;
    golden_text("counters.txt", &profile);
    golden(
        "counters.json",
        &written(&profile, ProfileFormat::Json, false),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_other_workers_is_said_and_helpers_of_the_planner_are_not_shown() {
    let profile = profile(&cases::on_workers()).await;
    golden_text("on_workers.txt", &profile);
    let join = profile.plan.operator(4).unwrap();
    assert_eq!(join.parent_operator_id, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn level_off_has_nothing_but_the_query() {
    golden_text("off.txt", &profile(&cases::off()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_printed_statement_runs_as_it_stands() {
    for tables in [cases::figure_5(), cases::hot_key(), cases::self_time()] {
        let profile = profile(&tables).await;
        let fixture = Fixture::new(&tables);
        let script = written(&profile, ProfileFormat::Text, true).join("\n");
        let pieces = skewer_sql::split(&script);
        assert_eq!(pieces.len(), profile.statements.len(), "{script}");
        for piece in pieces {
            fixture.query(&piece.sql).await.unwrap();
        }
        let deeper = profile.next_steps.iter();
        // What is run again runs in a database.
        for statement in deeper.filter(|statement| !statement.starts_with("EXPLAIN PROFILE")) {
            let statement = statement.trim_end_matches(';');
            fixture.query(statement).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_sys_does_not_know_is_an_error() {
    let tables = cases::figure_5();
    let context = RunContext::default();
    let fixture = Fixture::new(&tables);
    let profile = Profile::read(&fixture, 999, &context);
    let error = profile.await.unwrap_err();
    assert!(error.to_string().contains("999"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_section_of_the_report_has_its_statements() {
    let profile = profile(&cases::figure_5()).await;
    let mut titles: Vec<&str> = profile.statements.iter().map(|one| one.title).collect();
    titles.dedup();
    let expected = [
        "The query",
        "The plan",
        "Verdict",
        "Remedies",
        "Where the time went: how even the tasks are",
        "Where the time went: the slowest result row",
        "Expensive inputs",
        "What tells them apart",
    ];
    assert_eq!(titles, expected);
    let script = written(&profile, ProfileFormat::Text, true).join("\n");
    for title in expected {
        assert!(script.contains(&format!("-- # {title}\n")), "{title}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn colours_follow_what_a_part_of_the_report_is() {
    let profile = profile(&cases::figure_5()).await;
    let document = skewer_report::text(&profile);
    let style_of = |text: &str| {
        let mut spans = document.lines().iter().flat_map(|line| &line.0);
        let found = spans.find(|span| span.text.trim().starts_with(text));
        found.map(|span| span.style)
    };
    for (text, style) in [
        ("Query 12", Style::Title),
        ("Plan", Style::Title),
        ("Where the time went", Style::Title),
        ("Expensive inputs", Style::Title),
        ("To go deeper", Style::Title),
        ("●", Style::Finding),
        ("└─", Style::Dim),
        ("SELECT * FROM sys.", Style::Statement),
        ("███████", Style::LargeBar),
    ] {
        assert_eq!(style_of(text), Some(style), "{text}");
    }
    // Escape sequences add nothing but colour.
    for line in document.lines() {
        let ansi = line.ansi();
        let mut plain = String::new();
        let mut rest = ansi.as_str();
        while let Some((before, after)) = rest.split_once('\u{1b}') {
            plain.push_str(before);
            rest = after.split_once('m').map_or("", |(_, rest)| rest);
        }
        assert_eq!(plain + rest, line.text());
    }
    let texts = document.texts();
    let texts = texts.iter().map(String::as_str);
    let again = Document::from_styles(texts, &document.styles_text());
    assert_eq!(again.as_ref(), Some(&document));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_tells_what_the_query_takes_without_its_expensive_record() {
    let profile = profile(&cases::figure_5()).await;
    let what_if = profile.what_if();
    let first = what_if.first().unwrap();
    assert_eq!(
        (first.table, first.predicate.as_str()),
        ("main.input", "_row_id = 2")
    );
    assert!(
        first.query_ns < profile.summary.query_ns() / 10,
        "{what_if:?}"
    );
    assert_eq!(profile.plan.exchanges().count(), 2);
}
