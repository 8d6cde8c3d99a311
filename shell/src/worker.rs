//! `skewer worker`: a worker of a cluster.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use skewer::cluster::{JoinToken, Worker, WorkerOptions};

use crate::error::ShellError;
use crate::log::{LogFormat, Signals, logged};
use crate::resources::Resources;

/// What `skewer worker` takes.
#[derive(Debug, Args)]
pub struct WorkerArguments {
    /// Directory of the worker, created if absent
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    /// Token of `skewer cluster token`; not needed once the worker has joined
    #[arg(long, value_name = "TOKEN")]
    join: Option<String>,

    /// What the worker is called [default: worker-N]
    #[arg(long, value_name = "NAME", requires = "join")]
    name: Option<String>,

    /// Where the other nodes reach it; port 0 is any
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:0")]
    listen: String,

    /// Where the master is, as host:port [default: where it was when the worker joined]
    #[arg(long, value_name = "ADDR")]
    master: Option<String>,

    /// Seconds to wait for the master at the start: to join, and as long again to take part
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    wait: u64,

    /// How to write the log, on standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log: LogFormat,

    /// Seconds that queries may go on after SIGTERM before they are cancelled
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    drain: u64,

    #[command(flatten)]
    resources: Resources,
}

/// Takes part until SIGTERM or Ctrl-C.
pub fn run(arguments: &WorkerArguments) -> Result<(), ShellError> {
    logged(arguments.log, || work(arguments))
}

fn work(arguments: &WorkerArguments) -> Result<(), ShellError> {
    let mut options = WorkerOptions::new(&arguments.data);
    if let Some(token) = &arguments.join {
        options.join = Some(token.parse::<JoinToken>()?);
    }
    options.name.clone_from(&arguments.name);
    options.listen.clone_from(&arguments.listen);
    options.master.clone_from(&arguments.master);
    options.wait = Duration::from_secs(arguments.wait);
    options.drain = Duration::from_secs(arguments.drain);
    arguments.resources.limit(&mut options);
    let worker = Worker::start(options)?;
    tracing::info!(
        worker = worker.number(),
        address = %worker.address(),
        master = worker.master(),
        data = %arguments.data.display(),
        "taking part"
    );
    worker.run(async {
        // Without signals the process ends as it does without us.
        if let Ok(mut signals) = Signals::new() {
            signals.next().await;
        }
    })?;
    tracing::info!("stopped");
    Ok(())
}
