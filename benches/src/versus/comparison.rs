//! The runs of a comparison.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::answer::Answer;
use super::process::{Contender, Process};
use super::results::{Loaded, QueryRuns, Runs};
use super::suite::{Query, Source, without_limit};
use super::{Arguments, LoadBy};
use crate::error::BenchError;

/// What a comparison needs.
#[derive(Debug, Clone, Copy)]
pub struct Comparison<'a> {
    /// What was asked for.
    pub(super) arguments: &'a Arguments,
    /// The tables and queries.
    pub(super) source: &'a Source,
    /// Where databases are kept.
    pub(super) home: &'a Path,
}

impl Comparison<'_> {
    /// The directory of a contender's database.
    fn directory(&self, contender: &Contender) -> PathBuf {
        let name = contender.name.to_lowercase();
        self.home
            .join(name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-"))
    }

    fn start(&self, contender: &Contender) -> Result<Process, BenchError> {
        let mut open = json!({
            "do": "open",
            "threads": self.arguments.threads(),
            "memory_limit": self.arguments.memory_limit,
            "settings": contender.settings,
        });
        if contender.system.has_database() {
            open["path"] = json!(self.directory(contender).join("db"));
        } else {
            open["views"] = self.files();
        }
        let timeout = Duration::from_secs(self.arguments.timeout);
        Process::start(contender, &open, timeout)
    }

    fn files(&self) -> Value {
        json!(self.source.tables)
    }

    /// Loads the tables of a contender that has a database.
    ///
    /// # Errors
    /// If it cannot load them.
    pub fn load(&self, contender: &Contender) -> Result<Option<Loaded>, BenchError> {
        if !contender.system.has_database() {
            return Ok(None);
        }
        let directory = self.directory(contender);
        let complete = directory.join("complete");
        if self.arguments.keep && complete.exists() {
            return Ok(None);
        }
        if directory.exists() {
            fs::remove_dir_all(&directory).map_err(BenchError::file(&directory))?;
        }
        fs::create_dir_all(&directory).map_err(BenchError::file(&directory))?;
        let by = match self.arguments.load {
            LoadBy::CreateTableAs => "create table as",
            LoadBy::Copy => "copy",
        };
        let mut process = self.start(contender)?;
        let load = json!({"do": "load", "tables": self.files(), "by": by});
        let told = |error: String| BenchError::Unexpected(format!("{}: {error}", contender.name));
        let answered = process.measure(&load).map_err(told)?;
        let peak = process.peak_bytes();
        process.close()?;
        fs::write(&complete, "").map_err(BenchError::file(&complete))?;
        Ok(Some(Loaded {
            took: answered.took,
            bytes: bytes_in(&directory)?,
            peak,
        }))
    }

    /// All runs of a query.
    ///
    /// # Errors
    /// If a process cannot be started. What goes wrong with a query is a result.
    pub fn measure(
        &self,
        query: &Query,
        contenders: &[Contender],
    ) -> Result<QueryRuns, BenchError> {
        let mut all: Vec<Runs> = Vec::new();
        let mut processes: Vec<Option<Process>> = Vec::new();
        let answers = tempfile::tempdir()?;
        let mut first: Option<(usize, Answer)> = None;
        for (place, contender) in contenders.iter().enumerate() {
            let mut process = self.start(contender)?;
            let path = answers.path().join(place.to_string());
            let mut runs = Runs::default();
            match process.measure(&asking(&query.sql, Some(&path))) {
                Ok(answered) => {
                    runs.cold = Some(answered.took);
                    runs.rows = answered.rows;
                    let answer = Answer::read(&path)?;
                    match &first {
                        None => first = Some((place, answer)),
                        Some((other, expected)) => {
                            let differs = expected.difference(&answer, query.is_ordered);
                            if let Some(difference) = differs {
                                let known = processes[*other].as_mut();
                                runs.differs =
                                    difference_in_all(query, difference, known, &mut process)?;
                            }
                        }
                    }
                    processes.push(Some(process));
                }
                Err(error) => {
                    runs.error = Some(error);
                    processes.push(None);
                }
            }
            all.push(runs);
        }
        let sql = asking(&query.sql, None);
        for round in 0..self.arguments.rounds {
            for turn in 0..contenders.len() {
                let place = (round + turn) % contenders.len();
                let Some(process) = &mut processes[place] else {
                    continue;
                };
                match process.measure(&sql) {
                    Ok(answered) => all[place].hot.push(answered.took),
                    Err(error) => {
                        all[place].error = Some(error);
                        processes[place] = None;
                    }
                }
            }
        }
        for (process, runs) in processes.iter().zip(&mut all) {
            runs.peak = process.as_ref().map_or(0, Process::peak_bytes);
        }
        Ok(QueryRuns {
            name: query.name.clone(),
            runs: all,
        })
    }
}

/// A request for a query's rows, in a file if `answer` names one.
fn asking(sql: &str, answer: Option<&Path>) -> Value {
    json!({"do": "query", "sql": sql, "answer": answer})
}

/// What differs between two systems' answers, if it is not only which of several equal rows a LIMIT leaves.
fn difference_in_all(
    query: &Query,
    difference: String,
    known: Option<&mut Process>,
    process: &mut Process,
) -> Result<Option<String>, BenchError> {
    let (Some(sql), Some(known)) = (without_limit(&query.sql), known) else {
        return Ok(Some(difference));
    };
    let answers = tempfile::tempdir()?;
    let mut whole = Vec::new();
    for (place, process) in [known, process].into_iter().enumerate() {
        let path = answers.path().join(place.to_string());
        if let Err(error) = process.measure(&asking(sql, Some(&path))) {
            return Ok(Some(format!("{difference}; without LIMIT {error}")));
        }
        whole.push(Answer::read(&path)?);
    }
    Ok(whole[0].difference(&whole[1], query.is_ordered))
}

/// The bytes of all files below a directory.
fn bytes_in(directory: &Path) -> Result<u64, BenchError> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory).map_err(BenchError::file(directory))? {
        let entry = entry.map_err(BenchError::file(directory))?;
        let metadata = entry.metadata().map_err(BenchError::file(entry.path()))?;
        bytes += if metadata.is_dir() {
            bytes_in(&entry.path())?
        } else {
            metadata.len()
        };
    }
    Ok(bytes)
}
