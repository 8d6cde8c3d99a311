//! A worker's process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::common::{Result as DFResult, exec_err, not_impl_err};
use datafusion::object_store::ObjectStoreExt;
use parking_lot::Mutex;
use skewer_cluster::queries::WorkerQueries;
use skewer_cluster::rows_read::RowsRead;
use skewer_cluster::write::{RowIds, SegmentDestination};
use skewer_cluster::{NodeOptions, NodeTasks, cooperative_tasks};
use skewer_compat::operators::scheduling::Scheduler;
use skewer_net::identity::{
    Clock, Credentials, IdentityError, JoinToken, NodeId, PeerIdentity, Revocations, SystemClock,
    Trust, random_number,
};
use skewer_net::{CallHandler, NetError, NetOptions, Node, PeerAddress, Services, join};
use skewer_profiling::{Retention, SysTables};
use skewer_storage::{
    SegmentName, Storage, StorageError, StorageOptions, TableId, WorkerStore, WorkerStoreDirectory,
    WorkerStoreIdentity,
};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::VERSION;
use crate::environment::{self, Environment};
use crate::error::{Error, external};
use crate::functions::Functions;
use crate::links;
use crate::membership::MemberView;
use crate::options::resolve;
use crate::registration::Registration;
use crate::rpc_messages::{self, Abandoned, Dropped, Leave, ReadSegment, ReserveRows, wall_ns};
use crate::spill_directory::SpillDirectory;
use crate::task_session::task_session;
use crate::tasks_read::TasksRead;
use skewer_compat::operators::memory_pool::RaisedBy;

/// Within a worker's directory: its certificate and key, and the master's address.
const IDENTITY: &str = "identity";
const MASTER: &str = "master";

/// What it recorded, for schema `sys`.
const SYS: &str = "sys";

/// How long a worker that starts waits for its master.
const WAIT: Duration = Duration::from_secs(30);

/// How long queries may go on after the worker was told to end.
const DRAIN: Duration = Duration::from_secs(10);

/// How a worker runs.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Its directory: segments, certificate, what it recorded.
    pub data: PathBuf,
    /// The invitation to a cluster; not needed by a worker that has joined.
    pub join: Option<JoinToken>,
    /// How people call it, from when it joins; `worker-<n>` by default.
    pub name: Option<String>,
    /// Where the other nodes reach it, over UDP, as `0.0.0.0:7434`; port 0 is any.
    pub listen: String,
    /// Where the master is; by default where it was when the worker joined.
    pub master: Option<String>,
    /// How long to wait for the master at the start: to join it, and as long again to take part.
    pub wait: Duration,
    /// How long queries may go on after the worker was told to end.
    pub drain: Duration,
    /// Bytes that the operators of all queries may hold; unlimited without.
    pub memory_limit: Option<usize>,
    /// Threads that run queries; as many as the machine has without.
    pub threads: Option<usize>,
    /// Where operators spill to; the system's directory for temporary files without.
    pub temp_directory: Option<PathBuf>,
    /// Functions that queries call here: the same as the master has.
    pub functions: Functions,
    /// How segments are kept; for tests the disk, which can be one that fails.
    #[doc(hidden)]
    pub storage: StorageOptions,
    /// How nodes talk.
    pub net: NetOptions,
}

impl WorkerOptions {
    /// A worker whose directory is `data`.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data: data.into(),
            join: None,
            name: None,
            listen: "0.0.0.0:0".to_owned(),
            master: None,
            wait: WAIT,
            drain: DRAIN,
            memory_limit: None,
            threads: None,
            temp_directory: None,
            functions: Functions::default(),
            storage: StorageOptions::default(),
            net: NetOptions::default(),
        }
    }
}

/// A worker of a cluster: runs tasks, and keeps segments.
///
/// Dropped, it ends as if it had been killed.
#[derive(Debug)]
pub struct Worker {
    inner: Arc<Inner>,
    registration: Registration,
    drain: Duration,
    runtime: Runtime,
}

