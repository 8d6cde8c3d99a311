//! The log of processes that serve: on standard error, as text or JSON.

use std::io;

use clap::ValueEnum;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::ShellError;

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line of text for each event
    Text,
    /// One JSON object for each event
    Json,
}

/// Writes the log while `serve` runs, and how it ended.
pub fn logged(
    format: LogFormat,
    serve: impl FnOnce() -> Result<(), ShellError>,
) -> Result<(), ShellError> {
    begin(format);
    let served = serve();
    match format {
        LogFormat::Text => served,
        // Whoever reads it reads nothing else.
        LogFormat::Json => served.map_err(|error| {
            tracing::error!(%error, "the server cannot go on");
            ShellError::Logged(Box::new(error))
        }),
    }
}

fn begin(format: LogFormat) {
    let log = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_target(false)
        .with_max_level(tracing::Level::INFO);
    match format {
        LogFormat::Text => log.with_ansi(false).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}

/// SIGTERM and SIGINT.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From now on they do not end the process.
    pub fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
