//! PerfDebug's evaluation (SoCC 2019, section 5), on the same three applications: is the record
//! found that is slow, in how much smaller a set than the lineage of the slow result, and what does
//! looking for it cost?
//!
//! In each trial one random record is delayed. *Accuracy* is the share of trials in which the
//! profile's first expensive input is that record. *Precision improvement* is the number of records
//! in the lineage of the slowest result row, which lineage alone would leave to look through, divided
//! by the number of records that the profile names: one. *Overhead* is the time of the query without
//! a delay at level `records`, divided by its time at level `off` in the same round.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use skewer::{ProfileLevel, Session};

use crate::corpus::Corpus;
use crate::document::publish;
use crate::error::BenchError;
use crate::injected_delay::{APPLICATIONS, Application, Kind, first, register};
use crate::measure::{median, timed};
use crate::table::{Table, count};

/// Finds delayed records and counts what else would have to be looked through.
#[derive(Debug, Parser)]
pub struct Arguments {
    /// Trials of each application.
    #[arg(long, default_value_t = 10)]
    trials: usize,
    /// The delay in milliseconds.
    #[arg(long, default_value_t = 1000)]
    delay: u64,
    /// Rounds of the measurement of the overhead.
    #[arg(long, default_value_t = 21)]
    rounds: usize,
    /// Share of the applications' full size (2,103 lines, 5 M students, 2.1 M readings).
    #[arg(long, default_value_t = 1.0)]
    size: f64,
    /// Of the choice of records.
    #[arg(long, default_value_t = 11)]
    seed: u64,
    /// Where generated databases are kept.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/benchmarks"))]
    data: PathBuf,
    /// Write the results into docs/benchmarks.md.
    #[arg(long)]
    write: bool,
}

/// What the paper prints for an application (table 2): accuracy in per cent, precision improvement,
/// overhead.
const PRINTED: [(&str, &str, &str); 3] = [
    ("100 %", "2,102", "1.04"),
    ("100 %", "1,250,004", "1.39"),
    ("100 %", "294", "1.48"),
];

/// Runs the experiment and publishes its results.
pub fn run(arguments: &Arguments) -> Result<(), BenchError> {
    tokio::runtime::Runtime::new()?.block_on(experiment(arguments))
}

async fn experiment(arguments: &Arguments) -> Result<(), BenchError> {
    let mut random = ChaCha8Rng::seed_from_u64(arguments.seed);
    let mut table = Table::new(&[
        "application",
        "accuracy",
        "PerfDebug",
        "precision improvement",
        "PerfDebug",
        "overhead, wall",
        "overhead, processor time",
        "PerfDebug",
    ]);
    for (application, printed) in APPLICATIONS.into_iter().zip(PRINTED) {
        let rows = ((application.rows as f64 * arguments.size) as usize).max(1);
        let corpus = application.corpus(&arguments.data, rows).await?;
        let mut found = 0;
        let mut lineages = Vec::new();
        for _ in 0..arguments.trials {
            let key = random.random_range(0..rows as i64);
            let delay = Duration::from_millis(arguments.delay);
            let trial = trial(application, &corpus, key, delay).await?;
            corpus.flush().await?;
            found += usize::from(trial.found);
            lineages.push(trial.lineage as f64);
        }
        let (wall, cpu) = overhead(application, &corpus, arguments.rounds).await?;
        let (accuracy, precision, slower) = printed;
        table.row(vec![
            format!("{}, {} records", application.name, count(rows as u64)),
            format!("{} %", 100 * found / arguments.trials.max(1)),
            accuracy.to_owned(),
            count(median(lineages) as u64),
            precision.to_owned(),
            format!("{wall:.2}"),
            format!("{cpu:.2}"),
            slower.to_owned(),
        ]);
    }
    let text = format!(
        "{} trials of each application, a delay of {} ms, seed {}:\n\n{table}",
        arguments.trials, arguments.delay, arguments.seed
    );
    publish("isolation", &text, arguments.write)
}

struct Trial {
    found: bool,
    /// Records in the lineage of the slowest result row.
    lineage: i64,
}

async fn trial(
    application: Application,
    corpus: &Corpus,
    key: i64,
    delay: Duration,
) -> Result<Trial, BenchError> {
    let session = corpus.database.session();
    let row_id = application.row_id(&session, key).await?;
    register(&session, application.function, Kind::Column, key, delay);
    session.sql("SET profile.level = 'records'").await?;
    let stream = session.sql(application.query).await?;
    let query_id = stream.query_id().unwrap_or_default();
    stream.collect().await?;
    let named = ask(
        &session,
        &format!(
            "SELECT row_id FROM sys.expensive_inputs WHERE query_id = {query_id} AND rank = 1"
        ),
    )
    .await?;
    let slowest = ask(
        &session,
        &format!(
            "SELECT output_row FROM sys.output_latency WHERE query_id = {query_id} \
             ORDER BY total_ns DESC, output_row LIMIT 1"
        ),
    )
    .await?;
    let Some(slowest) = slowest else {
        return Err(BenchError::Unexpected(format!(
            "{}: no result row has a latency",
            application.name
        )));
    };
    let lineage = ask(
        &session,
        &format!("SELECT count(DISTINCT row_id) FROM backward_trace({query_id}, {slowest})"),
    )
    .await?;
    Ok(Trial {
        found: row_id.is_some() && named == row_id,
        lineage: lineage.unwrap_or_default(),
    })
}

async fn ask(session: &Session, sql: &str) -> Result<Option<i64>, BenchError> {
    Ok(first(&session.sql(sql).await?.collect().await?, 0))
}

/// Time at level `records` ÷ time at level `off` without a delay, wall and processor time.
async fn overhead(
    application: Application,
    corpus: &Corpus,
    rounds: usize,
) -> Result<(f64, f64), BenchError> {
    let mut sessions = Vec::new();
    for level in [ProfileLevel::Off, ProfileLevel::Records] {
        let session = corpus.database.session();
        register(
            &session,
            application.function,
            Kind::Column,
            -1,
            Duration::ZERO,
        );
        session
            .sql(&format!("SET profile.level = '{level}'"))
            .await?;
        sessions.push(session);
    }
    let mut ratios = Vec::new();
    for round in 0..=rounds {
        let mut took = Vec::new();
        for session in &sessions {
            // The first run leaves allocator and caches as this level does; the second counts.
            let mut last = None;
            for _ in 0..2 {
                let run = async { session.sql(application.query).await?.collect().await };
                last = Some(timed(run).await?.1);
            }
            corpus.flush().await?;
            took.extend(last);
        }
        if let ([off, records], true) = (&took[..], round > 0) {
            ratios.push((records.wall / off.wall, records.cpu / off.cpu));
        }
    }
    Ok((
        median(ratios.iter().map(|(wall, _)| *wall)),
        median(ratios.iter().map(|(_, cpu)| *cpu)),
    ))
}