/// What the worker's tasks share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) node: Node,
    pub(crate) home: WorkerStore,
    pub(crate) queries: Arc<WorkerQueries>,
    pub(crate) revocations: Arc<Revocations>,
    /// Where the master is, as a person has said it.
    pub(crate) master: String,
    pub(crate) address: SocketAddr,
    /// Tells this process from earlier ones with the same directory.
    pub(crate) incarnation: u64,
    /// The version of the list of members that is known.
    pub(crate) members: watch::Sender<u64>,
    /// Who took part by it.
    pub(crate) view: Mutex<MemberView>,
    /// The names of the program's functions that it has.
    pub(crate) functions: Vec<String>,
    sys: Arc<SysTables>,
    tasks_read: Arc<TasksRead>,
    _tasks: NodeTasks,
    /// Where operators spill to.
    _spill_directory: Option<SpillDirectory>,
}

impl Worker {
    /// Joins the cluster, if it has not yet, and begins to take part. Returns when the master has
    /// let it.
    ///
    /// # Errors
    /// [`Error::Net`] if it cannot join, cannot listen, or the master does not let it take part;
    /// [`Error::Storage`] if another process has its directory open, or it is another worker's;
    /// [`Error::Invalid`] if that is a database, or if queries may call functions that are not among
    /// its own.
    pub fn start(options: WorkerOptions) -> Result<Self, Error> {
        let runtime = environment::runtime(options.threads)?;
        let temp_directory = options.temp_directory.as_deref();
        let Environment {
            runtime_env: environment,
            spill_directory,
            ..
        } = environment::build(options.memory_limit, RaisedBy::Option, temp_directory)?;
        let identity = options.data.join(IDENTITY);
        if Storage::exists(&options.data) {
            let data = options.data.display();
            return Err(Error::Invalid(format!(
                "{data} is a database; a worker needs a directory of its own"
            )));
        }
        let directory = || WorkerStoreDirectory::lock(&options.data, options.storage.clone());
        let directory = match (&options.join, Credentials::exist(&identity)) {
            (Some(token), false) => {
                let directory = directory()?;
                // A token is good for one worker: it is not spent on one that cannot start.
                match token.renews {
                    None => directory.must_be_free()?,
                    Some(worker) => directory.must_be_of(worker.0)?,
                }
                options.net.can_listen(resolve(&options.listen)?)?;
                runtime.block_on(enter(token, &options, &identity))?;
                directory
            }
            (Some(token), true) => {
                may_renew(token, &options, &identity)?;
                let directory = directory()?;
                options.net.can_listen(resolve(&options.listen)?)?;
                runtime.block_on(enter(token, &options, &identity))?;
                directory
            }
            (None, true) => directory()?,
            (None, false) => {
                let data = options.data.display();
                return Err(Error::Invalid(format!(
                    "there is no worker in {data}: let it join with a token of \
                     `skewer cluster token`"
                )));
            }
        };
        let credentials = Credentials::load(&identity).map_err(NetError::from)?;
        let known = std::fs::read_to_string(identity.join(MASTER));
        let master = match (&options.master, known) {
            (Some(master), _) => master.clone(),
            (None, Ok(master)) => master.trim().to_owned(),
            (None, Err(error)) => {
                let path = identity.join(MASTER);
                let file = path.display().to_string();
                return Err(Error::File { file, error });
            }
        };
        let own = credentials.identity().clone();
        let home = WorkerStoreIdentity {
            cluster: own.cluster.to_string(),
            node: own.node.0,
        };
        let home = directory.open(&home)?;
        environment.register_object_store(home.object_store_url().as_ref(), home.object_store());
        let sys = SysTables::open(Some(&options.data.join(SYS)), Retention::default());
        let inner = {
            let _within = runtime.enter();
            let revocations = Arc::new(Revocations::in_memory());
            let trust = Trust::new(credentials.authority(), Arc::clone(&revocations))
                .map_err(NetError::from)?;
            let listen = resolve(&options.listen)?;
            let node = Node::bind(listen, credentials, trust, options.net.clone())?;
            let address = node.local_address()?;
            let incarnation = random_number();
            let queries = WorkerQueries::new(i64::from(own.node.0), Arc::clone(&sys));
            let members = watch::Sender::new(0);
            let row_ids = Arc::new(FarRowIds(node.clone()));
            let place = SegmentDestination::home(home.clone(), incarnation, row_ids);
            let queries_of_tasks = Arc::clone(&queries);
            let sys_of_tasks = Arc::clone(&sys);
            let tasks_read: Arc<TasksRead> = Arc::default();
            let read = Arc::clone(&tasks_read);
            let tasks = NodeTasks::new(NodeOptions {
                node: own.node,
                quic: node.resolver(),
                session: task_session(&environment, &options.functions),
                query_of_task: Some(Arc::new(move |profile| queries_of_tasks.of_task(profile))),
                members: members.subscribe(),
                prepare: cooperative_tasks(&Scheduler::new(environment::threads(options.threads))),
                watch: Some(Arc::new(move |profile, plan| {
                    read.watch(profile.query_id, plan);
                })),
                extend: Arc::new(move |config| {
                    config.set_extension(Arc::clone(&place));
                    config.set_extension(Arc::clone(&sys_of_tasks));
                }),
                version: VERSION,
            });
            let worker = tasks.worker();
            let inner = Arc::new(Inner {
                node,
                home,
                queries,
                revocations,
                master,
                address,
                incarnation,
                members,
                view: Mutex::new(MemberView::new(own.node.0)),
                functions: options.functions.names(),
                sys,
                tasks_read,
                _tasks: tasks,
                _spill_directory: spill_directory,
            });
            let weak = Arc::downgrade(&inner);
            links::report(&inner.sys, move || Some(weak.upgrade()?.node.clone()));
            inner.node.serve(Services {
                worker: Some(worker),
                calls: Some(Arc::new(Calls(Arc::downgrade(&inner)))),
                admissions: None,
            });
            inner
        };
        let started = Registration::start(Arc::clone(&inner), options.wait);
        let registration = runtime.block_on(started)?;
        Ok(Self {
            inner,
            registration,
            drain: options.drain,
            runtime,
        })
    }

