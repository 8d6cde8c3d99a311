//! A worker process of the experiment, which serves all transports.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use datafusion_distributed::{DistributedExt, Worker, WorkerQueryContext};
use skewer_net::identity::{Credentials, NodeId, Revocations, Trust};
use skewer_net::{NetOptions, Node, PeerAddress, Services};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::error::BenchError;

/// What a worker process is told.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Its certificate and key.
    #[arg(long)]
    identity: PathBuf,
}

/// Prints where it listens, reads where the workers are, and serves until its input ends.
pub async fn run(arguments: &Arguments) -> Result<(), BenchError> {
    let node = node(&arguments.identity)?;
    let resolver = node.resolver();
    let worker = Worker::from_session_builder(move |context: WorkerQueryContext| {
        let resolver = resolver.clone();
        async move {
            let builder = context.builder;
            Ok(builder.with_distributed_channel_resolver(resolver).build())
        }
    });
    let address = node.local_address()?;
    #[cfg(feature = "grpc")]
    let others = super::grpc::serve(&arguments.identity).await?.join(" ");
    #[cfg(not(feature = "grpc"))]
    let others = "";
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
    writeln!(std::io::stdout(), "ready")?;
    // Whoever started it is gone when its input ends.
    while input.next_line().await?.is_some() {}
    Ok(())
}

/// A node with the certificate in `identity`, on a port of the system's choice.
pub(super) fn node(identity: &std::path::Path) -> Result<Node, BenchError> {
    let credentials = Credentials::load(identity).map_err(network)?;
    let trust = Trust::new(credentials.authority(), Arc::new(Revocations::in_memory()));
    let here = SocketAddr::from(([127, 0, 0, 1], 0));
    let node = Node::bind(
        here,
        credentials,
        trust.map_err(network)?,
        NetOptions::default(),
    );
    Ok(node?)
}

/// An error of identities.
pub(super) fn network(error: impl std::fmt::Display) -> BenchError {
    BenchError::Unexpected(format!("the cluster's identities: {error}"))
}
