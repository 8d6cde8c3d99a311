//! A session at a server: `skewer --connect`.
//!
//! * [`address`]: where it is, and as whom to connect
//! * [`trust`]: which server is believed to be that one
//! * [`server_errors`]: its errors

mod address;
mod server_errors;
mod trust;

use std::error::Error;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use futures::{StreamExt, stream};
use skewer::Progress;
use skewer_server::client;
use tokio::runtime::Runtime;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Row, RowStream, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

pub use address::Address;
use trust::Trust;

use crate::error::ShellError;
use crate::statement_kind::StatementKind;

/// Rows that are shown at once.
const BATCH: usize = 1024;
/// When a statement that was to be cancelled has not ended, the server is asked once more.
const AGAIN: Duration = Duration::from_millis(250);

/// A session at a server. Its traffic has a thread of its own, so that it goes on while the
/// editor waits for keys.
#[derive(Clone)]
pub struct Remote {
    client: Arc<Client>,
    tls: MakeRustlsConnect,
    traffic: Arc<Traffic>,
    rows: Arc<AtomicU64>,
    /// What the server has said of the statement under way beside its rows.
    notices: Notices,
    /// A request to cancel that is under way: what is sent before it has arrived could be hit.
    cancelling: Arc<Mutex<Option<JoinHandle<()>>>>,
}

/// What comes of a statement at a server.
pub struct RemoteAnswer {
    schema: SchemaRef,
    kinds: Vec<Type>,
    /// `None` after the last.
    rows: Option<Rows>,
    remote: Remote,
    sql: String,
}

/// What a server says beside rows.
type Notices = Arc<parking_lot::Mutex<Vec<String>>>;

/// The thread of connections.
struct Traffic(Option<Runtime>);

