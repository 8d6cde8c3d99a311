//! How long the views of the profiler's page take on a query with many calls of operators.

use std::collections::BTreeMap;

use clap::Parser;
use skewer::{Database, ReadOnly, Session};
use skewer_page::rows::arrow_stream;
use skewer_page::views::find_view;

use crate::document::publish;
use crate::error::BenchError;
use crate::measure::timed;
use crate::table::{Table, count};

/// Times views of a query with many calls.
#[derive(Debug, Parser)]
pub struct Arguments {
    /// Calls of operators that the query has at least.
    #[arg(long, default_value_t = 1_000_000)]
    calls: u64,
    /// Times that each view is read.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Write the results into docs/benchmarks.md.
    #[arg(long)]
    write: bool,
}

/// Calls of operators that a batch takes.
const CALLS_OF_A_BATCH: u64 = 3;
/// Rows of a batch: so few that there are many calls.
const BATCH: u64 = 16;
/// Pixels of the page's time axis.
const PIXELS: u64 = 1_200;

/// Runs the experiment and publishes its results.
pub fn run(arguments: &Arguments) -> Result<(), BenchError> {
    tokio::runtime::Runtime::new()?.block_on(experiment(arguments))
}

async fn experiment(arguments: &Arguments) -> Result<(), BenchError> {
    let mut table = Table::new(&[
        "view",
        "one process: median, ms",
        "95 %, ms",
        "three workers: median, ms",
        "95 %, ms",
    ]);
    let mut rows: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    let mut calls = Vec::new();
    for workers in [1, 3] {
        let database = Database::builder().workers(workers).build()?;
        let session = database.session();
        let (query_id, found, execution_ns) = profiled(&session, arguments.calls).await?;
        calls.push(found);
        let reader = database.read_only_session(ReadOnly {
            timeout: std::time::Duration::from_secs(60),
            ..ReadOnly::default()
        });
        let views = views(query_id, execution_ns);
        let mut times = vec![Vec::new(); views.len()];
        for _ in 0..arguments.rounds {
            for ((_, name, values), times) in views.iter().zip(&mut times) {
                times.push(read(&reader, name, values).await?);
            }
        }
        for (place, ((title, ..), times)) in views.iter().zip(&mut times).enumerate() {
            times.sort_by(f64::total_cmp);
            let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
            let row = rows
                .entry(place)
                .or_insert_with(|| vec![(*title).to_owned()]);
            row.extend([at(0.5), at(0.95)].map(|seconds| format!("{:.0}", seconds * 1e3)));
        }
        drop((session, reader));
        database.close().await?;
    }
    for (_, row) in rows {
        table.row(row);
    }
    let text = format!(
        "{} and {} calls of operators, {PIXELS} pixels; each view read {} times, by turns, from its SQL to an Arrow \
         stream. The workers are in one process.\n\n{table}",
        count(calls[0]),
        count(calls[1]),
        arguments.rounds
    );
    publish("web views", &text, arguments.write)
}

/// Runs a query with many calls; gives its id, their number, and its execution time.
async fn profiled(session: &Session, calls: u64) -> Result<(i64, u64, i64), BenchError> {
    let rows = calls * BATCH / CALLS_OF_A_BATCH;
    let make = format!(
        "CREATE TABLE numbers AS SELECT value AS n, value % 1000 AS k FROM generate_series(1, {rows})"
    );
    session.sql(&make).await?.collect().await?;
    for setting in [
        "SET profile.level = 'calls'".to_owned(),
        format!("SET datafusion.execution.batch_size = {BATCH}"),
    ] {
        session.sql(&setting).await?;
    }
    let sql = "SELECT k, count(*), sum(m) FROM (SELECT k, n % 7 * 3 AS m FROM numbers WHERE n % 5 < 4) AS t GROUP BY k";
    session.sql(sql).await?.collect().await?;
    let query_id = session.last_query_id().unwrap_or_default();
    let counted = format!(
        "SELECT (SELECT count(*) FROM sys.operator_calls WHERE query_id = {query_id}), execution_ns \
         FROM sys.queries WHERE query_id = {query_id}"
    );
    let counted: Vec<(i64, i64)> = session.query_as(&counted).await?;
    match counted.as_slice() {
        [(calls, execution_ns)] => Ok((query_id, calls.unsigned_abs(), *execution_ns)),
        _ => Err(BenchError::Unexpected(
            "sys.queries does not have the query".to_owned(),
        )),
    }
}

type Values = BTreeMap<String, String>;

/// What is read: a title, the view, and values of its parameters.
fn views(query_id: i64, execution_ns: i64) -> Vec<(&'static str, &'static str, Values)> {
    let values = |more: &[(&str, String)]| -> Values {
        let common = [("query_id", query_id.to_string())];
        common
            .iter()
            .chain(more)
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect()
    };
    let whole = [("px", PIXELS.to_string())];
    let (lo, hi) = (execution_ns * 4 / 10, execution_ns / 2);
    let part = [
        whole[0].clone(),
        ("lo", lo.to_string()),
        ("hi", hi.to_string()),
    ];
    vec![
        ("query", "query", values(&[])),
        ("plan", "plan", values(&[])),
        ("verdict", "verdict", values(&[])),
        ("time split", "time_split", values(&[])),
        ("diagnoses", "diagnoses", values(&[])),
        ("activity, whole run", "activity", values(&whole)),
        ("activity, a tenth of it", "activity", values(&part)),
        ("timeline (the rollup)", "timeline", values(&[])),
        ("traces, whole run", "traces", values(&whole)),
        ("traces, a tenth of it", "traces", values(&part)),
        ("tasks", "tasks", values(&[])),
        ("metric lanes", "metric_lanes", values(&[])),
        ("exchanges", "exchanges", values(&[])),
    ]
}

async fn read(session: &Session, name: &str, values: &Values) -> Result<f64, BenchError> {
    let unexpected = |error: String| BenchError::Unexpected(format!("{name}: {error}"));
    let sql = find_view(name)
        .and_then(|view| view.sql(values))
        .map_err(|error| unexpected(error.to_string()))?;
    let (encoded, took) = timed(async {
        let stream = session.sql(&sql).await?;
        let schema = stream.schema();
        let batches = stream.collect().await?;
        Ok::<_, skewer::Error>(arrow_stream(name, &schema, &batches))
    })
    .await?;
    encoded.map_err(|error| unexpected(error.to_string()))?;
    Ok(took.wall)
}
