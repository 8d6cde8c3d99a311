//! One client from its first message to its last.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use pgwire::error::{ErrorInfo, PgWireError};
use pgwire::messages::response::{NoticeResponse, ReadyForQuery};
use pgwire::messages::startup::ParameterStatus;
use pgwire::messages::{PgWireBackendMessage as Backend, PgWireFrontendMessage as Frontend};
use pgwire::tokio::server::{MaybeTls, PgWireMessageServerCodec, negotiate_tls};
use skewer::Session;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::codec::Framed;

use skewer_sql::traits::CommandTag;

use crate::cancel::{Canceller, Registered};
use crate::catalog;
use crate::error::SqlError;
use crate::extended::{Portal, Prepared};
use crate::server::Shared;
use crate::settings::Settings;
use crate::startup::{self, Client};
use crate::transaction::Transaction;

pub(crate) type Socket = Framed<MaybeTls, PgWireMessageServerCodec<()>>;

/// How long a client may take to say who it is.
const STARTUP: Duration = Duration::from_secs(60);
/// The same when the server is ending: it is only told that.
const LATE: Duration = Duration::from_secs(1);
/// Bytes that are collected before they are sent.
const BUFFER: usize = 64 << 10;

/// A client that has been let in.
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    pub(crate) session: Session,
    pub(crate) settings: Settings,
    pub(crate) transaction: Transaction,
    pub(crate) statements: HashMap<String, Arc<Prepared>>,
    pub(crate) portals: HashMap<String, Portal>,
    /// Tags of what PREPARE has prepared.
    pub(crate) tags: HashMap<String, CommandTag>,
    registered: Registered,
    shared: Arc<Shared>,
}

/// What ends a statement before its time.
pub(crate) struct Limits {
    canceller: Arc<Canceller>,
    timeout: Option<Duration>,
}

impl Limits {
    /// What `statement` gives, unless it is cancelled or takes too long: then it is dropped.
    pub(crate) async fn guard<T>(
        self,
        statement: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let guarded = self.canceller.guard(statement);
        let outcome = match self.timeout {
            Some(timeout) => tokio::time::timeout(timeout, guarded).await.map_err(|_| {
                let text = format!("the statement took longer than statement_timeout, {timeout:?}");
                SqlError::new("57014", text)
            })?,
            None => guarded.await,
        };
        outcome.unwrap_or_else(|| Err(SqlError::cancelled().into()))
    }
}

/// Why a connection goes no further.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0}")]
    Protocol(PgWireError),
    #[error("the client was gone")]
    Gone,
}

impl From<PgWireError> for Broken {
    fn from(error: PgWireError) -> Self {
        match error {
            PgWireError::IoError(error) => Self::Io(error),
            other => Self::Protocol(other),
        }
    }
}

/// Why a statement did not come to its end.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The client is told, and goes on.
    Sql(Box<SqlError>),
    /// The connection ends.
    Broken(Broken),
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Self::Sql(Box::new(error))
    }
}

impl<T: Into<Broken>> From<T> for Failure {
    fn from(error: T) -> Self {
        Self::Broken(error.into())
    }
}

/// Serves a client until it leaves. A client that goes away in the middle of a statement cancels
/// it.
pub(crate) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    shared: Arc<Shared>,
) -> Result<(), Broken> {
    // A second handle on the socket, since the first is busy with the statement.
    let watched = stream.as_fd().try_clone_to_owned()?;
    // Who asks to cancel something is gone at once: until a client is let in, what it has sent is
    // read first.
    let Some(client) = begin(stream, &shared).await? else {
        return Ok(());
    };
    tracing::info!(%peer, user = client.user, process = client.registered.process, "connected");
    let process = client.registered.process;
    tokio::select! {
        outcome = Connection::new(client, shared).run() => {
            tracing::info!(%peer, process, "disconnected");
            outcome
        }
        () = gone(watched) => Ok(()),
    }
}

/// Lets a client in, if it wants to come in, and is in time.
async fn begin(stream: TcpStream, shared: &Shared) -> Result<Option<Client>, Broken> {
    let begin = async {
        let acceptor = Some(shared.tls.acceptor.clone());
        let Some(mut socket) = negotiate_tls::<()>(stream, acceptor).await? else {
            return Ok(None);
        };
        socket.set_backpressure_boundary(BUFFER);
        startup::admit(socket, shared).await
    };
    let mut draining = shared.draining.clone();
    let late = async {
        end_of(&mut draining).await;
        tokio::time::sleep(LATE).await;
    };
    tokio::select! {
        admitted = begin => admitted,
        () = late => Ok(None),
        () = tokio::time::sleep(STARTUP) => Ok(None),
    }
}

/// Completes when the peer has closed its side, or the network has given up.
async fn gone(socket: OwnedFd) {
    let Ok(socket) = TcpStream::from_std(socket.into()) else {
        return std::future::pending().await;
    };
    loop {
        match socket.ready(Interest::READABLE).await {
            Ok(ready) if ready.is_read_closed() => return,
            // Bytes are for the other handle: wait for what comes after them.
            Ok(_) => {
                let would_block = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                let _ = socket.try_io(Interest::READABLE, would_block);
            }
            Err(_) => return,
        }
    }
}