impl Traffic {
    fn new() -> Result<Traffic, ShellError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("skewer-remote")
            .enable_all()
            .build();
        Ok(Traffic(Some(runtime.map_err(ShellError::Start)?)))
    }

    fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        match &self.0 {
            Some(runtime) => runtime.spawn(task),
            None => unreachable!("only dropping takes it"),
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        // A runtime that waits for its tasks must not be dropped in another one's.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Remote {
    /// Two sessions: one for the user's statements, one for the shell's questions. Asks for the
    /// password if the server wants one and a person is there. `certificate` is a file with the
    /// server's certificate, or with one that has signed it.
    ///
    /// # Errors
    /// If the server cannot be reached, is not the one that was meant, or refuses.
    pub async fn connect(
        address: &Address,
        certificate: Option<&Path>,
    ) -> Result<(Remote, Remote), ShellError> {
        let trust = Trust::new(certificate)?;
        let traffic = Arc::new(Traffic::new()?);
        let mut config = address.config.clone();
        if trust.is_named() || !address.is_loopback {
            trust.require(&mut config);
            if let Some(password) = &address.password {
                config.password(password);
            }
        }
        let failed = |error: tokio_postgres::Error| ShellError::Connect {
            address: address.shown(),
            reason: server_errors::reason(&error),
        };
        let first = match Remote::open(&config, &trust, &traffic).await {
            Err(error)
                if config.get_password().is_none() && server_errors::wants_password(&error) =>
            {
                let password = match &address.password {
                    Some(password) => password.clone(),
                    None if io::stdin().is_terminal() => ask_for_password(&config)?,
                    None => return Err(failed(error)),
                };
                // It is not for whoever listens at a port of this machine, either.
                if config.get_ssl_mode() != SslMode::Disable {
                    trust.require(&mut config);
                }
                config.password(password);
                Remote::open(&config, &trust, &traffic).await
            }
            outcome => outcome,
        };
        let first = first.map_err(failed)?;
        let second = Remote::open(&config, &trust, &traffic).await;
        Ok((first, second.map_err(failed)?))
    }

    async fn open(
        config: &Config,
        trust: &Trust,
        traffic: &Arc<Traffic>,
    ) -> Result<Remote, tokio_postgres::Error> {
        let tls = MakeRustlsConnect::new(trust.client_config());
        let (config, connector) = (config.clone(), tls.clone());
        let (sender, opened) = tokio::sync::oneshot::channel();
        let notices = Notices::default();
        let said = Arc::clone(&notices);
        traffic.spawn(async move {
            match config.connect(connector).await {
                Ok((client, mut connection)) => {
                    let _ = sender.send(Ok(client));
                    // Its errors are those of the statements under way.
                    let mut messages = stream::poll_fn(|context| connection.poll_message(context));
                    while let Some(Ok(message)) = messages.next().await {
                        if let AsyncMessage::Notice(notice) = message {
                            said.lock().push(notice.message().to_owned());
                        }
                    }
                }
                Err(error) => {
                    let _ = sender.send(Err(error));
                }
            }
        });
        let client = match opened.await {
            Ok(opened) => opened?,
            Err(_) => unreachable!("the task that connects sends before it ends"),
        };
        Ok(Remote {
            client: Arc::new(client),
            tls,
            traffic: Arc::clone(traffic),
            rows: Arc::default(),
            notices,
            cancelling: Arc::default(),
        })
    }

    /// Runs one statement. Dropping this future cancels it.
    pub async fn sql(&self, sql: &str) -> Result<RemoteAnswer, ShellError> {
        self.cancelled().await;
        self.rows.store(0, Ordering::Relaxed);
        self.notices.lock().clear();
        let (client, text) = (Arc::clone(&self.client), sql.to_owned());
        let begun = self
            .traffic
            .spawn(async move { begin(&client, &text).await });
        let mut beginning = Beginning {
            remote: self,
            begun: Some(begun),
        };
        let outcome = match &mut beginning.begun {
            Some(begun) => begun.await,
            None => unreachable!("only dropping takes it"),
        };
        beginning.begun = None;
        let begun = outcome.map_err(|error| ShellError::Remote(error.to_string()))?;
        let (statement, rows) = begun.map_err(|error| match error {
            BeginError::Parameters => ShellError::Remote(
                "the statement has parameters: PREPARE it, and give EXECUTE their values"
                    .to_owned(),
            ),
            BeginError::Server(error) => ShellError::Remote(server_errors::statement(&error, sql)),
        })?;
        let columns = statement.columns().iter();
        let fields = columns.clone().map(|column| {
            let data_type = client::data_type(column.type_(), column.type_modifier());
            Field::new(column.name(), data_type, true)
        });
        Ok(RemoteAnswer {
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            kinds: columns.map(|column| column.type_().clone()).collect(),
            rows: Some(rows),
            remote: self.clone(),
            sql: sql.to_owned(),
        })
    }

    /// Rows of the statement that began last.
    pub fn progress(&self) -> Progress {
        Progress {
            rows: self.rows.load(Ordering::Relaxed),
            ..Progress::default()
        }
    }

    /// Asks the server to cancel a statement, until it has ended: a request that comes between
    /// two of a statement's messages does nothing.
    fn cancel(&self, ended: impl Future<Output = ()> + Send + 'static) {
        let token = self.client.cancel_token();
        let tls = self.tls.clone();
        let asking = self.traffic.spawn(async move {
            let mut ended = std::pin::pin!(ended);
            loop {
                // If the server cannot be reached, the statement's own connection says so.
                let _ = token.cancel_query(tls.clone()).await;
                if tokio::time::timeout(AGAIN, &mut ended).await.is_ok() {
                    return;
                }
            }
        });
        // Statements of one session come one after the other, so nobody else has it.
        if let Ok(mut cancelling) = self.cancelling.try_lock() {
            *cancelling = Some(asking);
        }
    }

    /// Waits until what was cancelled has ended: it would be the next statement that is hit.
    async fn cancelled(&self) {
        let mut cancelling = self.cancelling.lock().await;
        if let Some(asking) = cancelling.as_mut() {
            // Without a connection it has ended, too.
            let _ = asking.await;
        }
        *cancelling = None;
    }
}

