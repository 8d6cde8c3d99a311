//! One random record is delayed: is it found as the top expensive input?
//!
//! The delay is in a function of the query's, once as a function over a column, where the
//! profiler has to search for the record, and once as a function of one row, which it times.
//!
//! Where another record is named, two questions tell why. Has the delayed record the greatest self
//! time? Then it is found, but another partition took longer, and the slowest way to the result
//! does not go through it. Does the named record take longer than the delayed one with its delay, by
//! the least of some profiles without a delay? Then the profile is right, and the trial says nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::corpus::Corpus;
use crate::data;
use crate::document::publish;
use crate::error::BenchError;
use crate::measure::{median, timed};
use crate::table::{Table, count};
use clap::Parser;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringViewArray,
};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use skewer::Session;

/// Delays one random record and asks the profile which record is expensive.
#[derive(Debug, Parser)]
pub struct Arguments {
    /// Trials of each application, function and delay.
    #[arg(long, default_value_t = 10)]
    trials: usize,
    /// Trials of delays of a second or more: the others take minutes, these would take hours.
    #[arg(long, default_value_t = 10)]
    long_trials: usize,
    /// Delays in microseconds.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "10000000,1000000,10000,1000,200"
    )]
    delays: Vec<u64>,
    /// Share of the applications' full size (2,103 lines, 5 M students, 2.1 M readings).
    #[arg(long, default_value_t = 1.0)]
    size: f64,
    /// Of the choice of records.
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Only applications whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Where generated databases are kept.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/benchmarks"))]
    data: PathBuf,
    /// Write the results into docs/benchmarks.md.
    #[arg(long)]
    write: bool,
}

/// One of the paper's applications, with the function `delayed` in its query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Application {
    pub(crate) name: &'static str,
    pub(crate) rows: usize,
    /// The column that says which record it is; lines of movies begin with it.
    key: &'static str,
    pub(crate) query: &'static str,
    pub(crate) function: Function,
}

impl Application {
    /// Its database with `rows` records, from `directory`.
    pub(crate) async fn corpus(
        &self,
        directory: &std::path::Path,
        rows: usize,
    ) -> Result<Corpus, BenchError> {
        let generate = || match self.name {
            "movies" => vec![("movies", data::movies(rows))],
            "students" => vec![("students", data::students(rows))],
            _ => vec![("weather", data::weather(rows))],
        };
        Corpus::open(
            directory,
            &format!("delayed-{}-{rows}", self.name),
            generate,
        )
        .await
    }

    /// The row id of the record with number `key`.
    pub(crate) async fn row_id(
        &self,
        session: &Session,
        key: i64,
    ) -> Result<Option<i64>, BenchError> {
        let Application {
            name, key: column, ..
        } = self;
        let sql = format!("SELECT _row_id FROM {name} WHERE CAST({column} AS BIGINT) = {key}");
        Ok(first(&session.sql(&sql).await?.collect().await?, 0))
    }
}

/// What `delayed` takes and gives back unchanged.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Function {
    /// The line, which begins with the key and a colon.
    Line,
    /// A key and a number.
    Integer,
    /// A key and a number.
    Float,
}

pub(crate) const APPLICATIONS: [Application; 3] = [
    Application {
        name: "movies",
        rows: 2_103,
        key: "split_part(line, ':', 1)",
        query: "SELECT split_part(rating, '_', 2) AS stars, count(*) AS ratings FROM \
                (SELECT unnest(string_to_array(split_part(delayed(line), ':', 2), ',')) AS rating \
                 FROM movies) GROUP BY stars",
        function: Function::Line,
    },
    Application {
        name: "students",
        rows: 5_000_000,
        key: "student",
        query: "SELECT grade, avg(delayed(student, age)) AS age FROM students GROUP BY grade",
        function: Function::Integer,
    },
    Application {
        name: "weather",
        rows: 2_100_000,
        key: "reading",
        query: "SELECT state, day, max(snow) - min(snow) AS delta FROM \
                (SELECT left(zip, 2) AS state, left(date, 5) AS day, \
                 delayed(reading, snowfall) AS snow FROM weather) GROUP BY state, day",
        function: Function::Float,
    },
];

/// Whether the function sees a column or a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Column,
    Row,
}

/// Runs the experiment and publishes its results.
pub fn run(arguments: &Arguments) -> Result<(), BenchError> {
    tokio::runtime::Runtime::new()?.block_on(experiment(arguments))
}

