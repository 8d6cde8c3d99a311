//! The process that has the catalog.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use datafusion::catalog::SchemaProvider;
use datafusion::common::{Result as DFResult, exec_err, not_impl_err};
use datafusion::execution::runtime_env::RuntimeEnv;
use parking_lot::Mutex;
use skewer_cluster::rows_read::AskTasks;
use skewer_cluster::write::SegmentDestination;
use skewer_cluster::{NodeOptions, NodeTasks, Workers, cooperative_tasks};
use skewer_compat::operators::scheduling::Scheduler;
use skewer_net::identity::{ClusterDirectory, NodeId, PeerIdentity, Revocations, Trust};
use skewer_net::{CallHandler, LostWorker, NetError, Node, PeerAddress, Services};
use skewer_profiling::{OneMoreTable, RemoteSys, SysTables};
use skewer_storage::{Snapshot, Storage, TableId};
use tokio::sync::{Notify, watch};

use crate::error::external;
use crate::functions::Functions;
use crate::membership::{Arrival, Member};
use crate::options::{ClusterOptions, resolve};
use crate::remote_reads::RemoteReads;
use crate::remote_sys::RemoteTables;
use crate::rpc_messages::{self, Leave, Register, Registered, ReserveRows, Watch};
use crate::task_session::task_session;
use crate::tasks_read::TasksOfQuery;
use crate::watched_members::WatchedMembers;
use crate::{VERSION, cluster_table, failure_detector, links};

/// How long a worker that registers may take to be seen by its lifeline: it has been answered
/// there before it registers.
const LIFELINE: Duration = Duration::from_secs(2);

/// The end of a worker's lifeline, while it stands.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) incarnation: u64,
    pub(crate) address: SocketAddr,
    /// Told, the lifeline is cut.
    pub(crate) cut: Arc<Notify>,
}

/// The master of a cluster: who the workers are, and how they are reached.
#[derive(Debug)]
pub struct Master {
    inner: Arc<Inner>,
}

/// What the master's tasks share. Only [`Master`] keeps it: they end with it.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) node: Node,
    pub(crate) members: WatchedMembers,
    pub(crate) revocations: Arc<Revocations>,
    pub(crate) options: ClusterOptions,
    /// By number.
    pub(crate) lifelines: Mutex<HashMap<u32, Held>>,
    tasks: NodeTasks,
    storage: Storage,
    address: SocketAddr,
    /// The names of the program's functions, which workers need.
    functions: Vec<String>,
    /// Whether some table had segments of the master's in the snapshot of this version.
    owns: Mutex<Option<(u64, bool)>>,
}

impl Master {
    /// Listens, and lets workers register, which need the program's `functions`. Tasks that run here use the
    /// processors as `scheduler` says, write to `place`, and record in `sys`. Must be called within the
    /// runtime that the master is to live in.
    ///
    /// # Errors
    /// If the cluster's directory cannot be read, a certificate is not valid, or the address cannot be
    /// listened on.
    pub fn start(
        options: ClusterOptions,
        storage: &Storage,
        environment: &Arc<RuntimeEnv>,
        functions: &Functions,
        place: &Arc<SegmentDestination>,
        sys: &Arc<SysTables>,
        scheduler: &Arc<Scheduler>,
    ) -> Result<Self, NetError> {
        let directory = ClusterDirectory::open(&options.directory)?;
        let authority = directory.authority()?;
        let revocations = directory.revocations();
        let trust = Trust::new(authority.certificate(), Arc::clone(&revocations))?;
        let trust = trust.with_tokens(directory.tokens());
        let listen = resolve(&options.listen)?;
        let net = options.net.clone();
        let credentials = directory.renewed_credentials(SystemTime::now())?;
        let (node, lifelines) = Node::bind_master(listen, credentials, trust, net)?;
        let address = node.local_address()?;
        directory.set_address(&address.to_string())?;
        let mut known = Vec::new();
        for worker in directory.workers()? {
            known.push((worker.0, directory.worker(worker)?.name));
        }
        let (place, sys) = (Arc::clone(place), Arc::clone(sys));
        let reporting = Arc::clone(&sys);
        let tasks = NodeTasks::new(NodeOptions {
            node: NodeId::MASTER,
            quic: node.resolver(),
            session: task_session(environment, functions),
            query_of_task: None,
            // It is the one who knows.
            members: watch::Sender::new(u64::MAX).subscribe(),
            prepare: cooperative_tasks(scheduler),
            watch: None,
            extend: Arc::new(move |config| {
                config.set_extension(Arc::clone(&place));
                config.set_extension(Arc::clone(&sys));
            }),
            version: VERSION,
        });
        let inner = Arc::new(Inner {
            members: WatchedMembers::new(known),
            revocations,
            options,
            lifelines: Mutex::default(),
            storage: storage.clone(),
            address,
            functions: functions.names(),
            owns: Mutex::default(),
            node,
            tasks,
        });
        let weak = Arc::downgrade(&inner);
        links::report(&reporting, move || Some(weak.upgrade()?.node.clone()));
        storage.set_remote(RemoteReads::start(Arc::downgrade(&inner)));
        storage.set_membership(Arc::new(WeakMembership(Arc::downgrade(&inner))));
        inner.node.serve(Services {
            worker: Some(inner.tasks.worker()),
            calls: Some(Arc::new(Calls(Arc::downgrade(&inner)))),
            admissions: Some(directory),
        });
        failure_detector::start(lifelines, &inner);
        tracing::info!(%address, "listening for workers");
        Ok(Self { inner })
    }