/// Sends a statement; its rows come when they are asked for.
async fn begin(client: &Client, sql: &str) -> Result<(Statement, Rows), BeginError> {
    let statement = client.prepare(sql).await?;
    if !statement.params().is_empty() {
        return Err(BeginError::Parameters);
    }
    let rows = client.query_raw(&statement, Vec::<i32>::new()).await?;
    Ok((statement, Box::pin(rows)))
}

type Rows = Pin<Box<RowStream>>;

/// Why a statement does not begin.
enum BeginError {
    /// It takes values, and has none.
    Parameters,
    /// As the server says.
    Server(tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for BeginError {
    fn from(error: tokio_postgres::Error) -> BeginError {
        BeginError::Server(error)
    }
}

/// A statement that has been sent; cancelled when this is dropped before it has begun to answer.
struct Beginning<'a> {
    remote: &'a Remote,
    begun: Option<JoinHandle<Result<(Statement, Rows), BeginError>>>,
}

impl Drop for Beginning<'_> {
    fn drop(&mut self) {
        if let Some(begun) = self.begun.take() {
            self.remote.cancel(async move {
                if let Ok(Ok((_, rows))) = begun.await {
                    passed_over(rows).await;
                }
            });
        }
    }
}

/// Reads what nobody wants any more.
async fn passed_over(mut rows: Rows) {
    while let Some(Ok(_)) = rows.next().await {}
}

impl RemoteAnswer {
    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    /// What the server has said of the statement beside its rows.
    pub fn notices(&self) -> Vec<String> {
        self.remote.notices.lock().clone()
    }

    /// The next rows. Of a statement that only changes something: one row with the number.
    pub async fn next(&mut self) -> Option<Result<RecordBatch, ShellError>> {
        let stream = self.rows.as_mut()?;
        let mut rows = Vec::new();
        let mut changed = None;
        while rows.len() < BATCH {
            match stream.next().await {
                Some(Ok(row)) => rows.push(row),
                Some(Err(error)) => {
                    self.rows = None;
                    let told = server_errors::statement(&error, &self.sql);
                    return Some(Err(ShellError::Remote(told)));
                }
                None => {
                    changed = stream.rows_affected();
                    self.rows = None;
                    break;
                }
            }
        }
        if self.rows.is_none() && rows.is_empty() {
            let changed = changed.filter(|_| self.kinds.is_empty())?;
            // SET and its kin count nothing.
            if changed == 0 && StatementKind::of_sql(&self.sql) == StatementKind::Define {
                return None;
            }
            let column: ArrayRef = Arc::new(UInt64Array::from(vec![changed]));
            let batch = RecordBatch::try_from_iter([("count", column)]);
            return Some(batch.map_err(|error| ShellError::Remote(error.to_string())));
        }
        self.remote
            .rows
            .fetch_add(rows.len() as u64, Ordering::Relaxed);
        Some(self.batch(&rows))
    }

    fn batch(&self, rows: &[Row]) -> Result<RecordBatch, ShellError> {
        let unreadable = |error: &dyn Error| ShellError::Remote(error.to_string());
        let mut columns = Vec::with_capacity(self.kinds.len());
        for (n, kind) in self.kinds.iter().enumerate() {
            let values = rows.iter().map(|row| row.get::<_, Option<Raw<'_>>>(n));
            let values = values.map(|value| value.map(|Raw(bytes)| bytes));
            let wanted = self.schema.field(n).data_type();
            columns.push(client::array(values, kind, wanted).map_err(|e| unreadable(&e))?);
        }
        RecordBatch::try_new(self.schema(), columns).map_err(|e| unreadable(&e))
    }
}

impl Drop for RemoteAnswer {
    fn drop(&mut self) {
        if let Some(rows) = self.rows.take() {
            self.remote.cancel(passed_over(rows));
        }
    }
}

/// A value's bytes, whatever its type.
struct Raw<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Raw(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Typed without being shown.
fn ask_for_password(config: &Config) -> Result<Vec<u8>, ShellError> {
    let prompt = format!("Password of {}: ", config.get_user().unwrap_or_default());
    let password = rpassword::prompt_password(prompt).map_err(ShellError::Start)?;
    Ok(password.into_bytes())
}
