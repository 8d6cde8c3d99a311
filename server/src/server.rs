//! Listening, accepting, draining.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use skewer::Database;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cancel::Connections;
use crate::connection;
use crate::error::ServerError;
use crate::login_limiter::LoginLimiter;
use crate::tls::{Identity, Tls};
use crate::users::Users;

/// How long running statements may go on after the server was told to end.
const DRAIN: Duration = Duration::from_secs(10);
/// So many clients may be connected unless said otherwise.
pub const MAX_CONNECTIONS: usize = 500;
/// So many more connections may be about to say who they are, or to cancel something.
const BEGINNING: usize = 100;
/// How long cancelled statements may take to end.
const CANCELLING: Duration = Duration::from_secs(2);
/// Before a peer that does not answer is given up: the network may be gone without a word.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// When too many files are open, accepting fails at once and would fail again at once.
const BACK_OFF: Duration = Duration::from_millis(100);

/// How a database is served.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The database's directory: users, key and certificate are there too.
    pub data: PathBuf,
    /// Where to listen, as `127.0.0.1:5432`; port 0 is any.
    pub listen: String,
    /// The certificate; without it one that signs itself is made in the directory.
    pub identity: Option<Identity>,
    /// How long running statements may go on after the server was told to end.
    pub drain: Duration,
    /// So many clients may be connected at once.
    pub max_connections: usize,
    /// Counts failed logins; other ports may share it.
    pub limiter: Arc<LoginLimiter>,
}

impl ServerOptions {
    /// The default: loopback.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data: data.into(),
            listen: "127.0.0.1:5432".to_owned(),
            identity: None,
            drain: DRAIN,
            max_connections: MAX_CONNECTIONS,
            limiter: Arc::default(),
        }
    }
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
    drain: Duration,
}

/// What all connections have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) database: Database,
    pub(crate) data: PathBuf,
    pub(crate) tls: Tls,
    /// Whether only this machine can connect: then passwords are not needed before there are
    /// users, and TLS is not required.
    pub(crate) loopback: bool,
    pub(crate) connections: Arc<Connections>,
    pub(crate) max_connections: usize,
    pub(crate) limiter: Arc<LoginLimiter>,
    /// Becomes `true` when the server ends.
    pub(crate) draining: watch::Receiver<bool>,
    drain: watch::Sender<bool>,
}

impl Server {
    /// Listens; connections wait until [`Server::run`] accepts them.
    ///
    /// # Errors
    /// [`ServerError::PortInUse`]; [`ServerError::NoUsers`] if other machines could connect and
    /// nobody would have to say who they are.
    pub async fn bind(database: Database, options: ServerOptions) -> Result<Self, ServerError> {
        let listener = listen(&options.listen).await?;
        let address = listener
            .local_addr()
            .map_err(|source| ServerError::Listen {
                address: options.listen.clone(),
                source,
            })?;
        let loopback = address.ip().is_loopback();
        if !loopback && Users::read(&options.data)?.is_empty() {
            return Err(ServerError::NoUsers {
                address,
                data: options.data,
            });
        }
        let identity = match options.identity {
            Some(identity) => identity,
            None => Identity::own(&options.data)?,
        };
        let (drain, draining) = watch::channel(false);
        Ok(Self {
            listener,
            shared: Arc::new(Shared {
                database,
                data: options.data,
                tls: identity.load()?,
                loopback,
                connections: Arc::default(),
                max_connections: options.max_connections,
                limiter: options.limiter,
                draining,
                drain,
            }),
            drain: options.drain,
        })
    }

