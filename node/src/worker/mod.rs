//! A worker's process.

mod calls;
mod joining;
mod options;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use skewer_cluster::queries::WorkerQueries;
use skewer_cluster::write::SegmentDestination;
use skewer_cluster::{NodeOptions, NodeTasks, cooperative_tasks};
use skewer_compat::operators::memory_pool::RaisedBy;
use skewer_compat::operators::scheduling::Scheduler;
use skewer_net::identity::{Credentials, NodeId, Revocations, Trust, random_number};
use skewer_net::{NetError, Node, PeerAddress, Services};
use skewer_profiling::{Retention, SysTables};
use skewer_storage::{Storage, WorkerStore, WorkerStoreDirectory, WorkerStoreIdentity};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use self::calls::{Calls, FarRowIds};
use self::joining::{enter, may_renew};
pub use self::options::WorkerOptions;
use crate::VERSION;
use crate::environment::{self, Environment};
use crate::error::Error;
use crate::links;
use crate::membership::MemberView;
use crate::options::resolve;
use crate::registration::Registration;
use crate::rpc_messages::{self, Leave};
use crate::spill_directory::SpillDirectory;
use crate::task_session::task_session;
use crate::tasks_read::TasksRead;

/// Within a worker's directory: its certificate and key, and the master's address.
const IDENTITY: &str = "identity";
const MASTER: &str = "master";

/// What it recorded, for schema `sys`.
const SYS: &str = "sys";

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

/// The master as a peer of the node.
pub(crate) fn master_at(address: SocketAddr) -> PeerAddress {
    PeerAddress::new(NodeId::MASTER, &NodeId::MASTER.to_string(), address)
}