    /// Its number in the cluster.
    pub fn number(&self) -> u32 {
        self.inner.home.node()
    }

    /// Where the other nodes reach it.
    pub fn address(&self) -> SocketAddr {
        self.inner.address
    }

    /// Where it expects the master.
    pub fn master(&self) -> &str {
        &self.inner.master
    }

    /// Takes part until `stop` is done; then queries that need it may end, for as long as it was
    /// told.
    ///
    /// # Errors
    /// [`Error::Net`] if it must not take part any more, as when it was revoked.
    pub fn run(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let Self {
            inner,
            mut registration,
            drain,
            runtime,
        } = self;
        let outcome = runtime.block_on(async {
            let outcome = tokio::select! {
                error = registration.ended() => Err(error),
                () = stop => Ok(()),
            };
            if outcome.is_ok() {
                tracing::info!("the worker ends: queries that run on it may finish");
                let body = rpc_messages::encode(&Leave {
                    incarnation: inner.incarnation,
                })?;
                let left = inner.node.call(NodeId::MASTER, rpc_messages::LEAVE, body);
                match tokio::time::timeout(drain, left).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => tracing::warn!(%error, "the master was not told"),
                    Err(_) => tracing::warn!("queries that have not finished are cancelled"),
                }
            }
            // The lifeline first: the master then knows that the worker has ended, before queries
            // that still run meet closed connections.
            drop(registration);
            inner.queries.end_all().await;
            inner.node.shutdown().await;
            outcome
        });
        if let Err(error) = inner.sys.flush() {
            tracing::warn!(%error, "schema sys could not be written");
        }
        runtime.shutdown_timeout(Duration::from_secs(2));
        outcome
    }
}

/// Whether a worker that has joined may use a token: one of its cluster that renews its own
/// certificate. Another cluster's would put that cluster's identity in place of its own.
fn may_renew(token: &JoinToken, options: &WorkerOptions, identity: &Path) -> Result<(), Error> {
    let credentials = Credentials::load(identity).map_err(NetError::from)?;
    let own = credentials.identity();
    if !token.is_of(credentials.authority()) {
        let data = options.data.display();
        return Err(Error::Invalid(format!(
            "the join token is of another cluster than the worker in {data}, which is of cluster {}",
            own.cluster
        )));
    }
    match token.renews {
        Some(worker) if worker == own.node => Ok(()),
        Some(worker) => Err(NetError::from(IdentityError::TokenOfOther {
            expected: worker,
            found: own.node,
        })
        .into()),
        None => Err(Error::Invalid(format!(
            "the worker in {} has joined a cluster already: start it without a token, or renew its \
             certificate with one of `skewer cluster token --worker {}`",
            options.data.display(),
            own.node.0
        ))),
    }
}

