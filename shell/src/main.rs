//! The `skewer` binary: an interactive shell, a runner of scripts, and the demo.
//!
//! * [`args`]: the command line, [`resources`]: what the database may use
//! * [`shell`], [`runner`], [`script`]: statements from text to shown results
//! * [`backend`], [`remote`]: where statements run
//! * [`repl`], [`complete`], [`highlight`], [`completion_names`]: typing them
//! * [`meta_commands`]: commands that stand for SQL
//! * [`format`], [`progress`], [`terminal`], [`units`]: what is written, and where
//! * [`keywords`], [`statement_kind`]: as much of SQL as the shell itself must understand
//! * [`demo`]: the case studies
//! * [`serve`], [`user`]: a database for PostgreSQL clients, and who may connect; [`trace_options`]: where it
//!   sends traces
//! * [`cluster`], [`worker`]: a database over several processes
//! * [`web`]: the profiler's page for the open database
//! * [`log`]: what processes that serve say
//! * [`allocator`]: who keeps freed memory

mod allocator;
mod args;
mod backend;
mod cluster;
mod complete;
mod completion_names;
mod demo;
mod error;
mod format;
mod highlight;
mod hint;
mod keywords;
mod log;
mod meta_commands;
mod progress;
mod remote;
mod repl;
mod resources;
mod runner;
mod script;
mod serve;
mod shell;
mod statement_kind;
mod terminal;
mod trace_options;
mod units;
mod user;
mod web;
mod worker;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use allocator::PurgeDelay;
use args::{Arguments, Command, Source, SqlArguments};
use error::ShellError;
use runner::Runner;
use shell::{Flow, Shell};
use terminal::Terminal;

fn main() -> ExitCode {
    // A panic ends one connection or statement, which says so.
    skewer::log_panics();
    let mut arguments = Arguments::read();
    match &arguments.command {
        Some(Command::Worker(_)) => {
            PurgeDelay::WORKER.set();
            allocator::small_pages();
        }
        _ => PurgeDelay::INTERACTIVE.set(),
    }
    if let Some(Command::Cluster(cluster)) = &arguments.command
        && let Some(sql) = cluster.as_sql()
    {
        arguments.command = Some(Command::Shell(Box::new(sql)));
    }
    let terminal = Terminal::detect();
    let outcome = match arguments.command {
        // These have no terminal to attend to.
        Some(Command::Serve(serve)) => serve::run(&serve),
        Some(Command::User(user)) => user::run(&user),
        Some(Command::Cluster(cluster)) => cluster::run(&cluster),
        Some(Command::Worker(worker)) => worker::run(&worker),
        _ => start(arguments, terminal),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            repl::report(&error, &terminal.error_palette());
            error.exit_code()
        }
    }
}

/// The terminal has a runtime of its own, on this thread: it answers ticks and signals even
/// when every thread of the database is busy with a row that takes seconds.
fn start(arguments: Arguments, terminal: Terminal) -> Result<(), ShellError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ShellError::Start)?;
    runtime.block_on(async {
        let runner = Runner::new(terminal)?;
        match arguments.command {
            Some(Command::Demo(demo)) => demo::run(&demo, runner, terminal).await,
            Some(
                Command::Serve(_) | Command::User(_) | Command::Cluster(_) | Command::Worker(_),
            ) => Ok(()),
            Some(Command::Shell(sql)) => run_sql(*sql, runner, terminal).await,
            None => run_sql(arguments.sql, runner, terminal).await,
        }
    })
}

async fn run_sql(
    arguments: SqlArguments,
    runner: Runner,
    terminal: Terminal,
) -> Result<(), ShellError> {
    let resources = arguments.resources.clone();
    let mut shell = match &arguments.connect {
        Some(address) => {
            let certificate = arguments.certificate.as_deref();
            Shell::connect(address, certificate, resources, runner, terminal).await?
        }
        None => Shell::open(arguments.path.as_deref(), resources, runner, terminal)?,
    };
    shell.format = arguments.format;
    let outcome = run_sources(&mut shell, &arguments).await;
    // What was recorded is kept whatever happened. If it cannot be, the statements have succeeded
    // all the same.
    if let Err(error) = shell.close().await {
        repl::warn(&error, &terminal.error_palette());
    }
    outcome
}

async fn run_sources(shell: &mut Shell, arguments: &SqlArguments) -> Result<(), ShellError> {
    if arguments.sources.is_empty() {
        if shell.terminal.input {
            let server = arguments
                .connect
                .as_ref()
                .map(|address| address.shown().into());
            let place: Option<PathBuf> = server.or_else(|| arguments.path.clone());
            return repl::run(shell, place.as_deref()).await;
        }
        let stdin = io::BufReader::new(io::stdin());
        return shell
            .run_script(stdin, Some("standard input"))
            .await
            .map(drop);
    }
    for source in &arguments.sources {
        let flow = match source {
            Source::Text(text) => shell.run_script(text.as_bytes(), None).await?,
            Source::File(path) if path == Path::new("-") => {
                let stdin = io::BufReader::new(io::stdin());
                shell.run_script(stdin, Some("standard input")).await?
            }
            Source::File(path) => shell.run_file(path).await?,
        };
        if flow == Flow::Quit {
            break;
        }
    }
    Ok(())
}