/// Completes when the server ends.
async fn end_of(draining: &mut watch::Receiver<bool>) {
    // Without a sender the server has ended already.
    let _ = draining.wait_for(|draining| *draining).await;
}

impl Connection {
    fn new(client: Client, shared: Arc<Shared>) -> Self {
        let session = client.session;
        let process = client.registered.process;
        session.set_user(&client.user);
        catalog::install(&session, &client.user, process, client.settings.shared());
        Self {
            socket: client.socket,
            session,
            settings: client.settings,
            transaction: Transaction::default(),
            statements: HashMap::new(),
            portals: HashMap::new(),
            tags: HashMap::new(),
            registered: client.registered,
            shared,
        }
    }

    async fn run(mut self) -> Result<(), Broken> {
        let mut draining = self.shared.draining.clone();
        // Between the messages of one extended query the connection is not idle.
        let mut idle = true;
        let mut skipping = false;
        loop {
            let message = tokio::select! {
                biased;
                () = end_of(&mut draining), if idle => {
                    let error = SqlError::fatal("57P01", "the server is ending");
                    self.report(error).await?;
                    return Ok(());
                }
                message = self.socket.next() => message,
            };
            let message = match message {
                None => return Ok(()),
                Some(Ok(Frontend::Terminate(_))) => return Ok(()),
                Some(Ok(message)) => message,
                Some(Err(PgWireError::IoError(error))) => return Err(error.into()),
                Some(Err(error)) => {
                    let error = SqlError::fatal("08P01", error.to_string());
                    self.report(error).await?;
                    return Ok(());
                }
            };
            if skipping && !matches!(message, Frontend::Sync(_)) {
                continue;
            }
            let is_extended = message.is_extended_query();
            idle = !is_extended || matches!(message, Frontend::Sync(_));
            skipping = false;
            match self.answer(message).await {
                Ok(()) => {}
                Err(Failure::Broken(broken)) => return Err(broken),
                Err(Failure::Sql(error)) => {
                    let fatal = error.fatal;
                    self.transaction.fail();
                    self.report(*error).await?;
                    if fatal {
                        return Ok(());
                    }
                    // The rest of an extended query is discarded up to its Sync.
                    skipping = is_extended;
                    if !is_extended {
                        self.ready().await?;
                    }
                }
            }
        }
    }

    async fn answer(&mut self, message: Frontend) -> Result<(), Failure> {
        match message {
            Frontend::Query(query) => self.simple_query(&query.query).await,
            Frontend::Parse(parse) => self.parse(parse).await,
            Frontend::Bind(bind) => self.bind(bind).await,
            Frontend::Describe(describe) => self.describe(describe).await,
            Frontend::Execute(execute) => self.execute(execute).await,
            Frontend::Close(close) => self.close(close).await,
            Frontend::Flush(_) => Ok(self.socket.flush().await?),
            Frontend::Sync(_) => self.sync().await,
            // What is left of a COPY that has failed.
            Frontend::CopyData(_) | Frontend::CopyDone(_) | Frontend::CopyFail(_) => Ok(()),
            _ => Err(SqlError::fatal("08P01", "this message is not expected here").into()),
        }
    }

    /// What ends a statement before its time.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            canceller: Arc::clone(&self.registered.canceller),
            timeout: self.settings.timeout,
        }
    }

    /// Takes what follows, and says in which state the connection is.
    pub(crate) async fn ready(&mut self) -> Result<(), Broken> {
        let ready = ReadyForQuery::new(self.transaction.status());
        Ok(self.socket.send(Backend::ReadyForQuery(ready)).await?)
    }

    async fn report(&mut self, error: SqlError) -> Result<(), Broken> {
        if matches!(error.code, "XX000" | "XX001" | "53100" | "53200") {
            tracing::error!(
                code = error.code,
                error = error.message,
                "a statement failed"
            );
        } else {
            tracing::debug!(
                code = error.code,
                error = error.message,
                "a statement failed"
            );
        }
        let response = Backend::ErrorResponse(error.info().into());
        Ok(self.socket.send(response).await?)
    }

    /// Says something that is no error.
    pub(crate) async fn notice(
        &mut self,
        severity: &str,
        code: &str,
        text: &str,
    ) -> Result<(), Broken> {
        let mut info = ErrorInfo::new(severity.to_owned(), code.to_owned(), text.to_owned());
        info.severity_nonlocalized = Some(severity.to_owned());
        let notice = NoticeResponse::from(info);
        Ok(self.socket.feed(Backend::NoticeResponse(notice)).await?)
    }

    /// Tells of a setting that has changed.
    pub(crate) async fn parameter(&mut self, name: &str, value: String) -> Result<(), Broken> {
        let status = ParameterStatus::new(name.to_owned(), value);
        Ok(self.socket.feed(Backend::ParameterStatus(status)).await?)
    }
}