    /// Where workers reach it.
    pub fn address(&self) -> SocketAddr {
        self.inner.address
    }

    /// All workers that have ever joined, by number.
    pub fn members(&self) -> Vec<Member> {
        self.inner.members.list()
    }

    /// Why a worker takes no part; `None` if it does.
    pub fn lost(&self, number: u32) -> Option<LostWorker> {
        self.inner.members.lost(number)
    }

    /// What workers recorded.
    pub fn remote_sys(&self) -> Arc<dyn RemoteSys> {
        Arc::new(RemoteTables(Arc::downgrade(&self.inner)))
    }

    /// How to ask for what the tasks of a query have read on the workers with these numbers.
    pub fn tasks_of_query(&self, workers: Vec<u32>, query_id: i64) -> Arc<dyn AskTasks> {
        Arc::new(TasksOfQuery::new(&self.inner, workers, query_id))
    }

    /// Schema `sys` with table `cluster`: the nodes, and what they have in `snapshot`.
    pub fn with_cluster_table(
        &self,
        sys: Arc<dyn SchemaProvider>,
        snapshot: Arc<Snapshot>,
    ) -> OneMoreTable {
        cluster_table::with_cluster(sys, Arc::downgrade(&self.inner), snapshot)
    }

    /// The workers for a query that reads `snapshot`: those that take part, and the master if it
    /// has segments itself, or if another part of the query has to run `here`. `None` if there is
    /// no worker.
    pub fn workers_of(&self, snapshot: &Snapshot, here: bool) -> Option<Workers> {
        let inner = &*self.inner;
        let mut present = inner.members.present();
        if present.numbers.is_empty() {
            return None;
        }
        let mut numbers = std::mem::take(&mut present.numbers);
        if here || inner.owns_segments(snapshot) {
            numbers.push(NodeId::MASTER.0);
        }
        let version = present.version;
        Some(inner.tasks.workers(numbers, version, Arc::new(present)))
    }

    /// Ends without waiting.
    pub fn abandon(&self) {
        self.inner.node.abandon();
    }

    /// Closes all connections, so that the others need not wait to notice.
    pub async fn shutdown(&self) {
        self.inner.lifelines.lock().clear();
        self.inner.node.shutdown().await;
    }
}

impl Inner {
    fn owns_segments(&self, snapshot: &Snapshot) -> bool {
        let mut owns = self.owns.lock();
        match *owns {
            Some((version, known)) if version == snapshot.version() => known,
            _ => {
                let schemas = snapshot.schemas();
                let mut tables = schemas.iter().flat_map(|schema| snapshot.tables(schema));
                let found = tables.any(|table| {
                    let mut segments = table.segments.iter();
                    segments.any(|segment| segment.owner == NodeId::MASTER.0)
                });
                *owns = Some((snapshot.version(), found));
                found
            }
        }
    }

    /// A worker is gone: what waits for it fails now, here and on the other workers.
    pub(crate) fn lose(&self, number: u32, incarnation: u64, reason: &str) {
        self.members.lose(number, incarnation, reason, || {
            self.node.close_worker(NodeId(number), reason);
        });
        let mut lifelines = self.lifelines.lock();
        if lifelines
            .get(&number)
            .is_some_and(|held| held.incarnation == incarnation)
            && let Some(held) = lifelines.remove(&number)
        {
            held.cut.notify_one();
        }
    }

