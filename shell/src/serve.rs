//! `skewer serve`: a database for PostgreSQL clients.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use skewer_server::{Identity, Server, ServerOptions};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::error::ShellError;
use crate::resources::Resources;

/// What `skewer serve` takes.
#[derive(Debug, Args)]
pub struct ServeArguments {
    /// Directory of the database, created if absent
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    /// Where to listen; beyond this machine, users and TLS are required
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:5432")]
    listen: String,

    /// Certificate chain as PEM [default: one that signs itself, made at the first start]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The certificate's private key as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// How to write the log, on standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log: LogFormat,

    /// Seconds that running statements may go on after SIGTERM before they are cancelled
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    drain: u64,

    #[command(flatten)]
    resources: Resources,
}

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// One line of text for each event
    Text,
    /// One JSON object for each event
    Json,
}

/// Serves until SIGTERM or Ctrl-C.
pub fn run(arguments: &ServeArguments) -> Result<(), ShellError> {
    log_to_standard_error(arguments.log);
    let served = serve(arguments);
    match arguments.log {
        LogFormat::Text => served,
        // Whoever reads it reads nothing else.
        LogFormat::Json => served.map_err(|error| {
            tracing::error!(%error, "the server cannot go on");
            ShellError::Logged(Box::new(error))
        }),
    }
}

fn serve(arguments: &ServeArguments) -> Result<(), ShellError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("skewer-server")
        .enable_all()
        .build()
        .map_err(ShellError::Start)?;
    let database = arguments.resources.open(Some(&arguments.data))?;
    let mut options = ServerOptions::new(&arguments.data);
    options.listen.clone_from(&arguments.listen);
    options.drain = Duration::from_secs(arguments.drain);
    if let (Some(certificate), Some(key)) = (&arguments.tls_cert, &arguments.tls_key) {
        options.identity = Some(Identity {
            certificate: certificate.clone(),
            key: key.clone(),
        });
    }
    runtime.block_on(async {
        let mut signals = Signals::new().map_err(ShellError::Start)?;
        let server = Server::bind(database.clone(), options).await?;
        let address = server.local_addr().map_err(ShellError::Start)?;
        tracing::info!(%address, data = %arguments.data.display(), "listening");
        let (stop, stopped) = oneshot::channel();
        let serving = server.run(async {
            // Without a sender the process is ending.
            let _ = stopped.await;
        });
        let mut serving = std::pin::pin!(serving);
        tokio::select! {
            () = &mut serving => {}
            () = signals.next() => {
                // The receiver lives in `serving`.
                let _ = stop.send(());
                tokio::select! {
                    () = &mut serving => {}
                    () = signals.next() => tracing::warn!("asked again: nothing is waited for"),
                }
            }
        }
        Ok::<_, ShellError>(())
    })?;
    drop(runtime);
    let closed = database.close();
    tracing::info!("stopped");
    Ok(closed?)
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn log_to_standard_error(format: LogFormat) {
    let log = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_target(false)
        .with_max_level(tracing::Level::INFO);
    match format {
        LogFormat::Text => log.with_ansi(false).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    // A panic ends one connection or statement, and is an event of the log as others are.
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!(%panic, "a bug, or a message that nobody should send");
    }));
}
