//! How long it takes to isolate the expensive record in the log of a large query, and what the log
//! takes on disk, as the log grows.
//!
//! The query groups by a random key, so that its lineage is a key for each row and not a pattern. An
//! *edge* is one input row of one group. The first expensive input is looked for in a database that
//! was opened for it: nothing of the log is in the memory of the process, though it may be in the
//! cache of the operating system.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use skewer::Database;

use crate::corpus::Corpus;
use crate::data::keys;
use crate::document::publish;
use crate::error::BenchError;
use crate::injected_delay::first;
use crate::measure::{median, timed};
use crate::table::{Table, count};

/// Isolates the expensive record in logs of growing size.
#[derive(Debug, Parser)]
pub struct Arguments {
    /// Edges of the logs.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1000000,10000000,100000000"
    )]
    edges: Vec<usize>,
    /// Times that each log is asked, the database being opened anew.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Where generated databases are kept.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/benchmarks"))]
    data: PathBuf,
    /// Write the results into docs/benchmarks.md.
    #[arg(long)]
    write: bool,
}

/// A function is called on each row, so that records have a time of their own.
const QUERY: &str = "SELECT k, max(upper(s)) FROM t GROUP BY k";

/// Runs the experiment and publishes its results.
pub fn run(arguments: &Arguments) -> Result<(), BenchError> {
    tokio::runtime::Runtime::new()?.block_on(experiment(arguments))
}

async fn experiment(arguments: &Arguments) -> Result<(), BenchError> {
    let mut table = Table::new(&[
        "edges",
        "query at level `off`, s",
        "at `records`, s",
        "log, MB",
        "bytes an edge",
        "isolation, s",
        "slowest, s",
        "processor time, s",
    ]);
    for edges in &arguments.edges {
        let name = format!("keys-{edges}");
        let corpus = Corpus::open(&arguments.data, &name, || vec![("t", keys(*edges))]).await?;
        let path = arguments.data.join(&name).join("db");
        let off = query(&corpus, &path, "off").await?;
        let records = query(&corpus, &path, "records").await?;
        drop(corpus);
        let mut took = Vec::new();
        for _ in 0..arguments.rounds {
            took.push(isolate(&path, records.query_id, *edges).await?);
        }
        let walls = took.iter().map(|(wall, _)| *wall);
        table.row(vec![
            count(*edges as u64),
            format!("{:.2}", off.wall),
            format!("{:.2}", records.wall),
            format!("{:.1}", records.log as f64 / 1e6),
            format!("{:.2}", records.log as f64 / *edges as f64),
            format!("{:.2}", median(walls.clone())),
            format!("{:.2}", walls.fold(0.0, f64::max)),
            format!("{:.2}", median(took.iter().map(|(_, cpu)| *cpu))),
        ]);
    }
    let text = format!("`{QUERY}` over a thousand keys:\n\n{table}");
    publish("log growth", &text, arguments.write)
}

struct Recorded {
    query_id: i64,
    /// Seconds.
    wall: f64,
    /// Bytes that the run added to the files of schema `sys`.
    log: u64,
}

/// Runs the query at a level twice; the second run counts.
async fn query(corpus: &Corpus, database: &Path, level: &str) -> Result<Recorded, BenchError> {
    let session = corpus.database.session();
    let set = format!("SET profile.level = '{level}'");
    session.sql(&set).await?;
    session.sql(QUERY).await?.collect().await?;
    corpus.flush().await?;
    let sys = database.join("sys");
    let before = bytes_of(&sys)?;
    let run = async {
        let stream = session.sql(QUERY).await?;
        let query_id = stream.query_id().unwrap_or_default();
        stream.collect().await?;
        Ok::<_, BenchError>(query_id)
    };
    let (query_id, took) = timed(run).await?;
    corpus.flush().await?;
    Ok(Recorded {
        query_id,
        wall: took.wall,
        log: bytes_of(&sys)?.saturating_sub(before),
    })
}

/// Opens the database and looks for the query's most expensive record; gives the seconds that the
/// latter took, by the clock and of processor time.
async fn isolate(path: &Path, query_id: i64, edges: usize) -> Result<(f64, f64), BenchError> {
    let database = Database::open(path)?;
    let session = database.session();
    let sql = format!(
        "SELECT row_id FROM sys.expensive_inputs WHERE query_id = {query_id} \
         ORDER BY rank LIMIT 1"
    );
    let (batches, took) = timed(async { session.sql(&sql).await?.collect().await }).await?;
    let row_id = first(&batches, 0);
    if !row_id.is_some_and(|row_id| (0..edges as i64).contains(&row_id)) {
        return Err(BenchError::Unexpected(format!(
            "query {query_id} has no expensive record, but {row_id:?}"
        )));
    }
    drop(session);
    database.close().await?;
    Ok((took.wall, took.cpu))
}

/// The bytes of a directory's files.
fn bytes_of(directory: &Path) -> Result<u64, BenchError> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory).map_err(BenchError::file(directory))? {
        let path = entry.map_err(BenchError::file(directory))?.path();
        let metadata = fs::metadata(&path).map_err(BenchError::file(&path))?;
        bytes += if metadata.is_dir() {
            bytes_of(&path)?
        } else {
            metadata.len()
        };
    }
    Ok(bytes)
}
