//! False alarms on a busy machine: how often `sys.anomalies` names a record that costs what all
//! others cost.
//!
//! Students and readings of the weather all cost the same, and none is delayed. Meanwhile other
//! processes sort numbers in fresh memory, which keeps processors, caches and memory busy. A run
//! blames a record if `sys.anomalies` names one. (Lines of movies differ by themselves.)

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::Parser;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::corpus::Corpus;
use crate::document::publish;
use crate::error::BenchError;
use crate::injected_delay::{APPLICATIONS, Application, Kind, first, register};
use crate::measure::{median, timed};
use crate::table::{Table, count};

/// Profiles queries whose records all cost the same, on a busy machine.
#[derive(Debug, Parser)]
pub struct Arguments {
    /// Runs of each application and function.
    #[arg(long, default_value_t = 50)]
    runs: usize,
    /// Processes that want processors meanwhile.
    #[arg(long, default_value_t = 2)]
    load: usize,
    /// Share of the applications' full size (5 M students, 2.1 M readings).
    #[arg(long, default_value_t = 1.0)]
    size: f64,
    /// Where generated databases are kept.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/benchmarks"))]
    data: PathBuf,
    /// Write the results into docs/benchmarks.md.
    #[arg(long)]
    write: bool,
    /// Only keep a processor busy: what the other processes are.
    #[arg(long, hide = true)]
    busy: bool,
}

/// Runs the experiment and publishes its results.
pub fn run(arguments: &Arguments) -> Result<(), BenchError> {
    if arguments.busy {
        keep_busy();
    }
    let _others = (0..arguments.load)
        .map(|_| Busy::start())
        .collect::<Result<Vec<_>, _>>()?;
    tokio::runtime::Runtime::new()?.block_on(experiment(arguments))
}

async fn experiment(arguments: &Arguments) -> Result<(), BenchError> {
    let mut table = Table::new(&[
        "application",
        "function of",
        "runs that blame a record",
        "greatest impact, ms, median",
        "at most",
        "query, s, median",
    ]);
    let (mut blamed, mut runs) = (0, 0);
    let uniform = APPLICATIONS.iter().filter(|one| one.name != "movies");
    for application in uniform {
        let rows = ((application.rows as f64 * arguments.size) as usize).max(1);
        let corpus = application.corpus(&arguments.data, rows).await?;
        for kind in [Kind::Column, Kind::Row] {
            let mut number = 0;
            let mut impacts = Vec::new();
            let mut queries = Vec::new();
            for _ in 0..arguments.runs {
                let run = profiled(application, &corpus, kind).await?;
                corpus.flush().await?;
                number += usize::from(run.blames_a_record);
                impacts.push(run.greatest_impact_ns as f64 / 1e6);
                queries.push(run.seconds);
            }
            blamed += number;
            runs += arguments.runs;
            table.row(vec![
                format!("{}, {} records", application.name, count(rows as u64)),
                match kind {
                    Kind::Column => "a column".to_owned(),
                    Kind::Row => "a row".to_owned(),
                },
                format!("{number} of {}", arguments.runs),
                format!("{:.3}", median(impacts.iter().copied())),
                format!("{:.3}", impacts.iter().copied().fold(0.0, f64::max)),
                format!("{:.2}", median(queries)),
            ]);
        }
    }
    let text = format!(
        "{blamed} of {runs} runs blame a record (`sys.anomalies`), beside {} busy processes:\n\n{table}",
        arguments.load
    );
    publish("false blame", &text, arguments.write)
}

/// What a profiled query found.
struct ProfiledRun {
    blames_a_record: bool,
    greatest_impact_ns: i64,
    /// What the query took.
    seconds: f64,
}

/// Profiles the application's query, none of whose records is delayed.
async fn profiled(
    application: &Application,
    corpus: &Corpus,
    kind: Kind,
) -> Result<ProfiledRun, BenchError> {
    let session = corpus.database.session();
    register(&session, application.function, kind, -1, Duration::ZERO);
    session.sql("SET profile.level = 'records'").await?;
    let query = async {
        let stream = session.sql(application.query).await?;
        let query_id = stream.query_id();
        stream.collect().await.map(|_| query_id)
    };
    let (query_id, took) = timed(query).await?;
    let query_id = query_id.unwrap_or_default();
    let sql =
        format!("SELECT max(impact_ns) FROM sys.expensive_inputs WHERE query_id = {query_id}");
    let impact = session.sql(&sql).await?.collect().await?;
    let sql = format!(
        "SELECT count(*) FROM sys.anomalies WHERE query_id = {query_id} AND row_id IS NOT NULL"
    );
    let anomalies = session.sql(&sql).await?.collect().await?;
    match first(&impact, 0) {
        Some(impact) => Ok(ProfiledRun {
            blames_a_record: first(&anomalies, 0) > Some(0),
            greatest_impact_ns: impact,
            seconds: took.wall,
        }),
        None => Err(BenchError::Unexpected(format!(
            "{}: no record has an impact",
            application.name
        ))),
    }
}

/// A process that keeps a processor busy until this is dropped.
#[derive(Debug)]
struct Busy(Child);

impl Busy {
    fn start() -> Result<Self, BenchError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--busy").stdin(Stdio::null());
        Ok(Self(command.spawn()?))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sorts numbers in memory that is taken from the system and given back each time.
fn keep_busy() -> ! {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    loop {
        let mut numbers: Vec<u64> = (0..4 << 20)
            .map(|_| random.random_range(0..1 << 40))
            .collect();
        numbers.sort_unstable();
        std::hint::black_box(&numbers);
    }
}
