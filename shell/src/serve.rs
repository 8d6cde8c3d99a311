//! `skewer serve`: a database for PostgreSQL clients.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use skewer::{ClusterOptions, Database};
use skewer_server::server::MAX_CONNECTIONS;
use skewer_server::{Identity, LoginLimiter, Server, ServerOptions};
use skewer_web::{MetricsToken, TraceCounters, TraceExporter, WebOptions, WebServer};
use tokio::sync::oneshot;

use crate::error::ShellError;
use crate::log::{LogFormat, Signals, logged};
use crate::resources::Resources;
use crate::trace_options::trace_options;

/// What `skewer serve` takes.
#[derive(Debug, Args)]
pub struct ServeArguments {
    /// Directory of the database, created if absent
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    /// Where to listen; beyond this machine, users and TLS are required
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:5432")]
    listen: String,

    /// Where to serve the profiler's page to browsers, as 127.0.0.1:8432 [default: nowhere]; beyond this machine,
    /// users are required and connections are encrypted
    #[arg(long, value_name = "ADDR")]
    http_listen: Option<String>,

    /// A name that browsers may call this machine by, beside localhost; may be repeated
    #[arg(long, value_name = "NAME", requires = "http_listen")]
    http_host: Vec<String>,

    /// A file with a token of at least 16 characters: programs that send it may read /metrics, and nothing else
    #[arg(long, value_name = "FILE", requires = "http_listen")]
    metrics_token_file: Option<PathBuf>,

    /// Where to send each query that ends as spans of OpenTelemetry, over OTLP/HTTP, as http://localhost:4318
    /// [default: the environment's OTEL_EXPORTER_OTLP_ENDPOINT, else nowhere]
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,

    /// How many SQL clients may be connected at once
    #[arg(long, value_name = "N", default_value_t = MAX_CONNECTIONS)]
    max_connections: usize,

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
    options.max_connections = arguments.max_connections;
    if let (Some(certificate), Some(key)) = (&arguments.tls_cert, &arguments.tls_key) {
        options.identity = Some(Identity {
            certificate: certificate.clone(),
            key: key.clone(),
        });
    }
    let traces = trace_options(arguments.otlp_endpoint.as_deref())?;
    let (identity, limiter) = (options.identity.clone(), Arc::clone(&options.limiter));
    runtime.block_on(async {
        let mut signals = Signals::new().map_err(ShellError::Start)?;
        let server = Server::bind(database.clone(), options).await?;
        let exporter = match traces {
            Some(options) => {
                tracing::info!(endpoint = options.endpoint, "traces are exported");
                Some(TraceExporter::new(&database, options)?)
            }
            None => None,
        };
        let counters = exporter.as_ref().map(TraceExporter::counters);
        let web = match &arguments.http_listen {
            Some(listen) => {
                let web = web_server(&database, arguments, listen, identity, limiter, counters);
                Some(web.await?)
            }
            None => None,
        };
        let address = server.local_addr().map_err(ShellError::Start)?;
        tracing::info!(%address, data = %arguments.data.display(), "listening");
        let (stop, stopped) = oneshot::channel();
        let (stop_web, web_stopped) = oneshot::channel();
        let serving_web = async {
            if let Some(web) = web {
                web.run(async {
                    let _ = web_stopped.await;
                })
                .await;
            }
        };
        let serving_web = tokio::spawn(serving_web);
        let (stop_exporter, exporter_stopped) = oneshot::channel::<()>();
        let exporting = tokio::spawn(async {
            if let Some(exporter) = exporter {
                let stopped = async {
                    let _ = exporter_stopped.await;
                };
                exporter.run(stopped).await;
            }
        });
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
                let _ = stop_web.send(());
                tokio::select! {
                    () = &mut serving => {}
                    () = signals.next() => tracing::warn!("asked again: nothing is waited for"),
                }
            }
        }
        // It has ended, or nobody waits for browsers any longer.
        serving_web.abort();
        let _ = serving_web.await;
        // All statements have ended: what is left of their spans goes out, but not for long.
        let _ = stop_exporter.send(());
        let _ = exporting.await;
        Ok::<_, ShellError>(())
    })?;
    drop(runtime);
    let closed = skewer::blocking::Database::from(database).close();
    tracing::info!("stopped");
    Ok(closed?)
}

/// Listens for browsers, and logs the address to open.
async fn web_server(
    database: &Database,
    arguments: &ServeArguments,
    listen: &str,
    identity: Option<Identity>,
    limiter: Arc<LoginLimiter>,
    traces: Option<Arc<TraceCounters>>,
) -> Result<WebServer, ShellError> {
    let metrics_token = match &arguments.metrics_token_file {
        Some(file) => Some(metrics_token(file)?),
        None => None,
    };
    let options = WebOptions {
        listen: listen.to_owned(),
        metrics_token,
        traces,
        data: Some(arguments.data.clone()),
        identity,
        hosts: arguments.http_host.clone(),
        limiter,
        ..WebOptions::default()
    };
    let web = WebServer::bind(database.clone(), options).await?;
    // Users have passwords. Without users, whoever reads this log may look.
    let address = match web.has_users() {
        true => web.address(),
        false => web.tickets().lasting("/"),
    };
    tracing::info!(%address, "the profiler's page is served");
    Ok(web)
}

fn metrics_token(file: &Path) -> Result<MetricsToken, ShellError> {
    let name = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|error| ShellError::Usage(format!("{name} cannot be read: {error}")))?;
    MetricsToken::new(&text).ok_or_else(|| {
        let least = MetricsToken::SHORTEST;
        ShellError::Usage(format!(
            "the token in {name} is too short: it must have at least {least} characters"
        ))
    })
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
