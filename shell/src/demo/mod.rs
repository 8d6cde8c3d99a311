//! `skewer demo`: three case studies of PerfDebug and three uses of tracing, from generated data to the speed-up.
//!
//! Each study tells the same story through public SQL and public API: load the files, run the
//! slow query, ask EXPLAIN PROFILE, let SQL over `sys` name the cause, remedy it, run again.
//!
//! * [`generate`]: the input files
//! * [`stage`]: what the studies are told with
//! * [`movies`], [`taxi`], [`weather`]: PerfDebug's studies
//! * [`outliers`], [`keys`], [`stream`]: the tracing paper's uses: documents in quarantine, heavy keys of an index,
//!   micro-batches with a deadline
//! * [`similarity`]: the heavy library of the stream's study
//! * [`expensive`]: the question that they share
//! * [`polygon`]: the geometry that the taxi study's row functions compute

mod expensive;
mod generate;
mod keys;
mod movies;
mod outliers;
mod polygon;
mod similarity;
mod stage;
mod stream;
mod taxi;
mod weather;

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use skewer::Database;

use crate::args::DemoArguments;
use crate::error::ShellError;
use crate::runner::Runner;
use crate::terminal::Terminal;
use stage::Stage;

/// A case study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Study {
    /// Ratings per star; one movie has most of all ratings
    Movies,
    /// Average cost per borough; one borough's polygon has 20,004 vertices
    Taxi,
    /// Median snowfall per state and day, and per state and year; one key is hot
    Weather,
    /// Terms of documents; a few documents take long, and a quarantine keeps them out
    Outliers,
    /// Documents per tag; a few tags have most of all documents, and later runs spread them
    Keys,
    /// Documents held against the model of their site, in micro-batches with a deadline; one site has most
    Stream,
}

/// What is to be generated.
#[derive(Debug, Clone, Copy)]
struct Plan<'a> {
    /// Where files go.
    directory: &'a Path,
    rows: Option<u64>,
    seed: u64,
}

/// Tells the study that was asked for.
pub async fn run(
    arguments: &DemoArguments,
    runner: Runner,
    terminal: Terminal,
) -> Result<(), ShellError> {
    let scratch = Scratch::new(arguments.keep.as_deref())?;
    let name = arguments.study.to_possible_value();
    let name = name.map_or_else(String::new, |value| value.get_name().to_owned());
    let path = scratch.path().join(format!("{name}.db"));
    if path.exists() {
        return Err(ShellError::Demo(format!(
            "{} exists already; remove it or keep the demo elsewhere",
            path.display()
        )));
    }
    let database = match arguments.study {
        Study::Stream => stream::database(&path)?,
        _ => Database::open(&path)?,
    };
    let mut stage = Stage::new(&database, runner, terminal);
    let plan = Plan {
        directory: scratch.path(),
        rows: arguments.rows,
        seed: arguments.seed,
    };
    match arguments.study {
        Study::Movies => movies::tell(&mut stage, plan).await?,
        Study::Taxi => taxi::tell(&mut stage, plan).await?,
        Study::Weather => weather::tell(&mut stage, plan).await?,
        Study::Outliers => outliers::tell(&mut stage, plan).await?,
        Study::Keys => keys::tell(&mut stage, plan).await?,
        Study::Stream => stream::tell(&mut stage, plan).await?,
    }
    if let Scratch::Kept(directory) = &scratch {
        stage.kept(directory, &path)?;
    } else {
        stage.hint(&name)?;
    }
    stage.show_page(&database).await?;
    drop(stage);
    database.close().await?;
    Ok(())
}

/// Where the demo works.
enum Scratch {
    /// Chosen by the user.
    Kept(PathBuf),
    /// Removed at the end.
    Temporary(tempfile::TempDir),
}

impl Scratch {
    fn new(keep: Option<&Path>) -> Result<Scratch, ShellError> {
        match keep {
            Some(directory) => {
                std::fs::create_dir_all(directory).map_err(|source| ShellError::File {
                    path: directory.to_owned(),
                    source,
                })?;
                Ok(Scratch::Kept(directory.to_owned()))
            }
            None => {
                let temporary = tempfile::Builder::new().prefix("skewer-demo-").tempdir();
                temporary
                    .map(Scratch::Temporary)
                    .map_err(|source| ShellError::File {
                        path: std::env::temp_dir(),
                        source,
                    })
            }
        }
    }

    fn path(&self) -> &Path {
        match self {
            Scratch::Kept(path) => path,
            Scratch::Temporary(directory) => directory.path(),
        }
    }
}
