//! Clusters for tests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use datafusion_distributed::{DistributedExt, Worker, WorkerQueryContext};
use skewer_net::identity::authority::NODE_LIFETIME;
use skewer_net::identity::{Authority, Credentials, NodeId, Revocations, Trust};
use skewer_net::transport::worker_url;
use skewer_net::{NetOptions, Node, PeerAddress, Services, TaskEnd};
use tokio::runtime::Handle;

use crate::source::SourceCodec;

/// A port that the operating system chooses.
pub(crate) fn anywhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

pub(crate) fn authority() -> Authority {
    Authority::create(SystemTime::now()).unwrap()
}

pub(crate) fn credentials(authority: &Authority, node: NodeId) -> Credentials {
    let name = format!("worker-{}", node.0);
    Credentials::issued_by(authority, node, &name, SystemTime::now(), NODE_LIFETIME).unwrap()
}

pub(crate) fn trust(authority: &Authority) -> Trust {
    Trust::new(authority.certificate(), Arc::new(Revocations::in_memory())).unwrap()
}

/// A node that does not serve yet.
pub(crate) fn node(authority: &Authority, node: NodeId, options: &NetOptions) -> Node {
    let credentials = credentials(authority, node);
    Node::bind(anywhere(), credentials, trust(authority), options.clone()).unwrap()
}

/// A worker for a node: its sessions reach other workers over the node's connections.
pub(crate) fn worker(node: &Node) -> Worker {
    let resolver = node.resolver();
    Worker::from_session_builder(move |context: WorkerQueryContext| {
        let resolver = resolver.clone();
        async move {
            let mut builder = context.builder;
            if let Some(end) = TaskEnd::from_headers(&context.headers) {
                let config = builder.config().get_or_insert_default();
                config.set_extension(Arc::new(end));
            }
            Ok(builder
                .with_distributed_channel_resolver(resolver)
                .with_distributed_user_codec(SourceCodec)
                .build())
        }
    })
    .with_version("test 1")
}

/// A master and workers that know each other.
pub(crate) struct Cluster {
    pub(crate) master: Node,
    pub(crate) workers: Vec<Node>,
}

impl Cluster {
    pub(crate) fn new(workers: u32, options: &NetOptions) -> Self {
        Self::through(workers, options, |_, address| address)
    }

    /// The nodes call each other at what `route` makes of their addresses.
    pub(crate) fn through(
        workers: u32,
        options: &NetOptions,
        mut route: impl FnMut(NodeId, SocketAddr) -> SocketAddr,
    ) -> Self {
        let authority = authority();
        let master = node(&authority, NodeId::MASTER, options);
        let workers = (1..=workers)
            .map(|number| node(&authority, NodeId(number), options))
            .collect();
        Self::of_nodes(master, workers, &mut route)
    }

    /// A master, and a worker whose tasks run on another runtime.
    pub(crate) fn with_tasks_on(runtime: &Handle) -> Self {
        let (authority, options) = (authority(), NetOptions::default());
        let master = node(&authority, NodeId::MASTER, &options);
        let worker = {
            let _within = runtime.enter();
            node(&authority, NodeId(1), &options)
        };
        Self::of_nodes(master, vec![worker], &mut |_, address| address)
    }

    fn of_nodes(
        master: Node,
        workers: Vec<Node>,
        route: &mut dyn FnMut(NodeId, SocketAddr) -> SocketAddr,
    ) -> Self {
        for called in &workers {
            let id = called.identity().node;
            let address = route(id, called.local_address().unwrap());
            for caller in workers.iter().chain([&master]) {
                caller.set_peer(PeerAddress::new(id, &id.to_string(), address));
            }
        }
        for node in &workers {
            node.serve(Services {
                worker: Some(worker(node)),
                ..Services::default()
            });
        }
        Self { master, workers }
    }

    pub(crate) fn urls(&self) -> Vec<url::Url> {
        self.workers
            .iter()
            .map(|node| worker_url(node.identity().node))
            .collect()
    }
}
