//! Listening, TLS, draining, and how many connections there may be.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::connect_info::ConnectInfo;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use skewer::{Database, ReadOnly};
use skewer_server::{Identity, LoginLimiter, Users};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::error::WebError;
use crate::login::{MetricsToken, Tokens, secret};
use crate::metrics::MetricsReader;
use crate::routes::{Shared, State, router};
use crate::traces::TraceCounters;

/// So many connections at once; who comes then is turned away.
const CONNECTIONS: usize = 256;
/// How long a browser may take to shake hands, or to send the headers of a request.
const PATIENCE: Duration = Duration::from_secs(15);
/// When too many files are open, accepting fails at once and would fail again at once.
const BACK_OFF: Duration = Duration::from_millis(100);
/// How long requests may go on after the server was told to end.
const DRAIN: Duration = Duration::from_secs(2);

/// How the profiler's page is served.
#[derive(Debug, Clone)]
pub struct WebOptions {
    /// Where to listen, as `127.0.0.1:8432`; port 0 is any.
    pub listen: String,
    /// The database's directory: users are there. None of a database in memory, which has none.
    pub data: Option<PathBuf>,
    /// What to encrypt with. Without it, connections are plain, and only this machine may connect.
    pub identity: Option<Identity>,
    /// Names that browsers may call this server by, beside `localhost` and loopback addresses.
    pub hosts: Vec<String>,
    /// Counts failed logins; shared with the SQL port.
    pub limiter: Arc<LoginLimiter>,
    /// How long a view may take, and how much memory the views of one login may hold.
    pub limits: ReadOnly,
    /// What programs may send to read `/metrics`, beside a user's password.
    pub metrics_token: Option<MetricsToken>,
    /// What `/metrics` says of the export of traces, if there is one.
    pub traces: Option<Arc<TraceCounters>>,
}

/// Views over millions of records take seconds; nobody waits longer.
const LIMITS: ReadOnly = ReadOnly {
    timeout: Duration::from_secs(30),
    memory: 256 << 20,
};

impl WebOptions {
    /// The default: loopback, no users.
    pub fn new() -> Self {
        Self {
            listen: "127.0.0.1:8432".to_owned(),
            data: None,
            identity: None,
            hosts: Vec::new(),
            limiter: Arc::default(),
            limits: LIMITS,
            metrics_token: None,
            traces: None,
        }
    }
}

impl Default for WebOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// A server that listens.
pub struct WebServer {
    listener: TcpListener,
    shared: Shared,
    address: SocketAddr,
    acceptor: Option<TlsAcceptor>,
}

impl std::fmt::Debug for WebServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebServer")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl WebServer {
    /// Listens; browsers wait until [`WebServer::run`] accepts them.
    ///
    /// # Errors
    /// [`WebError::Listen`]; [`WebError::NoUsers`] if other machines could connect and nobody would have to say
    /// who they are.
    pub async fn bind(database: Database, options: WebOptions) -> Result<Self, WebError> {
        let failed = |source| WebError::Listen {
            address: options.listen.clone(),
            source,
        };
        let listener = TcpListener::bind(&options.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let has_users = match &options.data {
            Some(data) => !Users::read(data)?.is_empty(),
            None => false,
        };
        let mut identity = options.identity;
        if !address.ip().is_loopback() {
            if !has_users {
                return Err(WebError::NoUsers { address });
            }
            if let (None, Some(data)) = (&identity, &options.data) {
                identity = Some(Identity::own(data)?);
            }
        }
        let acceptor = match &identity {
            Some(identity) => Some(TlsAcceptor::from(identity.tls_config(&[b"http/1.1"])?)),
            None => None,
        };
        Ok(Self {
            listener,
            address,
            shared: Arc::new(State {
                metrics: MetricsReader::new(&database, options.traces.unwrap_or_default()),
                metrics_token: options.metrics_token,
                database,
                data: options.data.filter(|_| has_users),
                tokens: Tokens::default().into(),
                logins: Default::default(),
                limiter: options.limiter,
                limits: options.limits,
                hosts: options.hosts,
                port: address.port(),
                is_secure: acceptor.is_some(),
            }),
            acceptor,
        })
    }

    /// Where it listens: the port is there even if any was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The address of the page.
    pub fn address(&self) -> String {
        let scheme = if self.acceptor.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}/", self.address)
    }

    /// Whether users log in with passwords.
    pub fn has_users(&self) -> bool {
        self.shared.data.is_some()
    }

    /// What makes addresses that need no password.
    pub fn tickets(&self) -> Tickets {
        Tickets {
            shared: Arc::clone(&self.shared),
            address: self.address(),
        }
    }

    /// Serves until `shutdown` completes. Then requests may finish for two seconds.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let router = router(self.shared);
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let (stop, stopped) = watch::channel(());
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                            tracing::warn!(%peer, "a browser is turned away: there are {CONNECTIONS} connections");
                            continue;
                        };
                        let serving = serve(stream, peer, self.acceptor.clone(), router.clone(), stopped.clone(), place);
                        tokio::spawn(serving);
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a browser's connection could not be accepted");
                        tokio::time::sleep(BACK_OFF).await;
                    }
                },
            }
        }
        drop(stopped);
        // Completes when no connection has a receiver.
        let _ = stop.send(());
        let _ = tokio::time::timeout(DRAIN, stop.closed()).await;
    }
}

/// Makes addresses of a page that need no password.
#[derive(Debug, Clone)]
pub struct Tickets {
    shared: Shared,
    address: String,
}

impl Tickets {
    /// The address of `path`, as `/q/12`, with a token that opens it once.
    pub fn once(&self, path: &str) -> String {
        self.with_token(path, true)
    }

    /// The address of the page with a token that is good as long as the server runs.
    pub fn lasting(&self, path: &str) -> String {
        self.with_token(path, false)
    }

    fn with_token(&self, path: &str, once: bool) -> String {
        let token = secret();
        self.shared.tokens.lock().add(token.clone(), once);
        let path = path.trim_start_matches('/');
        // Browsers send nothing behind `#`: it is in no log and no Referer.
        format!("{}{path}#token={token}", self.address)
    }
}

async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    router: Router,
    stopped: watch::Receiver<()>,
    _place: OwnedSemaphorePermit,
) {
    let outcome = match acceptor {
        None => answer(stream, peer, router, stopped).await,
        Some(acceptor) => match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => answer(stream, peer, router, stopped).await,
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the browser did not shake hands in time".to_owned()),
        },
    };
    if let Err(error) = outcome {
        tracing::debug!(%peer, %error, "a browser's connection broke");
    }
}

/// Answers requests of one connection until it ends, or the server does.
async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: SocketAddr,
    router: Router,
    mut stopped: watch::Receiver<()>,
) -> Result<(), String> {
    let service = router.layer(Extension(ConnectInfo(peer)));
    let service = TowerToHyperService::new(service.into_service::<hyper::body::Incoming>());
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .serve_connection(TokioIo::new(stream), service)
    );
    tokio::select! {
        ended = connection.as_mut() => return ended.map_err(|error| error.to_string()),
        _ = stopped.changed() => connection.as_mut().graceful_shutdown(),
    }
    connection.await.map_err(|error| error.to_string())
}
