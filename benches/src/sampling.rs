//! What tracing a share of the records costs: the random vectors of *Optimizing Distributed Data
//! Stream Processing by Tracing*, 100,000 of dimension 10 with one of 100 labels, uniform or by
//! Zipf's law, summed per label in 10 partitions.
//!
//! A query over so few rows takes milliseconds here, of which planning is a good part; so it is
//! measured with fifty times the rows, too. Rounds are interleaved and ratios taken within a
//! round, as in [`crate::overhead`].

use std::path::PathBuf;

use clap::Parser;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::corpus::Corpus;
use crate::data::{self, DIMENSIONS, Labels};
use crate::document::publish;
use crate::error::BenchError;
use crate::measure::{Took, median, timed};
use crate::table::{Table, count};

/// Measures what tracing a share of the records costs.
#[derive(Debug, Parser)]
pub struct Arguments {
    /// Rounds of each size and distribution.
    #[arg(long, default_value_t = 51)]
    rounds: usize,
    /// How many vectors.
    #[arg(long, value_delimiter = ',', default_value = "100000,5000000")]
    sizes: Vec<usize>,
    /// Where generated databases are kept.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/benchmarks"))]
    data: PathBuf,
    /// Write the results into docs/benchmarks.md.
    #[arg(long)]
    write: bool,
}

/// The share of records that a variant traces, and how it is set.
#[derive(Debug, Clone, Copy)]
enum Variant {
    Off,
    Counters,
    /// Of all records; 0 stands for a rate that no record meets.
    Rate(f64),
    Budget(&'static str),
}

const VARIANTS: [Variant; 8] = [
    Variant::Off,
    Variant::Counters,
    Variant::Rate(0.0),
    Variant::Rate(0.0001),
    Variant::Rate(0.001),
    Variant::Rate(0.01),
    Variant::Rate(1.0),
    Variant::Budget("5%"),
];

impl Variant {
    fn name(self) -> String {
        match self {
            Self::Off => "level off".to_owned(),
            Self::Counters => "level counters".to_owned(),
            Self::Rate(rate) => format!("{} % of the records", rate * 100.0),
            Self::Budget(budget) => format!("profile.budget = '{budget}'"),
        }
    }

    fn settings(self) -> Vec<String> {
        match self {
            Self::Off => vec!["SET profile.level = 'off'".to_owned()],
            Self::Counters => vec!["SET profile.level = 'counters'".to_owned()],
            Self::Rate(rate) => vec![
                "SET profile.level = 'records'".to_owned(),
                format!("SET profile.sample_rate = {}", rate.max(1e-15)),
            ],
            Self::Budget(budget) => vec![format!("SET profile.budget = '{budget}'")],
        }
    }
}

/// Runs the experiment and publishes its results.
pub fn run(arguments: &Arguments) -> Result<(), BenchError> {
    tokio::runtime::Runtime::new()?.block_on(experiment(arguments))
}

async fn experiment(arguments: &Arguments) -> Result<(), BenchError> {
    let mut table = Table::new(&[
        "vectors",
        "traced",
        "wall, ms",
        "wall ÷ off",
        "processor time ÷ off",
    ]);
    for rows in &arguments.sizes {
        for labels in [Labels::Uniform, Labels::Zipf] {
            let name = format!("vectors-{labels}-{rows}");
            let generate = || vec![("vectors", data::vectors(*rows, labels))];
            let corpus = Corpus::open(&arguments.data, &name, generate).await?;
            let rounds = measure(&corpus, arguments.rounds).await?;
            for (number, variant) in VARIANTS.into_iter().enumerate() {
                let ratio = |of: fn(&Took) -> f64| {
                    median(rounds.iter().map(|r| of(&r[number]) / of(&r[0])))
                };
                table.row(vec![
                    match number {
                        0 => format!("{}, labels {labels}", count(*rows as u64)),
                        _ => String::new(),
                    },
                    variant.name(),
                    format!("{:.2}", median(rounds.iter().map(|r| r[number].wall)) * 1e3),
                    format!("{:.3}", ratio(|took| took.wall)),
                    format!("{:.3}", ratio(|took| took.cpu)),
                ]);
            }
        }
    }
    publish("sampling", &table.to_string(), arguments.write)
}

/// Of each round, what the variants took.
async fn measure(corpus: &Corpus, rounds: usize) -> Result<Vec<Vec<Took>>, BenchError> {
    let sums: Vec<String> = (0..DIMENSIONS).map(|n| format!("sum(x{n})")).collect();
    let sql = format!(
        "SELECT label, {} FROM vectors GROUP BY label",
        sums.join(", ")
    );
    let mut sessions = Vec::new();
    for variant in VARIANTS {
        let session = corpus.database.session();
        session.sql("SET threads = 10").await?;
        for setting in variant.settings() {
            session.sql(&setting).await?;
        }
        sessions.push(session);
    }
    let mut random = ChaCha8Rng::seed_from_u64(2020);
    let mut order: Vec<usize> = (0..VARIANTS.len()).collect();
    let mut measured = Vec::new();
    for round in 0..=rounds {
        order.shuffle(&mut random);
        let mut took = vec![
            Took {
                wall: 0.0,
                cpu: 0.0,
            };
            VARIANTS.len()
        ];
        for &variant in &order {
            // The first run leaves allocator and caches as this variant does; the second counts.
            for _ in 0..2 {
                let run = async { sessions[variant].sql(&sql).await?.collect().await };
                took[variant] = timed(run).await?.1;
            }
            corpus.flush().await?;
        }
        if round > 0 {
            measured.push(took);
        }
    }
    Ok(measured)
}
