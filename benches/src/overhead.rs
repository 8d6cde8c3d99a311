//! What each profile level costs, against level `off` and against plain DataFusion on the same
//! Parquet files.
//!
//! Runs are interleaved: each round runs every variant twice, of which the second run counts, in a
//! random order, so that whatever else the machine does hits all of them alike. A level's ratio is the median over the
//! rounds of (its time ÷ the other variant's time in the same round).

use std::path::PathBuf;
use std::time::Instant;

use crate::corpus::Corpus;
use crate::document::publish;
use crate::error::BenchError;
use crate::measure::{Took, median, timed};
use crate::table::{Table, count};
use crate::workload::{CorpusName, WORKLOADS, Workload};
use clap::Parser;
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::prelude::SessionContext;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use skewer::{ProfileLevel, Session};
use skewer_profiling::LineageMode;

/// Measures what each profile level costs.
#[derive(Debug, Parser)]
pub struct Arguments {
    /// Seconds that the rounds of one query may take; at least five rounds are run.
    #[arg(long, default_value_t = 40.0)]
    seconds: f64,
    /// Only queries whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Where generated databases are kept.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/benchmarks"))]
    data: PathBuf,
    /// Write the results into docs/benchmarks.md.
    #[arg(long)]
    write: bool,
}

const MIN_ROUNDS: usize = 5;
const MAX_ROUNDS: usize = 101;

/// Plain DataFusion, then the levels, then level `records` without a log.
const VARIANTS: usize = 6;
const PLAIN: usize = 0;
const OFF: usize = 1;
const RECORDS: usize = 4;

/// What one query took, and what it left in the log.
struct Measured {
    workload: Workload,
    input_rows: u64,
    /// Of each round, the variants.
    rounds: Vec<[Took; VARIANTS]>,
    logs: [Log; VARIANTS],
    /// Writing the log of level `records`, after the query.
    flush: Took,
}

#[derive(Debug, Default, Clone, Copy)]
struct Log {
    memory: i64,
    disk: i64,
    dropped: i64,
}

/// Runs the experiment and publishes its results.
pub fn run(arguments: &Arguments) -> Result<(), BenchError> {
    tokio::runtime::Runtime::new()?.block_on(experiment(arguments))
}

async fn experiment(arguments: &Arguments) -> Result<(), BenchError> {
    let mut measured = Vec::new();
    let mut corpus: Option<(CorpusName, Corpus)> = None;
    for workload in WORKLOADS {
        if let Some(only) = &arguments.only
            && !workload.name.contains(only.as_str())
        {
            continue;
        }
        if corpus
            .as_ref()
            .is_none_or(|(name, _)| *name != workload.corpus)
        {
            // One process, one writer: the other database is closed first.
            drop(corpus.take());
            let name = workload.corpus;
            let opened =
                Corpus::open(&arguments.data, name.directory(), || name.generate()).await?;
            corpus = Some((name, opened));
        }
        if let Some((_, corpus)) = &corpus {
            measured.push(measure(workload, corpus, arguments.seconds).await?);
        }
    }
    publish("overhead", &report(&measured), arguments.write)
}

