//! Runs the fault laboratory: see docs/diagnosis.md.

use std::io::{Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use skewer_faults::cases::{Case, Draw, Set, Topology, draw};
use skewer_faults::cgroup::Hierarchy;
use skewer_faults::error::{Context, Error, Result};
use skewer_faults::fault::Fault;
use skewer_faults::protocol::{Laboratory, Outcome};
use skewer_faults::records::{CaseEnd, Log, Program, read};
use skewer_faults::remedies::{Measurement, measure};
use skewer_faults::summary::summarize;
use tokio::signal::unix::{SignalKind, signal};

/// Inject faults into a running database, and count what its diagnoses find.
#[derive(Debug, Parser)]
struct Options {
    /// The program `skewer` [default: that of the environment variable `SKEWER_BINARY`].
    #[arg(long)]
    binary: Option<PathBuf>,
    /// An older program, whose diagnoses are counted on the same cases.
    #[arg(long)]
    baseline: Option<PathBuf>,
    /// Which cases: those for setting thresholds, or those for judging them.
    #[arg(long, value_enum, default_value = "judge")]
    set: Set,
    /// Draws the cases.
    #[arg(long, default_value_t = 55)]
    seed: u64,
    /// Cases with a fault [default: 300, or 20 if small].
    #[arg(long)]
    cases: Option<usize>,
    /// Cases without a fault, each with two runs a pair [default: 100, or 4 if small].
    #[arg(long)]
    clean: Option<usize>,
    /// Runs of each case with and without the fault [default: 5, or 3 if small].
    #[arg(long)]
    pairs: Option<usize>,
    /// Some 20 cases and 80 clean runs, in at most ten minutes.
    #[arg(long)]
    small: bool,
    /// Only these faults.
    #[arg(long, value_enum)]
    only: Vec<Fault>,
    /// Only these processes [default: all].
    #[arg(long, value_enum)]
    topology: Vec<Topology>,
    /// Begin no case after so many minutes.
    #[arg(long)]
    minutes: Option<u64>,
    /// About how long a clean query shall take, in milliseconds.
    #[arg(long, default_value_t = 300)]
    target: u64,
    /// The log of all runs. If it exists, the laboratory goes on where it ended.
    #[arg(long, default_value = "faults.jsonl")]
    log: PathBuf,
    /// Where the summary goes [default: standard output].
    #[arg(long)]
    summary: Option<PathBuf>,
    /// Where databases are made for the time of the run [default: the system's directory for temporary files].
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Print the cases and end.
    #[arg(long)]
    list: bool,
    /// Measure what remedies for skew save, and end.
    #[arg(long)]
    remedies: bool,
    /// Rows of the tables for that.
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Summarize the log and end.
    #[arg(long)]
    only_summary: bool,
}

fn main() -> ExitCode {
    // One thread starts all processes: the kernel ends them with it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let options = Options::parse();
    let ended = runtime
        .context("cannot start")
        .and_then(|runtime| runtime.block_on(work(&options)));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn work(options: &Options) -> Result<()> {
    if options.only_summary {
        return print_summary(options);
    }
    if options.remedies {
        return measure_remedies(options).await;
    }
    let cases = drawn(options);
    if options.list {
        let ids: Vec<&str> = cases.iter().map(|case| case.id.as_str()).collect();
        return writeln!(stdout(), "{}", ids.join("\n")).context("standard output");
    }
    let mut terminated = signal(SignalKind::terminate()).context("SIGTERM")?;
    // What is dropped when a signal comes ends its processes and removes its control groups.
    let ended = tokio::select! {
        ended = run(options, &cases) => ended,
        _ = tokio::signal::ctrl_c() => Err(Error::new("interrupted; the same command goes on from here")),
        _ = terminated.recv() => Err(Error::new("terminated; the same command goes on from here")),
    };
    ended.and_then(|()| print_summary(options))
}

async fn measure_remedies(options: &Options) -> Result<()> {
    let scratch = Scratch::new(options)?;
    let hierarchy = Hierarchy::new()?;
    let binary = program(options)?;
    let table = measure(Measurement {
        binary: &binary,
        directory: &scratch.0,
        hierarchy: &hierarchy,
        rows: options.rows,
        pairs: options.pairs.unwrap_or(5),
    });
    let table = table.await?;
    match &options.summary {
        Some(path) => std::fs::write(path, table).context(path.display()),
        None => stdout()
            .write_all(table.as_bytes())
            .context("standard output"),
    }
}

/// The program that is judged.
fn program(options: &Options) -> Result<PathBuf> {
    match &options.binary {
        Some(binary) => Ok(binary.clone()),
        None => std::env::var_os("SKEWER_BINARY")
            .map(PathBuf::from)
            .ok_or_else(|| Error::new("which program: --binary?")),
    }
}

fn drawn(options: &Options) -> Vec<Case> {
    let or = |given: Option<usize>, small, whole| {
        given.unwrap_or(if options.small { small } else { whole })
    };
    draw(&Draw {
        set: options.set,
        seed: options.seed,
        faulty: or(options.cases, 20, 300),
        clean: or(options.clean, 4, 100),
        faults: if options.only.is_empty() {
            Fault::ALL.to_vec()
        } else {
            options.only.clone()
        },
        topologies: match options.topology.is_empty() {
            true => Topology::ALL.to_vec(),
            false => options.topology.clone(),
        },
    })
}

fn print_summary(options: &Options) -> Result<()> {
    let text = summarize(&read(&options.log)?);
    match &options.summary {
        Some(path) => std::fs::write(path, text).context(path.display()),
        None => stdout()
            .write_all(text.as_bytes())
            .context("standard output"),
    }
}

/// A directory that is removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(options: &Options) -> Result<Self> {
        let temporary = options.directory.clone().unwrap_or_else(std::env::temp_dir);
        let scratch = Self(temporary.join(format!("skewer-faults-{}", std::process::id())));
        std::fs::create_dir_all(&scratch.0).context(scratch.0.display())?;
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a database is started with.
struct Setting<'a> {
    scratch: &'a Path,
    hierarchy: Option<&'a Hierarchy>,
    target: Duration,
}

async fn run(options: &Options, cases: &[Case]) -> Result<()> {
    let begun = Instant::now();
    let minutes = options
        .minutes
        .unwrap_or(if options.small { 10 } else { u64::MAX / 60 });
    let pairs = options.pairs.unwrap_or(if options.small { 3 } else { 5 });
    let binary = program(options)?;
    let mut log = Log::open(&options.log)?;
    let scratch = Scratch::new(options)?;
    let hierarchy = Hierarchy::new();
    if let Err(reason) = &hierarchy {
        say(&format!(
            "faults that need control groups are skipped: {reason}"
        ));
    }
    let setting = Setting {
        scratch: &scratch.0,
        hierarchy: hierarchy.as_ref().ok(),
        target: Duration::from_millis(options.target),
    };
    let mut programs = vec![(Program::Judged, binary, pairs)];
    if let Some(baseline) = &options.baseline {
        // Its findings are wanted, not its times.
        programs.push((Program::Baseline, baseline.clone(), pairs.min(2)));
    }
    for (program, binary, pairs) in programs {
        for topology in Topology::ALL {
            let mut laboratory = None;
            let open: Vec<&Case> = cases
                .iter()
                .filter(|case| case.topology == topology && !log.is_finished(program, case))
                .collect();
            for (number, case) in (1..).zip(&open) {
                if begun.elapsed().as_secs() >= minutes.saturating_mul(60) {
                    say(&format!("{minutes} minutes are over"));
                    return Ok(());
                }
                let place = format!("{} {number}/{}", topology.name(), open.len());
                let end =
                    run_case(&mut laboratory, &setting, &binary, program, case, pairs).await?;
                let said = end
                    .0
                    .skipped
                    .clone()
                    .map_or_else(|| describe(&end.1), |reason| format!("skipped: {reason}"));
                say(&format!("{place} {}: {said}", case.id));
                log.write(end.0, end.1)?;
            }
        }
    }
    Ok(())
}

/// Runs a case. A database whose process has ended is started again for the next one.
async fn run_case(
    laboratory: &mut Option<Laboratory>,
    setting: &Setting<'_>,
    binary: &Path,
    program: Program,
    case: &Case,
    pairs: usize,
) -> Result<(CaseEnd, Vec<skewer_faults::records::Run>)> {
    let running = match laboratory {
        Some(running) => running,
        None => {
            let started = Laboratory::start(
                binary,
                program,
                case.topology,
                setting.scratch,
                setting.hierarchy,
                setting.target,
            );
            let started = started.await?;
            say(&format!("{}: {:?}", case.topology.name(), started.size()));
            laboratory.insert(started)
        }
    };
    let outcome = running.run(case, pairs).await;
    let ended = running.ended();
    if ended.is_some() {
        *laboratory = None;
    }
    let (runs, places, skipped) = match outcome {
        Outcome::Done { runs, places } => (runs, places, None),
        Outcome::Skipped(reason) => (Vec::new(), Vec::new(), Some(ended.unwrap_or(reason))),
    };
    Ok((
        CaseEnd {
            case: case.clone(),
            program,
            places,
            skipped,
        },
        runs,
    ))
}

fn describe(runs: &[skewer_faults::records::Run]) -> String {
    let median = |faulty: bool| {
        let of = runs.iter().filter(|run| run.faulty == faulty);
        let elapsed: Vec<f64> = of.map(|run| run.elapsed_ns as f64 / 1e6).collect();
        skewer_faults::scoring::median(&elapsed)
    };
    let last = runs.iter().rfind(|run| run.faulty).or(runs.last());
    let named = last.map(|run| {
        let named = run
            .diagnoses
            .iter()
            .filter(|finding| finding.place.is_some());
        named
            .map(|finding| finding.rule.clone())
            .collect::<Vec<_>>()
            .join(", ")
    });
    format!(
        "{:.0} ms without, {:.0} ms with it; named: {}",
        median(false).unwrap_or_default(),
        median(true).unwrap_or_default(),
        named.unwrap_or_default()
    )
}

fn say(text: &str) {
    let _ = writeln!(stderr(), "{text}");
}