async fn experiment(arguments: &Arguments) -> Result<(), BenchError> {
    let mut random = ChaCha8Rng::seed_from_u64(arguments.seed);
    let mut table = Table::new(&[
        "application",
        "function of",
        "delay",
        "found as the top expensive input",
        "only by its self time",
        "another, which takes longer by itself",
        "missed",
        "its impact ÷ the delay, median",
        "query, s, median",
        "asking, s, median",
    ]);
    let mut by_delay = vec![Verdicts::default(); arguments.delays.len()];
    for application in APPLICATIONS {
        if let Some(only) = &arguments.only
            && !application.name.contains(only.as_str())
        {
            continue;
        }
        let rows = ((application.rows as f64 * arguments.size) as usize).max(1);
        let corpus = application.corpus(&arguments.data, rows).await?;
        for kind in [Kind::Column, Kind::Row] {
            for (delay, total) in arguments.delays.iter().zip(&mut by_delay) {
                let delay = Duration::from_micros(*delay);
                let trials = if delay >= Duration::from_secs(1) {
                    arguments.long_trials
                } else {
                    arguments.trials
                };
                let mut outcomes = Vec::new();
                for _ in 0..trials {
                    let key = random.random_range(0..rows as i64);
                    outcomes.push(trial(application, &corpus, kind, key, delay).await?);
                    corpus.flush().await?;
                }
                let mut verdicts = Verdicts::default();
                for outcome in &outcomes {
                    verdicts.add(outcome.verdict);
                    total.add(outcome.verdict);
                }
                let hit = outcomes.iter().filter(|o| o.verdict == Verdict::Found);
                table.row(vec![
                    format!("{}, {} records", application.name, count(rows as u64)),
                    match kind {
                        Kind::Column => "a column".to_owned(),
                        Kind::Row => "a row".to_owned(),
                    },
                    format!("{delay:?}"),
                    format!("{} of {trials}", verdicts.found),
                    verdicts.by_self_time.to_string(),
                    verdicts.behind_dearer.to_string(),
                    verdicts.missed.to_string(),
                    format!("{:.3}", median(hit.map(|o| o.impact / delay.as_secs_f64()))),
                    format!("{:.2}", median(outcomes.iter().map(|o| o.query))),
                    format!("{:.2}", median(outcomes.iter().map(|o| o.asking))),
                ]);
            }
        }
    }
    let mut summary = Table::new(&[
        "delay",
        "found",
        "only by its self time",
        "another, which takes longer by itself",
        "missed",
    ]);
    for (delay, verdicts) in arguments.delays.iter().zip(&by_delay) {
        let delay = Duration::from_micros(*delay);
        let tried =
            verdicts.found + verdicts.by_self_time + verdicts.behind_dearer + verdicts.missed;
        summary.row(vec![
            format!("{delay:?}"),
            format!("{} of {tried}", verdicts.found),
            verdicts.by_self_time.to_string(),
            verdicts.behind_dearer.to_string(),
            verdicts.missed.to_string(),
        ]);
    }
    let text = format!(
        "{summary}\nEvery application, seed {}:\n\n{table}",
        arguments.seed
    );
    publish("injected delay", &text, arguments.write)
}

/// How the top expensive input compares with the delayed record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It is the delayed record.
    Found,
    /// It is another, but the delayed record has the greatest self time.
    BySelfTime,
    /// It is another, which takes longer than the delayed record with its delay.
    BehindDearer,
    /// It is another, which takes less, or there is none.
    Missed,
}

#[derive(Debug, Clone, Copy, Default)]
struct Verdicts {
    found: usize,
    by_self_time: usize,
    behind_dearer: usize,
    missed: usize,
}

impl Verdicts {
    fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Found => self.found += 1,
            Verdict::BySelfTime => self.by_self_time += 1,
            Verdict::BehindDearer => self.behind_dearer += 1,
            Verdict::Missed => self.missed += 1,
        }
    }
}

#[derive(Debug)]
struct Outcome {
    verdict: Verdict,
    /// Seconds.
    impact: f64,
    query: f64,
    asking: f64,
}

/// Delays one record, runs the query at level `records` and asks for the top expensive input.
async fn trial(
    application: Application,
    corpus: &Corpus,
    kind: Kind,
    key: i64,
    delay: Duration,
) -> Result<Outcome, BenchError> {
    let session = corpus.database.session();
    let row_id = application.row_id(&session, key).await?;
    register(&session, application.function, kind, key, delay);
    session.sql("SET profile.level = 'records'").await?;
    let run = async {
        let stream = session.sql(application.query).await?;
        let query_id = stream.query_id();
        stream.collect().await.map(|_| query_id)
    };
    let (query_id, query) = timed(run).await?;
    let query_id = query_id.unwrap_or_default();
    let ask = format!(
        "SELECT row_id, impact_ns FROM sys.expensive_inputs WHERE query_id = {query_id} AND rank = 1"
    );
    let (top, asking) = timed(async { session.sql(&ask).await?.collect().await }).await?;
    let verdict = match (row_id, first(&top, 0)) {
        (Some(delayed), Some(named)) if delayed == named => Verdict::Found,
        (Some(delayed), named) if most_self_time(&session, query_id).await? == Some(delayed) => {
            debug_assert_ne!(Some(delayed), named);
            Verdict::BySelfTime
        }
        (Some(delayed), Some(named)) => {
            register(&session, application.function, kind, key, Duration::ZERO);
            let own = own_times(&session, application, [named, delayed]).await?;
            if own[0] > own[1] + delay.as_nanos() as i64 {
                Verdict::BehindDearer
            } else {
                Verdict::Missed
            }
        }
        _ => Verdict::Missed,
    };
    Ok(Outcome {
        verdict,
        impact: first(&top, 1).unwrap_or_default() as f64 / 1e9,
        query: query.wall,
        asking: asking.wall,
    })
}

