//! Nodes that talk over QUIC.
//!
//! ```text
//!   master                                      worker 1                       worker 2
//!   Node ── connection ── coordinator stream ─▶ Node
//!        ── partition streams ────────────────▶      ◀── connection ── partition streams ── Node
//!                                                     ── connection ── partition streams ──▶
//! ```
//!
//! A node has one UDP socket. To each node that it asks something it opens one connection, on
//! which every question is a stream of its own: one per partition of a shuffle, one per task's
//! coordinator channel, one per call. Answers come back on the same stream; a node that asks back
//! does so on its own connection.
//!
//! - [`options`]: windows, timeouts, packet sizes;
//! - [`node`]: a node: its socket, whom it knows, whom it serves;
//! - [`peers`]: the other nodes, as membership sees them;
//! - [`services`]: what a node does for others;
//! - [`channel`]: datafusion-distributed's channels to workers;
//! - [`mod@join`]: how a machine becomes a worker;
//! - [`task_end`]: that nobody wants a task any more;
//! - [`lifeline`]: by which the master knows at once that a worker's process is gone.
//!
//! Within: `connect` and `accept` make connections, `stream` puts frames on QUIC streams, `serve`
//! answers requests, `partitions` reads the partitions of a task, `threads` move the packets.

pub mod channel;
pub mod join;
pub mod lifeline;
pub mod node;
pub mod options;
pub mod peers;
pub mod services;
pub mod task_end;

mod accept;
mod connect;
mod partitions;
mod serve;
mod stream;
mod threads;

pub use channel::QuicResolver;
pub use join::{Joined, join, pauses};
pub use lifeline::{Lifeline, Lifelines, Watched};
pub use node::Node;
pub use options::NetOptions;
pub use peers::{LinkStats, PeerAddress, node_of_url, worker_url};
pub use services::{CallHandler, Services};
pub use task_end::{RunningTask, TaskEnd};
