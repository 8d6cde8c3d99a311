//! `skewer serve`: a database for PostgreSQL clients.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use skewer::ClusterOptions;
use skewer_server::{Identity, Server, ServerOptions};
use tokio::sync::oneshot;

use crate::error::ShellError;
use crate::log::{LogFormat, Signals, logged};
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

    /// Where workers reach the master of the cluster that `skewer cluster init` has made, over UDP
    /// and TCP
    #[arg(long, value_name = "ADDR")]
    cluster_listen: Option<String>,

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

/// Serves until SIGTERM or Ctrl-C.
pub fn run(arguments: &ServeArguments) -> Result<(), ShellError> {
    logged(arguments.log, || serve(arguments))
}

fn serve(arguments: &ServeArguments) -> Result<(), ShellError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("skewer-server")
        .enable_all()
        .build()
        .map_err(ShellError::Start)?;
    let cluster = match &arguments.cluster_listen {
        Some(address) => Some(cluster(&arguments.data, address)?),
        None => None,
    };
    let database = arguments.resources.open(Some(&arguments.data), cluster)?;
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
    let closed = skewer::blocking::Database::from(database).close();
    tracing::info!("stopped");
    Ok(closed?)
}

fn cluster(data: &Path, address: &str) -> Result<ClusterOptions, ShellError> {
    let options = ClusterOptions::new(data).listen(address);
    if !options.directory.exists() {
        let data = data.display();
        return Err(ShellError::Usage(format!(
            "{data} has no cluster: make one with `skewer cluster init {data}`"
        )));
    }
    Ok(options)
}