    /// Where it listens: the port is there even if any was asked for.
    ///
    /// # Errors
    /// If the operating system does not tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` completes. Then new connections are turned away, idle ones are
    /// closed, and running statements may finish for a while before they are cancelled.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let mut clients = JoinSet::new();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                accepted = self.listener.accept() => match accepted {
                    Ok((_, peer)) if clients.len() >= self.shared.max_connections + BEGINNING => {
                        tracing::warn!(%peer, "a connection is dropped: there are too many");
                    }
                    Ok((stream, peer)) => {
                        let shared = Arc::clone(&self.shared);
                        clients.spawn(serve(stream, peer, shared));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(BACK_OFF).await;
                    }
                },
                Some(ended) = clients.join_next() => log_panic(ended),
            }
        }
        let running = self.shared.connections.count();
        tracing::info!(
            connections = running,
            "the server ends: running statements may finish"
        );
        // Connections hold receivers, so somebody listens or nobody has to.
        let _ = self.shared.drain.send(true);
        tokio::select! {
            () = end(&mut clients, &self.shared, self.drain) => {}
            () = turn_away(&self.listener, &self.shared) => {}
        }
    }
}

/// Lets statements finish for so long, then cancels them.
async fn end(clients: &mut JoinSet<()>, shared: &Shared, drain: Duration) {
    if finish(clients, drain).await {
        return;
    }
    tracing::warn!("statements that have not finished are cancelled");
    shared.connections.cancel_all();
    if !finish(clients, CANCELLING).await {
        clients.shutdown().await;
    }
}

/// While statements finish, clients that come are told why they cannot stay, and may still cancel
/// what runs. Never completes.
async fn turn_away(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut late = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    late.spawn(serve(stream, peer, Arc::clone(shared)));
                }
                Err(_) => tokio::time::sleep(BACK_OFF).await,
            },
            Some(ended) = late.join_next() => log_panic(ended),
        }
    }
}

/// Waits for all to end; `false` if they take longer than `patience`.
async fn finish(clients: &mut JoinSet<()>, patience: Duration) -> bool {
    let all = async {
        while let Some(ended) = clients.join_next().await {
            log_panic(ended);
        }
    };
    tokio::time::timeout(patience, all).await.is_ok()
}

fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection ended by a bug");
    }
}

async fn serve(stream: TcpStream, peer: SocketAddr, shared: Arc<Shared>) {
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE);
    if let Err(error) = socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive) {
        tracing::debug!(%peer, %error, "no keep-alive");
    }
    match connection::serve(stream, peer, shared).await {
        Ok(()) => {}
        Err(error) => tracing::info!(%peer, %error, "a connection broke"),
    }
}

async fn listen(address: &str) -> Result<TcpListener, ServerError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => ServerError::PortInUse {
                address: address.to_owned(),
            },
            _ => ServerError::Listen {
                address: address.to_owned(),
                source,
            },
        })
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures::poll;
    use pgwire::messages::ProtocolVersion;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpStream;
    use tokio::task::coop::unconstrained;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_request_to_cancel_counts_although_its_client_is_gone_by_then() {
        /// The code of the message.
        const CANCEL: i32 = 80_877_102;
        let data = tempfile::tempdir().unwrap();
        let mut options = ServerOptions::new(data.path());
        options.listen = "127.0.0.1:0".to_owned();
        let database = Database::in_memory().unwrap();
        let server = Server::bind(database, options).await.unwrap();
        let connections = &server.shared.connections;
        let registered = connections.register(ProtocolVersion::PROTOCOL3_0);
        let secret = registered.secret.as_i32().unwrap();
        let request = [16, CANCEL, registered.process, secret].map(i32::to_be_bytes);
        let request = request.concat();
        for attempt in 0..1_000 {
            let statement = registered.canceller.guard(pending::<()>());
            // As often as it is asked here, tokio would have others run first, and say pending.
            let mut statement = std::pin::pin!(unconstrained(statement));
            assert!(poll!(&mut statement).is_pending());
            let connecting = TcpStream::connect(server.local_addr().unwrap());
            let mut client = connecting.await.unwrap();
            client.write_all(&request).await.unwrap();
            drop(client);
            let (stream, peer) = server.listener.accept().await.unwrap();
            let served = tokio::spawn(serve(stream, peer, Arc::clone(&server.shared)));
            served.await.unwrap();
            assert!(poll!(&mut statement).is_ready(), "attempt {attempt}");
        }
        // A runtime within a runtime must not be dropped here.
        tokio::task::spawn_blocking(|| drop(server)).await.unwrap();
    }
}
