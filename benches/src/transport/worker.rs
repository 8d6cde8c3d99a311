//! A worker process of the experiment, which serves all transports.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion_distributed::{DistributedExt, Worker, WorkerQueryContext};
use skewer_net::identity::{Credentials, NodeId, Revocations, Trust};
use skewer_net::{NetOptions, Node, PeerAddress, Services};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::process::READY;
use crate::allocator::ALLOCATOR;
use crate::error::BenchError;

/// What a worker process is told.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Its certificate and key.
    #[arg(long)]
    identity: PathBuf,
    /// Where to write, at the end, where memory was when it was most.
    #[arg(long)]
    ledger: Option<PathBuf>,
    #[command(flatten)]
    tuning: Tuning,
}

/// What may be tried otherwise than it is.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Tuning {
    /// Bytes that a stream over QUIC may have unread.
    #[arg(long)]
    pub stream_window: Option<usize>,
    /// The largest UDP payload that QUIC tries.
    #[arg(long)]
    pub largest_payload: Option<u16>,
    /// Bytes that the operators of a worker may hold, whatever the transport; beyond, exchanges
    /// spill to files.
    #[arg(long)]
    pub memory_limit: Option<usize>,
}

impl Tuning {
    /// For the command of a worker.
    pub(super) fn arguments(self) -> Vec<String> {
        let all = [
            ("--stream-window", self.stream_window),
            ("--largest-payload", self.largest_payload.map(usize::from)),
            ("--memory-limit", self.memory_limit),
        ];
        all.into_iter()
            .filter_map(|(name, bytes)| Some([name.to_owned(), bytes?.to_string()]))
            .flatten()
            .collect()
    }

    /// What tasks run in.
    pub(super) fn environment(self) -> Result<Arc<RuntimeEnv>, BenchError> {
        let mut builder = RuntimeEnvBuilder::new();
        if let Some(bytes) = self.memory_limit {
            builder = builder.with_memory_limit(bytes, 1.0);
        }
        Ok(builder.build_arc()?)
    }
}

/// So many places that have memory are told.
const PLACES: usize = 25;

/// What the experiment says when peaks begin anew.
pub(super) const FORGET: &str = "forget peaks";

/// Prints where it listens, reads where the workers are, and serves until its input ends.
pub async fn run(arguments: &Arguments) -> Result<(), BenchError> {
    if arguments.ledger.is_some() {
        ALLOCATOR.watch();
    }
    let node = node(&arguments.identity, arguments.tuning)?;
    let environment = arguments.tuning.environment()?;
    let resolver = node.resolver();
    let worker = Worker::from_session_builder(move |context: WorkerQueryContext| {
        let resolver = resolver.clone();
        async move {
            let builder = context.builder;
            Ok(builder.with_distributed_channel_resolver(resolver).build())
        }
    })
    .with_runtime_env(Arc::clone(&environment));
    let address = node.local_address()?;
    #[cfg(feature = "grpc")]
    let others = super::grpc::serve(&arguments.identity, &environment)
        .await?
        .join(" ");
    #[cfg(not(feature = "grpc"))]
    let (others, _) = ("", environment);
    writeln!(std::io::stdout(), "{address} {others}")?;

    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let peers = input.next_line().await?.unwrap_or_default();
    for (number, address) in (1..).zip(peers.split_whitespace()) {
        let address = address.parse().map_err(|_| {
            BenchError::Unexpected(format!("the address of worker {number} is {address}"))
        })?;
        let id = NodeId(number);
        node.set_peer(PeerAddress::new(id, &id.to_string(), address));
    }
    node.serve(Services {
        worker: Some(worker),
        ..Services::default()
    });
    writeln!(std::io::stdout(), "{READY}")?;
    // Whoever started it is gone when its input ends.
    while let Some(line) = input.next_line().await? {
        if line == FORGET {
            ALLOCATOR.forget();
        }
    }
    if let Some(path) = &arguments.ledger {
        std::fs::write(path, ALLOCATOR.report(PLACES)).map_err(BenchError::file(path))?;
    }
    Ok(())
}

/// A node with the certificate in `identity`, on a port of the system's choice.
pub(super) fn node(identity: &std::path::Path, tuning: Tuning) -> Result<Node, BenchError> {
    let credentials = Credentials::load(identity).map_err(network)?;
    let trust = Trust::new(credentials.authority(), Arc::new(Revocations::in_memory()));
    let here = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut options = NetOptions::default();
    if let Some(window) = tuning.stream_window {
        options.stream_window = window;
    }
    if let Some(bytes) = tuning.largest_payload {
        options.largest_local_payload = bytes;
    }
    Ok(Node::bind(
        here,
        credentials,
        trust.map_err(network)?,
        options,
    )?)
}

/// An error of identities.
pub(super) fn network(error: impl std::fmt::Display) -> BenchError {
    BenchError::Unexpected(format!("the cluster's identities: {error}"))
}