/// The record with the greatest self time of a query.
async fn most_self_time(session: &Session, query_id: i64) -> Result<Option<i64>, BenchError> {
    let sql = format!(
        "SELECT row_id FROM sys.record_latency \
         WHERE query_id = {query_id} AND table_name IS NOT NULL \
         GROUP BY row_id ORDER BY sum(latency_ns) DESC LIMIT 1"
    );
    Ok(first(&session.sql(&sql).await?.collect().await?, 0))
}

/// Nanoseconds of self time of some records, the least of three profiles.
async fn own_times(
    session: &Session,
    application: Application,
    row_ids: [i64; 2],
) -> Result<[i64; 2], BenchError> {
    let mut least = [i64::MAX; 2];
    for _ in 0..3 {
        let stream = session.sql(application.query).await?;
        let query_id = stream.query_id().unwrap_or_default();
        stream.collect().await?;
        for (least, row_id) in least.iter_mut().zip(row_ids) {
            let sql = format!(
                "SELECT CAST(sum(latency_ns) AS BIGINT) FROM sys.record_latency \
                 WHERE query_id = {query_id} AND table_name IS NOT NULL AND row_id = {row_id}"
            );
            let own = first(&session.sql(&sql).await?.collect().await?, 0);
            *least = (*least).min(own.unwrap_or_default());
        }
    }
    Ok(least)
}

pub(crate) fn first(batches: &[RecordBatch], column: usize) -> Option<i64> {
    let batch = batches.iter().find(|batch| batch.num_rows() > 0)?;
    batch
        .column(column)
        .as_primitive_opt::<Int64Type>()?
        .iter()
        .next()?
}

/// Registers `delayed`, which gives back its last argument, and takes its time for one record.
pub(crate) fn register(
    session: &Session,
    function: Function,
    kind: Kind,
    key: i64,
    delay: Duration,
) {
    let arguments = match function {
        Function::Line => vec![DataType::Utf8View],
        Function::Integer => vec![DataType::Int64, DataType::Int64],
        Function::Float => vec![DataType::Int64, DataType::Float64],
    };
    let Some(result) = arguments.last().cloned() else {
        return;
    };
    let prefix = format!("{key}:");
    if kind == Kind::Row {
        session.register_row_udf(
            "delayed",
            arguments,
            result,
            Volatility::Immutable,
            move |row| {
                let is_it = match &row[0] {
                    ScalarValue::Int64(Some(number)) => *number == key,
                    ScalarValue::Utf8View(Some(line)) => line.starts_with(&prefix),
                    _ => false,
                };
                if is_it {
                    std::thread::sleep(delay);
                }
                Ok(row[row.len() - 1].clone())
            },
        );
        return;
    }
    let implementation = move |values: &[ColumnarValue]| {
        let columns = ColumnarValue::values_to_arrays(values)?;
        let wait = |is_it: bool| {
            if is_it {
                std::thread::sleep(delay);
            }
        };
        let result: ArrayRef = match function {
            Function::Line => {
                let lines = columns[0].as_string_view();
                let same = lines.iter().inspect(|line| {
                    wait(line.is_some_and(|line| line.starts_with(&prefix)));
                });
                Arc::new(same.collect::<StringViewArray>())
            }
            Function::Integer => {
                let keys = columns[0].as_primitive::<Int64Type>().values();
                let numbers = columns[1].as_primitive::<Int64Type>().iter();
                let same = keys.iter().zip(numbers).map(|(k, number)| {
                    wait(*k == key);
                    number
                });
                Arc::new(same.collect::<Int64Array>())
            }
            Function::Float => {
                let keys = columns[0].as_primitive::<Int64Type>().values();
                let numbers = columns[1].as_primitive::<Float64Type>().iter();
                let same = keys.iter().zip(numbers).map(|(k, number)| {
                    wait(*k == key);
                    number
                });
                Arc::new(same.collect::<Float64Array>())
            }
        };
        debug_assert_eq!(result.len(), columns[0].len());
        Ok(ColumnarValue::Array(result))
    };
    session.register_udf(create_udf(
        "delayed",
        arguments,
        result,
        Volatility::Immutable,
        Arc::new(implementation),
    ));
}
