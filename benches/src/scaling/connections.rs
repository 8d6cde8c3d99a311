//! What connections and streams of real nodes take, over loopback.
//!
//! Some nodes are made in this process, all of them connect to all others, and then they do
//! nothing, ask each other for the time, or have many questions open. What the process then has
//! more in memory, processor time and open files is divided by how many there are.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use datafusion::common::Result as DFResult;
use skewer_net::identity::{Authority, Credentials, NodeId, PeerIdentity, Revocations, Trust};
use skewer_net::{CallHandler, NetError, NetOptions, Node, PeerAddress, Services};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::error::BenchError;
use crate::measure::{cpu_seconds_of, resident_bytes_of};

/// So long nothing is done but to keep connections alive.
const IDLE: Duration = Duration::from_secs(5);

/// What is never answered.
const NEVER: &str = "never";

/// What was measured.
#[derive(Debug, Clone, Copy)]
pub struct Findings {
    /// Bytes of a node without connections, resident.
    pub node_bytes: f64,
    /// Open files of a node, its connections included.
    pub node_files: f64,
    /// Connections, all nodes together; each has two ends.
    pub connections: usize,
    /// Bytes of one end of a connection.
    pub end_bytes: f64,
    /// Processor seconds to make a connection, both ends together.
    pub connect_seconds: f64,
    /// Processor seconds per second that one end of an idle connection takes.
    pub idle_load: f64,
    /// Processor seconds of a question with its answer, both ends together.
    pub call_seconds: f64,
    /// Bytes of one end of a stream on which nothing has been sent but a short question.
    pub stream_bytes: f64,
}

/// Makes `nodes` nodes, connects each to each, and opens `streams` streams. UDP payloads have at most
/// `largest_payload` bytes.
///
/// # Errors
/// If a node cannot do its part.
pub async fn measure(
    nodes: u32,
    calls: u32,
    streams: u32,
    largest_payload: u16,
) -> Result<Findings, BenchError> {
    let own = std::process::id();
    // The first ones make what all share.
    let first = nodes_of(nodes, largest_payload)?;
    let memory = resident_bytes_of(own)? as f64;
    let files = open_files()?;
    let all = nodes_of(nodes, largest_payload)?;
    let node_bytes = (resident_bytes_of(own)? as f64 - memory) / f64::from(nodes);

    let (memory, cpu) = (resident_bytes_of(own)? as f64, cpu_seconds_of(own));
    let mut connecting = JoinSet::new();
    for (number, node) in all.iter().enumerate() {
        let others = (0..nodes).filter(|other| *other as usize != number);
        let (node, others) = (node.clone(), others.collect::<Vec<_>>());
        connecting.spawn(async move {
            for other in others {
                node.connect(NodeId(other)).await?;
            }
            Ok::<_, NetError>(())
        });
    }
    while let Some(connected) = connecting.join_next().await {
        connected??;
    }
    let connections = (nodes * (nodes - 1)) as usize;
    let ends = 2.0 * connections as f64;
    let end_bytes = (resident_bytes_of(own)? as f64 - memory) / ends;
    let connect_seconds = (cpu_seconds_of(own) - cpu) / connections as f64;
    // What was done to find out the path's packet size is over.
    sleep(IDLE / 2).await;

    let cpu = cpu_seconds_of(own);
    sleep(IDLE).await;
    let idle_load = (cpu_seconds_of(own) - cpu) / IDLE.as_secs_f64() / ends;

    let cpu = cpu_seconds_of(own);
    for call in 0..calls {
        all[0]
            .call(NodeId(1 + call % (nodes - 1)), "clock", Vec::new())
            .await?;
    }
    let call_seconds = (cpu_seconds_of(own) - cpu) / f64::from(calls);

    let memory = resident_bytes_of(own)? as f64;
    let mut open = JoinSet::new();
    for _ in 0..streams {
        let node = all[0].clone();
        open.spawn(async move { node.call(NodeId(1), NEVER, Vec::new()).await });
    }
    // One that is asked after them is answered when they have come.
    sleep(Duration::from_millis(200)).await;
    all[0].call(NodeId(1), "clock", Vec::new()).await?;
    let stream_bytes = (resident_bytes_of(own)? as f64 - memory) / f64::from(streams) / 2.0;
    open.shutdown().await;

    let node_files = open_files()?.saturating_sub(files) as f64 / f64::from(nodes);
    for node in first.into_iter().chain(all) {
        node.shutdown().await;
    }
    Ok(Findings {
        node_bytes,
        node_files,
        connections,
        end_bytes,
        connect_seconds,
        idle_load,
        call_seconds,
        stream_bytes,
    })
}

/// Nodes with numbers from 0, which know each other and answer.
fn nodes_of(count: u32, largest_payload: u16) -> Result<Vec<Node>, BenchError> {
    let wrong = |error: skewer_net::identity::IdentityError| NetError::from(error);
    let now = SystemTime::now();
    let day = Duration::from_secs(86_400);
    let authority = Authority::create(now).map_err(wrong)?;
    let mut nodes = Vec::new();
    for number in 0..count {
        let own = Credentials::issued_by(&authority, NodeId(number), "node", now, day);
        let trust = Trust::new(authority.certificate(), Arc::new(Revocations::in_memory()));
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = NetOptions {
            io_threads: 0,
            largest_payload,
            largest_local_payload: largest_payload,
            ..NetOptions::default()
        };
        let node = Node::bind(here, own.map_err(wrong)?, trust.map_err(wrong)?, options)?;
        node.serve(Services {
            calls: Some(Arc::new(Answers)),
            ..Services::default()
        });
        nodes.push(node);
    }
    for (number, node) in (0..).zip(&nodes) {
        let address = node.local_address()?;
        for other in &nodes {
            other.set_peer(PeerAddress::new(NodeId(number), "node", address));
        }
    }
    Ok(nodes)
}

struct Answers;

#[async_trait]
impl CallHandler for Answers {
    async fn call(&self, _: &PeerIdentity, method: &str, _: Vec<u8>) -> DFResult<Vec<u8>> {
        match method {
            NEVER => std::future::pending().await,
            _ => Ok(vec![0; 8]),
        }
    }
}

fn open_files() -> Result<usize, BenchError> {
    let path = "/proc/self/fd";
    Ok(fs::read_dir(path).map_err(BenchError::file(path))?.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn nodes_that_are_connected_each_with_each_answer_and_hold_many_streams() {
        let found = measure(4, 8, 600, 1472).await.unwrap();
        assert_eq!(found.connections, 12);
        let times = [found.connect_seconds, found.call_seconds];
        assert!(
            times.iter().all(|seconds| (1e-6..1.0).contains(seconds)),
            "{found:?}"
        );
    }
}