async fn measure(
    workload: Workload,
    corpus: &Corpus,
    seconds: f64,
) -> Result<Measured, BenchError> {
    let sql = workload.sql()?;
    let sql = sql.as_str();
    let plain = corpus.plain().await?;
    let mut sessions = Vec::new();
    for level in ProfileLevel::ALL {
        let session = corpus.database.session();
        session
            .sql(&format!("SET profile.level = '{level}'"))
            .await?;
        sessions.push(session);
    }
    let piggyback = corpus.database.session();
    for setting in [
        format!("SET profile.level = '{}'", ProfileLevel::Records),
        format!("SET profile.lineage = '{}'", LineageMode::Piggyback),
    ] {
        piggyback.sql(&setting).await?;
    }
    sessions.push(piggyback);
    let mut input_rows = 0;
    for table in workload.tables {
        let sql = format!("SELECT count(*) FROM {table}");
        input_rows += number(&sessions[0].sql(&sql).await?.collect().await?, 0) as u64;
    }

    let mut rounds = Vec::new();
    let mut logs = [Log::default(); VARIANTS];
    let mut flushes = Vec::new();
    let mut started = Instant::now();
    let mut rows_expected = None;
    let mut random = ChaCha8Rng::seed_from_u64(2019);
    let mut order: Vec<usize> = (0..VARIANTS).collect();
    for round in 0.. {
        let mut took = [Took {
            wall: 0.0,
            cpu: 0.0,
        }; VARIANTS];
        order.shuffle(&mut random);
        for &variant in &order {
            // The first run leaves allocator and caches as this variant does; the second counts.
            let mut last = None;
            for _ in 0..2 {
                let (rows, query_id);
                if variant == PLAIN {
                    (rows, took[variant]) = timed(run_plain(&plain, sql)).await?;
                    query_id = None;
                } else {
                    ((rows, query_id), took[variant]) =
                        timed(run_profiled(&sessions[variant - 1], sql)).await?;
                }
                if *rows_expected.get_or_insert(rows) != rows {
                    return Err(BenchError::Unexpected(format!(
                        "{}: variant {variant} returns {rows} rows, others another number",
                        workload.name
                    )));
                }
                last = query_id;
            }
            let (_, flush) = timed(corpus.flush()).await?;
            if variant == RECORDS {
                // Of both runs.
                flushes.push(flush);
            }
            if let Some(query_id) = last
                && round == 0
            {
                logs[variant] = log(&sessions[variant - 1], query_id).await?;
            }
        }
        if round == 0 {
            // Files and allocator are warm now.
            started = Instant::now();
            continue;
        }
        rounds.push(took);
        let spent = started.elapsed().as_secs_f64();
        if rounds.len() >= MIN_ROUNDS && spent >= seconds || rounds.len() >= MAX_ROUNDS {
            break;
        }
    }
    Ok(Measured {
        workload,
        input_rows,
        rounds,
        logs,
        flush: Took {
            wall: median(flushes.iter().map(|took| took.wall)) / 2.0,
            cpu: median(flushes.iter().map(|took| took.cpu)) / 2.0,
        },
    })
}

async fn run_plain(context: &SessionContext, sql: &str) -> Result<usize, BenchError> {
    let (context, sql) = (context.clone(), sql.to_owned());
    // As the engine does it: on a worker thread, not on the one that waits for the result.
    let batches = tokio::spawn(async move { context.sql(&sql).await?.collect().await }).await??;
    Ok(batches.iter().map(RecordBatch::num_rows).sum())
}

async fn run_profiled(session: &Session, sql: &str) -> Result<(usize, Option<i64>), BenchError> {
    let stream = session.sql(sql).await?;
    let query_id = stream.query_id();
    let batches = stream.collect().await?;
    Ok((batches.iter().map(RecordBatch::num_rows).sum(), query_id))
}

async fn log(session: &Session, query_id: i64) -> Result<Log, BenchError> {
    let sql = format!(
        "SELECT sum(peak_memory_bytes), sum(bytes_written), sum(events_dropped) \
         FROM sys.profiler_overhead WHERE query_id = {query_id}"
    );
    let batches = session.sql(&sql).await?.collect().await?;
    Ok(Log {
        memory: number(&batches, 0),
        disk: number(&batches, 1),
        dropped: number(&batches, 2),
    })
}

/// The number in the first row; 0 for NULL or no row.
fn number(batches: &[RecordBatch], column: usize) -> i64 {
    let first = batches.iter().find(|batch| batch.num_rows() > 0);
    let column = first.and_then(|batch| batch.column(column).as_primitive_opt::<Int64Type>());
    column.map_or(0, |column| column.iter().next().flatten().unwrap_or(0))
}

impl Measured {
    /// Median over the rounds of `of` the variant divided by the same of `base`.
    fn ratio(&self, variant: usize, base: usize, of: fn(&Took) -> f64) -> f64 {
        median(
            self.rounds
                .iter()
                .map(|round| of(&round[variant]) / of(&round[base])),
        )
    }

    fn median(&self, variant: usize, of: fn(&Took) -> f64) -> f64 {
        median(self.rounds.iter().map(|round| of(&round[variant])))
    }
}

fn wall(took: &Took) -> f64 {
    took.wall
}

fn cpu(took: &Took) -> f64 {
    took.cpu
}

