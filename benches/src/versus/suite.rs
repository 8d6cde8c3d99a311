//! Tables and queries of the suites that systems are compared with.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::WriterProperties;

use super::{hits, python};
use crate::data::{Batches, tpch, with_schema};
use crate::error::BenchError;
use crate::workload::tpch_query;

/// Rows of a row group: about as many as DuckDB's and Skewer's own have.
const ROW_GROUP: usize = 1 << 17;

/// Written last: a directory without it is from a run that was interrupted.
const COMPLETE: &str = "complete";

/// How many rows some queries of TPC-H return at most, by the specification.
const TPCH_LIMITS: [(i32, usize); 5] = [(2, 100), (3, 10), (10, 20), (18, 100), (21, 100)];

/// Tables and queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// TPC-H: 8 tables, 22 queries.
    Tpch,
    /// TPC-DS: 24 tables, 99 queries, by DuckDB's extension.
    Tpcds,
    /// One wide table of web hits and 43 queries, as ClickBench has them: a million rows at scale factor 1.
    Hits,
}

/// A query and its name.
#[derive(Debug, Clone)]
pub struct Query {
    /// `q1`.
    pub name: String,
    /// The text, without a semicolon.
    pub sql: String,
    /// Whether its ORDER BY leaves no two rows in doubt.
    pub is_ordered: bool,
}

/// Tables as Parquet files, and queries.
#[derive(Debug)]
pub struct Source {
    /// Each table's name and file.
    pub tables: Vec<(String, PathBuf)>,
    /// The queries in their order.
    pub queries: Vec<Query>,
}

impl Suite {
    /// Its name in options and paths.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tpch => "tpch",
            Self::Tpcds => "tpcds",
            Self::Hits => "hits",
        }
    }

    /// How results call it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Tpch => "TPC-H",
            Self::Tpcds => "TPC-DS",
            Self::Hits => "web hits",
        }
    }

    /// The tables and queries in `directory`, generated if they are not there. Environments of Python are made in
    /// `environments`.
    ///
    /// # Errors
    /// If a generator fails, or a file cannot be written.
    pub fn source(
        self,
        scale: f64,
        directory: &Path,
        environments: &Path,
    ) -> Result<Source, BenchError> {
        let tables = directory.join("tables");
        let queries = directory.join("queries");
        let complete = directory.join(COMPLETE);
        if !complete.exists() {
            if directory.exists() {
                fs::remove_dir_all(directory).map_err(BenchError::file(directory))?;
            }
            for path in [&tables, &queries] {
                fs::create_dir_all(path).map_err(BenchError::file(path))?;
            }
            let generated = match self {
                Self::Tpch => tpch(scale),
                Self::Hits => vec![("hits", hits::hits(scale))],
                Self::Tpcds => {
                    python::generate_tpcds(scale, &tables, &queries, environments)?;
                    vec![]
                }
            };
            for (table, batches) in generated {
                write_parquet(&tables.join(format!("{table}.parquet")), batches)?;
            }
            fs::write(&complete, "").map_err(BenchError::file(&complete))?;
        }
        Ok(Source {
            tables: named_files(&tables)?,
            queries: self.queries(&queries)?,
        })
    }

    fn queries(self, directory: &Path) -> Result<Vec<Query>, BenchError> {
        let query = |number: usize, sql: String, is_ordered| Query {
            name: format!("q{number}"),
            sql,
            is_ordered,
        };
        match self {
            Self::Tpch => (1..=22)
                .map(|number| {
                    let sql = tpch_statement(number)?;
                    Ok(query(number as usize, sql, false))
                })
                .collect(),
            Self::Hits => {
                let statements = skewer::split(hits::QUERIES).into_iter().enumerate();
                Ok(statements
                    .map(|(place, statement)| query(place + 1, statement.sql, true))
                    .collect())
            }
            Self::Tpcds => {
                let mut queries = Vec::new();
                for (place, (_, file)) in named_files(directory)?.into_iter().enumerate() {
                    let sql = fs::read_to_string(&file).map_err(BenchError::file(&file))?;
                    queries.push(query(place + 1, sql, false));
                }
                Ok(queries)
            }
        }
    }
}

/// A query of TPC-H as one statement: the view of query 15 becomes a WITH, as the specification allows.
fn tpch_statement(number: i32) -> Result<String, BenchError> {
    let statements = tpch_query(number)?;
    let mut sql = match &statements[..] {
        [sql] => sql.clone(),
        [view, query, _] => {
            let with = view.replacen("create view", "with", 1);
            let with = with.replacen(" as", " as (", 1);
            format!("{with})\n{query}")
        }
        _ => {
            return Err(BenchError::Unexpected(format!(
                "query {number} of TPC-H has {} statements",
                statements.len()
            )));
        }
    };
    if let Some((_, limit)) = TPCH_LIMITS.iter().find(|(limited, _)| *limited == number) {
        sql.push_str(&format!(" limit {limit}"));
    }
    Ok(sql)
}

/// A query without the LIMIT at its end, if it has one: which of several equal rows come first is a system's
/// choice.
pub fn without_limit(sql: &str) -> Option<&str> {
    let lower = sql.to_ascii_lowercase();
    let at = lower.rfind("limit")?;
    let tail = lower[at + "limit".len()..].trim();
    let is_number = |word: &str| word == "offset" || word.parse::<u64>().is_ok();
    let is_last = !tail.is_empty() && tail.split_whitespace().all(is_number);
    is_last.then(|| sql[..at].trim_end())
}

/// The files of a directory by name, without what is behind the dot.
fn named_files(directory: &Path) -> Result<Vec<(String, PathBuf)>, BenchError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(BenchError::file(directory))? {
        let path = entry.map_err(BenchError::file(directory))?.path();
        if let Some(name) = path.file_stem().and_then(|name| name.to_str()) {
            files.push((name.to_owned(), path.clone()));
        }
    }
    files.sort();
    Ok(files)
}

fn write_parquet(path: &Path, batches: Batches) -> Result<(), BenchError> {
    let (schema, batches) = with_schema(batches)?;
    let file = File::create(path).map_err(BenchError::file(path))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::LZ4_RAW)
        .set_max_row_group_row_count(Some(ROW_GROUP));
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties.build()))?;
    for batch in batches {
        writer.write(&batch?)?;
    }
    writer.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_limit_is_taken_away() {
        let sql = "SELECT a FROM (SELECT a FROM t LIMIT 5) ORDER BY a LIMIT 10 OFFSET 3";
        let rest = "SELECT a FROM (SELECT a FROM t LIMIT 5) ORDER BY a";
        assert_eq!(without_limit(sql), Some(rest));
        assert_eq!(without_limit(rest), None);
        assert_eq!(without_limit("SELECT speed_limit FROM t"), None);
    }

    #[test]
    fn every_query_of_tpch_is_one_statement() {
        for number in 1..=22 {
            let sql = tpch_statement(number).unwrap();
            assert_eq!(skewer::split(&sql).len(), 1, "{number}");
        }
        let top_supplier = tpch_statement(15).unwrap();
        assert!(top_supplier.starts_with("with revenue0 (supplier_no, total_revenue) as (\n"));
    }
}