/// Joins with a token; keeps the certificate and where the master is.
async fn enter(token: &JoinToken, options: &WorkerOptions, identity: &Path) -> Result<(), Error> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let name = options.name.as_deref();
    let joined = join(token, name, options.wait, &options.net, &clock).await?;
    // The token is used up: what it was good for must not get lost.
    joined.credentials.write(identity).map_err(NetError::from)?;
    let path = identity.join(MASTER);
    std::fs::write(&path, format!("{}\n", token.address)).map_err(|error| Error::File {
        file: path.display().to_string(),
        error,
    })?;
    let worker = joined.credentials.identity();
    tracing::info!(
        worker = worker.node.0,
        name = worker.name,
        "joined the cluster"
    );
    Ok(())
}

/// Asks the master for row ids.
#[derive(Debug)]
struct FarRowIds(Node);

#[async_trait]
impl RowIds for FarRowIds {
    async fn reserve(&self, table: TableId, rows: u64) -> skewer_storage::Result<i64> {
        let question = ReserveRows {
            table: table.0,
            rows,
        };
        let lost = |detail: String| StorageError::WorkerLost {
            worker: NodeId::MASTER.to_string(),
            detail,
        };
        let body = rpc_messages::encode(&question).map_err(|error| lost(error.to_string()))?;
        let answer = self
            .0
            .call(NodeId::MASTER, rpc_messages::ROW_IDS, body)
            .await;
        let answer = answer.map_err(|error| lost(error.to_string()))?;
        rpc_messages::decode(&answer).map_err(|error| lost(error.to_string()))
    }

    fn is_far(&self) -> bool {
        true
    }
}

impl Inner {
    async fn answer(&self, peer: &PeerIdentity, method: &str, body: Vec<u8>) -> DFResult<Vec<u8>> {
        if !peer.node.is_master() {
            return exec_err!("only the master may ask for {method}");
        }
        match method {
            rpc_messages::CLOCK => rpc_messages::encode(&wall_ns()),
            rpc_messages::PROGRESS => {
                let RowsRead { rows, of } = self.tasks_read.read(rpc_messages::decode(&body)?);
                rpc_messages::encode(&(rows, of))
            }
            rpc_messages::READ => self.read(rpc_messages::decode(&body)?).await,
            rpc_messages::DROPPED => {
                let Dropped { table, segments } = rpc_messages::decode(&body)?;
                self.blocking(move |home| home.remove(TableId(table), segments))
                    .await
            }
            rpc_messages::ABANDONED => {
                let Abandoned { table, from, until } = rpc_messages::decode(&body)?;
                self.blocking(move |home| home.abandon(TableId(table), from..until))
                    .await
            }
            _ if method.starts_with("sys/") => {
                let answer = self.queries.call(method, body).await;
                answer.map_err(external)
            }
            other => not_impl_err!("a worker does not know {other}"),
        }
    }

    async fn blocking(
        &self,
        change: impl FnOnce(&WorkerStore) + Send + 'static,
    ) -> DFResult<Vec<u8>> {
        let home = self.home.clone();
        let done = tokio::task::spawn_blocking(move || change(&home)).await;
        done.map_err(external)?;
        Ok(Vec::new())
    }

    async fn read(&self, read: ReadSegment) -> DFResult<Vec<u8>> {
        let name = SegmentName {
            owner: read.owner,
            table: TableId(read.table),
            id: read.id,
        };
        let (store, location) = (self.home.object_store(), name.location());
        let bytes = match read.range {
            Some((from, until)) => {
                let length = store.head(&location).await?.size;
                let until = until.min(length);
                if from >= until {
                    return Ok(Vec::new());
                }
                store.get_range(&location, from..until).await?
            }
            None => store.get(&location).await?.bytes().await?,
        };
        Ok(bytes.into())
    }
}

/// Answers the master.
struct Calls(Weak<Inner>);

#[async_trait]
impl CallHandler for Calls {
    async fn call(&self, peer: &PeerIdentity, method: &str, body: Vec<u8>) -> DFResult<Vec<u8>> {
        match self.0.upgrade() {
            Some(worker) => worker.answer(peer, method, body).await,
            None => exec_err!("the worker is ending"),
        }
    }

    fn is_prompt(&self, method: &str) -> bool {
        matches!(method, rpc_messages::CLOCK | rpc_messages::PROGRESS)
    }
}

/// The master as a peer of the node.
pub(crate) fn master_at(address: SocketAddr) -> PeerAddress {
    PeerAddress::new(NodeId::MASTER, &NodeId::MASTER.to_string(), address)
}
