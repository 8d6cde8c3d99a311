//! How long a database with many segments takes to open, and to answer first queries.

use std::path::PathBuf;
use std::time::Instant;

use crate::document::publish;
use crate::error::BenchError;
use crate::measure::{median, timed};
use crate::table::{Table, count};
use clap::Parser;
use skewer::Database;
use skewer_storage::StorageOptions;

/// Opens a database with many segments.
#[derive(Debug, Parser)]
pub struct Arguments {
    /// Segments of the one table.
    #[arg(long, default_value_t = 10_000)]
    segments: u64,
    /// Times that the database is opened.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Where generated databases are kept.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/benchmarks"))]
    data: PathBuf,
    /// Write the results into docs/benchmarks.md.
    #[arg(long)]
    write: bool,
}

/// Rows of a segment: what is measured is the number of segments, not the rows in them.
const ROWS: u64 = 100;

/// Runs the experiment and publishes its results.
pub fn run(arguments: &Arguments) -> Result<(), BenchError> {
    tokio::runtime::Runtime::new()?.block_on(experiment(arguments))
}

async fn experiment(arguments: &Arguments) -> Result<(), BenchError> {
    let path = arguments
        .data
        .join(format!("segments-{}", arguments.segments))
        .join("db");
    let complete = path.with_file_name("complete");
    if !complete.exists() {
        make(&path, arguments.segments).await?;
        std::fs::write(&complete, "").map_err(BenchError::file(&complete))?;
    }
    let row = arguments.segments * ROWS / 2;
    let queries = [
        (
            "one row by its id",
            format!("SELECT a FROM t WHERE _row_id = {row}"),
        ),
        ("count(*)", "SELECT count(*) FROM t".to_owned()),
        ("sum over all segments", "SELECT sum(a) FROM t".to_owned()),
        ("the same again", "SELECT sum(a) FROM t".to_owned()),
    ];
    let mut opens = Vec::new();
    let mut answers = vec![Vec::new(); queries.len()];
    for _ in 0..arguments.rounds {
        let started = Instant::now();
        let database = Database::open(&path)?;
        opens.push(started.elapsed().as_secs_f64());
        let session = database.session();
        for ((_, sql), answers) in queries.iter().zip(&mut answers) {
            let (_, took) = timed(async { session.sql(sql).await?.collect().await }).await?;
            answers.push(took.wall);
        }
        drop(session);
        database.close().await?;
    }
    let mut table = Table::new(&["", "median, ms", "slowest, ms"]);
    let mut row = |what: &str, seconds: &[f64]| {
        let slowest = seconds.iter().copied().fold(0.0, f64::max);
        let median = median(seconds.iter().copied());
        table.row(vec![
            what.to_owned(),
            format!("{:.1}", median * 1e3),
            format!("{:.1}", slowest * 1e3),
        ]);
    };
    row("opening", &opens);
    for ((what, sql), answers) in queries.iter().zip(&answers) {
        row(&format!("{what}: `{sql}`"), answers);
    }
    let text = format!(
        "{} segments of {ROWS} rows, opened {} times; the queries follow each other.\n\n{table}",
        count(arguments.segments),
        arguments.rounds
    );
    publish("many segments", &text, arguments.write)
}

/// One statement writes all the segments: they are full, so none of them is merged.
async fn make(path: &std::path::Path, segments: u64) -> Result<(), BenchError> {
    if path.exists() {
        std::fs::remove_dir_all(path).map_err(BenchError::file(path))?;
    }
    std::fs::create_dir_all(path).map_err(BenchError::file(path))?;
    let options = StorageOptions {
        segment_rows: ROWS,
        ..StorageOptions::default()
    };
    let database = Database::builder()
        .path(path)
        .storage_options(options)
        .build()?;
    let rows = segments * ROWS;
    let sql = format!("CREATE TABLE t AS SELECT value AS a FROM generate_series(1, {rows})");
    database.session().sql(&sql).await?;
    database.close().await?;
    Ok(())
}