    async fn register(&self, peer: &PeerIdentity, register: Register) -> DFResult<Registered> {
        let number = peer.node.0;
        let mut lacks = self.functions.clone();
        lacks.retain(|function| !register.functions.contains(function));
        if !lacks.is_empty() {
            tracing::warn!(
                worker = number,
                name = peer.name,
                functions = lacks.join(", "),
                "a worker cannot take part: it does not know functions"
            );
            return Ok(Registered::Lacks { functions: lacks });
        }
        let deadline = Instant::now() + LIFELINE;
        let held = loop {
            let held = self.lifelines.lock().get(&number).cloned();
            match held {
                Some(held) if held.incarnation == register.incarnation => break held,
                Some(held) if self.members.incarnation_of(number) == Some(held.incarnation) => {
                    return exec_err!(
                        "{peer} runs already, as another process at {}",
                        held.address.ip()
                    );
                }
                _ if Instant::now() > deadline => return exec_err!("{peer} has no lifeline"),
                _ => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        };
        let mut address = register.address;
        if address.ip().is_unspecified() {
            address.set_ip(held.address.ip());
        }
        let arrival = Arrival {
            peer: peer.clone(),
            address,
            incarnation: register.incarnation,
            version: register.version,
        };
        let listed: Vec<(TableId, u64)> = register
            .segments
            .into_iter()
            .map(|(table, id)| (TableId(table), id))
            .collect();
        let garbage = self.members.register(arrival, |restarted| {
            let at = PeerAddress::new(peer.node, &peer.to_string(), address);
            match restarted {
                true => self.node.replace_peer(at, "it was restarted"),
                false => self.node.set_peer(at),
            }
            self.storage.garbage_of(number, &listed, restarted)
        });
        tracing::info!(
            worker = number,
            name = peer.name,
            %address,
            segments = listed.len(),
            garbage = garbage.len(),
            "a worker takes part"
        );
        let garbage = garbage.into_iter().map(|(table, id)| (table.0, id));
        Ok(Registered::Takes {
            garbage: garbage.collect(),
        })
    }

    async fn answer(&self, peer: &PeerIdentity, method: &str, body: &[u8]) -> DFResult<Vec<u8>> {
        let number = peer.node.0;
        match method {
            rpc_messages::REGISTER => {
                let registered = self.register(peer, rpc_messages::decode(body)?).await?;
                rpc_messages::encode(&registered)
            }
            rpc_messages::WATCH => {
                let Watch { incarnation, known } = rpc_messages::decode(body)?;
                if self.members.incarnation_of(number) != Some(incarnation) {
                    return exec_err!("{peer} takes no part, and has to register");
                }
                // Without the list there is no answer: an empty one would let everybody in again.
                let revoked = || -> DFResult<Vec<String>> {
                    let entries = self.revocations.entries().map_err(external)?;
                    Ok(entries.iter().map(ToString::to_string).collect())
                };
                rpc_messages::encode(&self.members.after(known, revoked).await?)
            }
            rpc_messages::LEAVE => {
                let Leave { incarnation } = rpc_messages::decode(body)?;
                self.members.leave(number, incarnation).await;
                Ok(Vec::new())
            }
            rpc_messages::ROW_IDS => {
                let ReserveRows { table, rows } = rpc_messages::decode(body)?;
                let first = self.storage.reserve_row_ids(TableId(table), rows);
                rpc_messages::encode(&first.map_err(external)?)
            }
            other => not_impl_err!("the master does not know {other}"),
        }
    }
}

/// Answers workers.
struct Calls(Weak<Inner>);

#[async_trait]
impl CallHandler for Calls {
    async fn call(&self, peer: &PeerIdentity, method: &str, body: Vec<u8>) -> DFResult<Vec<u8>> {
        match self.0.upgrade() {
            Some(master) => master.answer(peer, method, &body).await,
            None => exec_err!("the master is ending"),
        }
    }

    fn is_prompt(&self, method: &str) -> bool {
        method == rpc_messages::WATCH
    }
}

/// The members, for the storage that the master itself keeps.
#[derive(Debug)]
struct WeakMembership(Weak<Inner>);

impl skewer_storage::Membership for WeakMembership {
    fn while_present(
        &self,
        writers: &[skewer_storage::Writer],
        publish: &mut dyn FnMut(),
    ) -> skewer_storage::Result<()> {
        match self.0.upgrade() {
            Some(master) => master.members.while_present(writers, publish),
            None => Err(skewer_storage::StorageError::WorkerLost {
                worker: "the master".to_owned(),
                detail: "it is ending".to_owned(),
            }),
        }
    }
}
