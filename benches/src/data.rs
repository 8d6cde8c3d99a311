//! The tables of the experiments, generated: the same rows on every run.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

/// Rows of a table as they are generated.
pub type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>>>;

/// The seed of every generator.
const SEED: u64 = 2019;

/// Rows of a generated batch of the applications' tables.
const BATCH: usize = 8192;

/// Lines `movie:uid_rating,uid_rating,…` of very different length: 2,103 of them take about 98 MB.
pub fn movies(lines: usize) -> Batches {
    /// The mean number of ratings of a movie, for about 46.6 kB a line.
    const RATINGS: f64 = 4_900.0;
    /// Lines are long: a batch of a few has megabytes already.
    const LINES: usize = 64;
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    batches(lines, LINES, move |numbers| {
        let lines = numbers.map(|movie| {
            let share: f64 = random.random();
            // Exponential: many movies with few ratings, few with many.
            let ratings = 1 + (-(1.0 - share).ln() * RATINGS) as usize;
            let mut line = format!("{movie}:");
            for n in 0..ratings {
                let comma = if n == 0 { "" } else { "," };
                let user: u32 = random.random_range(1..2_700_000);
                let stars: u32 = random.random_range(1..=5);
                line.push_str(&format!("{comma}{user}_{stars}"));
            }
            line
        });
        let lines = StringViewArray::from_iter_values(lines);
        vec![("line", Arc::new(lines) as ArrayRef)]
    })
}

/// Students with grade and age.
pub fn students(rows: usize) -> Batches {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    batches(rows, BATCH, move |numbers| {
        let grades = numbers.clone().map(|_| random.random_range(0..=12_i64));
        let grades: Vec<i64> = grades.collect();
        let ages = grades
            .iter()
            .map(|grade| grade + random.random_range(5..=8_i64));
        let ages = Int64Array::from_iter_values(ages.collect::<Vec<_>>());
        vec![
            (
                "student",
                Arc::new(Int64Array::from_iter_values(numbers.map(|n| n as i64))),
            ),
            ("grade", Arc::new(Int64Array::from(grades))),
            ("age", Arc::new(ages)),
        ]
    })
}

/// Readings of snowfall, by ZIP code and date (`MM/DD/YYYY`).
pub fn weather(rows: usize) -> Batches {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    batches(rows, BATCH, move |numbers| {
        let mut zips = Vec::with_capacity(numbers.len());
        let mut dates = Vec::with_capacity(numbers.len());
        let mut snow = Vec::with_capacity(numbers.len());
        for _ in numbers.clone() {
            zips.push(format!("{:05}", random.random_range(1_000..=99_999_u32)));
            let (month, day) = (
                random.random_range(1..=12_u32),
                random.random_range(1..=28_u32),
            );
            let year = random.random_range(1920..=2019_u32);
            dates.push(format!("{month:02}/{day:02}/{year}"));
            snow.push(f64::from(random.random_range(0..=4_000_u32)));
        }
        vec![
            (
                "reading",
                Arc::new(Int64Array::from_iter_values(numbers.map(|n| n as i64))) as ArrayRef,
            ),
            ("zip", Arc::new(StringViewArray::from_iter_values(zips))),
            ("date", Arc::new(StringViewArray::from_iter_values(dates))),
            ("snowfall", Arc::new(Float64Array::from(snow))),
        ]
    })
}

/// Rows of a short text with one of a thousand keys, at random.
pub fn keys(rows: usize) -> Batches {
    const KEYS: i64 = 1_000;
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    batches(rows, BATCH, move |numbers| {
        let keys = numbers.clone().map(|_| random.random_range(0..KEYS));
        let keys = Int64Array::from_iter_values(keys.collect::<Vec<_>>());
        let texts = StringViewArray::from_iter_values(numbers.map(|n| format!("v{n}")));
        vec![("k", Arc::new(keys) as ArrayRef), ("s", Arc::new(texts))]
    })
}

/// Columns of a random vector.
pub const DIMENSIONS: usize = 10;

/// Labels of random vectors.
const LABELS: usize = 100;

/// How often the labels of random vectors occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Labels {
    /// All alike.
    Uniform,
    /// The k-th one in proportion to 1 ÷ k.
    Zipf,
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
        })
    }
}

/// Random vectors `x0` to `x9` with one of 100 labels.
pub fn vectors(rows: usize, labels: Labels) -> Batches {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let weights = (1..=LABELS).map(|k| match labels {
        Labels::Uniform => 1.0,
        Labels::Zipf => 1.0 / k as f64,
    });
    // Weights above 0 make a distribution.
    let label = WeightedIndex::new(weights).ok();
    batches(rows, BATCH, move |numbers| {
        let mut label = || label.as_ref().map(|label| label.sample(&mut random) as i64);
        let labels: Int64Array = numbers.clone().map(|_| label()).collect();
        let mut columns = vec![("label", Arc::new(labels) as ArrayRef)];
        const NAMES: [&str; DIMENSIONS] =
            ["x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9"];
        for name in NAMES {
            let values = numbers.clone().map(|_| random.random::<f64>());
            columns.push((name, Arc::new(Float64Array::from_iter_values(values))));
        }
        columns
    })
}

/// The eight tables of TPC-H.
pub fn tpch(scale: f64) -> Vec<(&'static str, Batches)> {
    vec![
        (
            "region",
            Box::new(RegionArrow::new(RegionGenerator::new(scale, 1, 1))) as Batches,
        ),
        (
            "nation",
            Box::new(NationArrow::new(NationGenerator::new(scale, 1, 1))),
        ),
        (
            "supplier",
            Box::new(SupplierArrow::new(SupplierGenerator::new(scale, 1, 1))),
        ),
        (
            "part",
            Box::new(PartArrow::new(PartGenerator::new(scale, 1, 1))),
        ),
        (
            "partsupp",
            Box::new(PartSuppArrow::new(PartSuppGenerator::new(scale, 1, 1))),
        ),
        (
            "customer",
            Box::new(CustomerArrow::new(CustomerGenerator::new(scale, 1, 1))),
        ),
        (
            "orders",
            Box::new(OrderArrow::new(OrderGenerator::new(scale, 1, 1))),
        ),
        (
            "lineitem",
            Box::new(LineItemArrow::new(LineItemGenerator::new(scale, 1, 1))),
        ),
    ]
}

/// `rows` rows in batches of `step`, whose columns `make` gives for each range of row numbers.
fn batches(
    rows: usize,
    step: usize,
    mut make: impl FnMut(std::ops::Range<usize>) -> Vec<(&'static str, ArrayRef)> + 'static,
) -> Batches {
    let starts = (0..rows).step_by(step);
    Box::new(starts.map(move |start| {
        let columns = make(start..rows.min(start + step));
        RecordBatch::try_from_iter(columns)
    }))
}

/// The first batch's schema, and all batches.
pub fn with_schema(batches: Batches) -> Result<(SchemaRef, Batches), ArrowError> {
    let mut batches = batches.peekable();
    match batches.peek() {
        Some(Ok(batch)) => Ok((batch.schema(), Box::new(batches))),
        Some(Err(_)) | None => Err(ArrowError::InvalidArgumentError(
            "a generator gave no rows".to_owned(),
        )),
    }
}
