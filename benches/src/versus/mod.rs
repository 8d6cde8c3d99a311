//! Skewer against DuckDB and plain DataFusion: the same queries on the same rows, in one run.
//!
//! Each system is a process of its own ([`process`]), with the same number of threads and the same memory
//! limit. Skewer has its own tables, DuckDB a file of its own, plain DataFusion the Parquet files that both were
//! loaded from, or their rows in memory. A query's processes are new: its first run in them is *cold* (but for
//! the operating system's cache of files), the median of those that follow is *hot*. In each round every system
//! runs the query once, and another one begins, so that a machine that gets slower slows all.
//!
//! Processes measure their own times: until the last row of the answer is there as Arrow. Processor time is that of
//! all threads of the process.
//!
//! The answers of the first runs must be the same ([`answer`]). If a LIMIT leaves the choice among equal rows to
//! the system, the answers without it must be.

pub mod answer;
pub mod comparison;
pub mod hits;
pub mod process;
pub mod python;
pub mod results;
pub mod serve;
pub mod suite;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::document::publish;
use crate::error::BenchError;
use clap::{Parser, ValueEnum};

use comparison::Comparison;
use process::Contender;
use results::Measured;
use suite::Suite;

/// The version of DuckDB unless an option names another.
const DUCKDB_VERSION: &str = "2.0.1";

/// Compares systems.
#[derive(Debug, Parser)]
pub struct Arguments {
    /// Which tables and queries.
    #[arg(long, value_enum, default_value = "tpch")]
    suite: Suite,
    /// The scale factor: 1 is a gigabyte of TPC-H or TPC-DS, or a million web hits.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// What takes part; ratios are those of the first to the others.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "skewer,duckdb,datafusion"
    )]
    systems: Vec<System>,
    /// Other builds of this program, whose Skewer takes part too: NAME=PATH.
    #[arg(long)]
    other: Vec<String>,
    /// Settings with which Skewer takes part once more, as 'datafusion.execution.batch_size = 16384'.
    #[arg(long)]
    set: Vec<String>,
    /// Only these queries, as q1,q5.
    #[arg(long, value_delimiter = ',')]
    queries: Vec<String>,
    /// Hot runs of each query and system.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Threads of each system [default: as many as there are processors].
    #[arg(long)]
    threads: Option<usize>,
    /// Bytes that the operators of each system may hold, as 100MB or 4GB [default: no limit].
    #[arg(long, value_parser = parse_bytes)]
    memory_limit: Option<u64>,
    /// How tables are loaded.
    #[arg(long, value_enum, default_value = "create-table-as")]
    load: LoadBy,
    /// Use the databases of an earlier run, if there are any, without measuring how long loading takes.
    #[arg(long)]
    keep: bool,
    /// Seconds after which a query is given up.
    #[arg(long, default_value_t = 300)]
    timeout: u64,
    /// A Python interpreter with the packages duckdb and pyarrow [default: one in an environment that is made].
    #[arg(long)]
    python: Option<PathBuf>,
    /// The version of DuckDB in the environment that is made.
    #[arg(long, default_value = DUCKDB_VERSION)]
    duckdb_version: String,
    /// Where tables and databases are kept.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/benchmarks/versus"))]
    data: PathBuf,
    /// A file for all measurements, as JSON.
    #[arg(long)]
    output: Option<PathBuf>,
    /// Write the results into docs/benchmarks.md.
    #[arg(long)]
    write: bool,
    /// Answer requests of a comparison.
    #[arg(long, hide = true)]
    serve: Option<System>,
}

/// What can take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum System {
    /// Skewer with its own tables.
    Skewer,
    /// DuckDB with a file of its own.
    Duckdb,
    /// DuckDB on Parquet files.
    DuckdbParquet,
    /// Plain DataFusion on Parquet files.
    Datafusion,
    /// Plain DataFusion with the rows in memory.
    DatafusionMemory,
}

impl System {
    /// Its name in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Skewer => "skewer",
            Self::Duckdb => "duckdb",
            Self::DuckdbParquet => "duckdb-parquet",
            Self::Datafusion => "datafusion",
            Self::DatafusionMemory => "datafusion-memory",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Skewer => "Skewer",
            Self::Duckdb => "DuckDB",
            Self::DuckdbParquet => "DuckDB on Parquet",
            Self::Datafusion => "DataFusion",
            Self::DatafusionMemory => "DataFusion in memory",
        }
    }

    fn is_duckdb(self) -> bool {
        matches!(self, Self::Duckdb | Self::DuckdbParquet)
    }

    /// Whether it has a database that tables are loaded into.
    fn has_database(self) -> bool {
        matches!(self, Self::Skewer | Self::Duckdb)
    }
}

/// How tables are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LoadBy {
    /// CREATE TABLE … AS SELECT * FROM the file.
    CreateTableAs,
    /// COPY … FROM the file, into a table that is there.
    Copy,
}