fn name(variant: usize) -> String {
    match variant {
        PLAIN => "plain DataFusion".to_owned(),
        _ => match ProfileLevel::ALL.get(variant - 1) {
            Some(level) => level.to_string(),
            None => format!("{}, {}", ProfileLevel::Records, LineageMode::Piggyback),
        },
    }
}

/// What a level may cost at most, as a ratio to `off`; for `off` a ratio to plain DataFusion
/// within which two runs of the same program differ on a machine that others use too.
fn target(variant: usize) -> f64 {
    [f64::NAN, 1.03, 1.01, 1.03, 1.30, 1.30][variant]
}

fn report(measured: &[Measured]) -> String {
    let mut all = Table::new(&[
        "query",
        "variant",
        "wall, ms",
        "wall ÷ plain",
        "wall ÷ off",
        "processor time ÷ plain",
        "processor time ÷ off",
        "ns a row over off",
        "log in memory, MB per M rows",
        "log on disk, MB per M rows",
    ]);
    for one in measured {
        for variant in 0..VARIANTS {
            let over = one.median(variant, wall) - one.median(OFF, wall);
            let per_million = |bytes: i64| bytes as f64 / one.input_rows as f64;
            let log = one.logs[variant];
            let dropped = if log.dropped > 0 {
                " (some dropped)"
            } else {
                ""
            };
            let profiled = |text: String| {
                if variant > OFF {
                    text
                } else {
                    "–".to_owned()
                }
            };
            all.row(vec![
                match variant {
                    PLAIN => format!(
                        "{} ({} rows read, {} rounds)",
                        one.workload.name,
                        count(one.input_rows),
                        one.rounds.len()
                    ),
                    _ => String::new(),
                },
                name(variant),
                format!("{:.1}", one.median(variant, wall) * 1e3),
                format!("{:.3}", one.ratio(variant, PLAIN, wall)),
                format!("{:.3}", one.ratio(variant, OFF, wall)),
                format!("{:.3}", one.ratio(variant, PLAIN, cpu)),
                format!("{:.3}", one.ratio(variant, OFF, cpu)),
                profiled(format!("{:.2}", over * 1e9 / one.input_rows as f64)),
                profiled(format!("{:.3}{dropped}", per_million(log.memory))),
                profiled(format!("{:.3}", per_million(log.disk))),
            ]);
        }
    }
    let mut targets = Table::new(&[
        "level",
        "compared with",
        "target",
        "median query, wall",
        "median query, processor time",
        "worst query, wall",
        "queries within the target, wall",
        "within, processor time",
    ]);
    for variant in OFF..VARIANTS {
        let base = if variant == OFF { PLAIN } else { OFF };
        let walls: Vec<f64> = measured
            .iter()
            .map(|one| one.ratio(variant, base, wall))
            .collect();
        let cpus: Vec<f64> = measured
            .iter()
            .map(|one| one.ratio(variant, base, cpu))
            .collect();
        let worst = walls.iter().copied().fold(f64::NAN, f64::max);
        let within = |ratios: &[f64]| {
            let kept = ratios
                .iter()
                .filter(|ratio| **ratio <= target(variant))
                .count();
            format!("{kept} of {}", ratios.len())
        };
        targets.row(vec![
            name(variant),
            name(base),
            format!("≤ {:.2}", target(variant)),
            format!("{:.3}", median(walls.clone())),
            format!("{:.3}", median(cpus.clone())),
            format!("{worst:.3}"),
            within(&walls),
            within(&cpus),
        ]);
    }
    let mut flushes = Table::new(&[
        "query",
        "writing the log of level records, ms",
        "processor time, ms",
        "÷ processor time of the query at off",
        "query and writing its log, processor time ÷ off",
    ]);
    for one in measured {
        flushes.row(vec![
            one.workload.name.to_owned(),
            format!("{:.0}", one.flush.wall * 1e3),
            format!("{:.0}", one.flush.cpu * 1e3),
            format!("{:.2}", one.flush.cpu / one.median(OFF, cpu)),
            format!(
                "{:.3}",
                one.ratio(RECORDS, OFF, cpu) + one.flush.cpu / one.median(OFF, cpu)
            ),
        ]);
    }
    format!(
        "{targets}\nEvery query:\n\n{all}\nThe log is written in the background after the query. \
         While that takes processor time (here nothing else ran meanwhile), the query has \
         returned:\n\n{flushes}"
    )
}