/// Bytes, as `100MB`.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let units = [("KB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000)];
    let unit = units.iter().find_map(|(unit, bytes)| {
        let number = text.strip_suffix(unit)?;
        Some((number, *bytes))
    });
    let (number, bytes) = unit.unwrap_or((text, 1));
    let number = number.trim().parse::<u64>();
    number
        .map(|number| number * bytes)
        .map_err(|_| format!("{text} is no number of bytes, as 100MB"))
}

/// Runs the comparison and publishes its results; or answers the requests of one.
///
/// # Errors
/// If tables cannot be made or loaded, or a file cannot be written. A query that fails is a result.
pub fn run(arguments: &Arguments) -> Result<(), BenchError> {
    if let Some(system) = arguments.serve {
        return serve::serve(system);
    }
    let home = arguments
        .data
        .join(format!("{}-{}", arguments.suite.name(), arguments.scale));
    let environments = arguments.data.join("environments");
    let source = arguments
        .suite
        .source(arguments.scale, &home.join("source"), &environments)?;
    let contenders = arguments.contenders(&environments)?;
    let comparison = Comparison {
        arguments,
        source: &source,
        home: &home,
    };
    let mut loaded = Vec::new();
    for contender in &contenders {
        loaded.push(comparison.load(contender)?);
    }
    let mut queries = Vec::new();
    for query in &source.queries {
        let wanted = &arguments.queries;
        if wanted.is_empty() || wanted.contains(&query.name) {
            let runs = comparison.measure(query, &contenders)?;
            writeln!(std::io::stderr(), "{}", results::line(&runs, &contenders))?;
            queries.push(runs);
        }
    }
    let measured = Measured {
        names: contenders.into_iter().map(|one| one.name).collect(),
        loaded,
        queries,
        rounds: arguments.rounds,
    };
    if let Some(path) = &arguments.output {
        let text = measured.to_json().to_string();
        fs::write(path, text).map_err(BenchError::file(path))?;
    }
    let name = format!("versus {} {}", arguments.suite.name(), arguments.scale);
    let text = format!("{}\n\n{measured}", arguments.circumstances());
    publish(&name, &text, arguments.write)
}

impl Arguments {
    fn threads(&self) -> usize {
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or(all)
    }

    fn contenders(&self, environments: &Path) -> Result<Vec<Contender>, BenchError> {
        let own = std::env::current_exe()?;
        let mut contenders = Vec::new();
        for &system in &self.systems {
            let program = match (&self.python, system.is_duckdb()) {
                (_, false) => own.clone(),
                (Some(python), true) => python.clone(),
                (None, true) => python::with_duckdb(&self.duckdb_version, environments)?,
            };
            contenders.push(Contender {
                name: system.title().to_owned(),
                system,
                program,
                settings: Vec::new(),
            });
        }
        for other in &self.other {
            let Some((name, path)) = other.split_once('=') else {
                return Err(BenchError::Unexpected(format!("{other} is not NAME=PATH")));
            };
            contenders.push(Contender {
                name: name.to_owned(),
                system: System::Skewer,
                program: PathBuf::from(path),
                settings: Vec::new(),
            });
        }
        if !self.set.is_empty() {
            contenders.push(Contender {
                name: "Skewer, set".to_owned(),
                system: System::Skewer,
                program: own,
                settings: self.set.clone(),
            });
        }
        Ok(contenders)
    }

    /// What the numbers are of, but for machine, date and revision.
    fn circumstances(&self) -> String {
        let mut text = format!(
            "{} at scale factor {}, {} threads",
            self.suite.title(),
            self.scale,
            self.threads()
        );
        if self.systems.iter().any(|system| system.is_duckdb()) {
            let version = match &self.python {
                Some(python) => format!("of {}", python.display()),
                None => self.duckdb_version.clone(),
            };
            text.push_str(&format!(", DuckDB {version}"));
        }
        if let Some(bytes) = self.memory_limit {
            text.push_str(&format!(", a memory limit of {} MB", bytes / 1_000_000));
        }
        for setting in &self.set {
            text.push_str(&format!(", `SET {setting}`"));
        }
        text.push_str(&format!(
            ". Cold is the first run of new processes, hot the median of {} more.",
            self.rounds
        ));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        assert_eq!(parse_bytes("100MB"), Ok(100_000_000));
        assert_eq!(parse_bytes("4GB"), Ok(4_000_000_000));
        assert_eq!(parse_bytes("512"), Ok(512));
        assert!(parse_bytes("much").is_err());
    }

    #[test]
    fn arguments_are_understood() {
        let text =
            "versus --suite hits --scale 0.01 --systems skewer,datafusion-memory --queries q1,q5";
        let arguments = Arguments::try_parse_from(text.split(' ')).unwrap();
        assert_eq!(arguments.suite, Suite::Hits);
        assert_eq!(
            arguments.systems,
            [System::Skewer, System::DatafusionMemory]
        );
        assert_eq!(arguments.queries, ["q1", "q5"]);
    }
}
