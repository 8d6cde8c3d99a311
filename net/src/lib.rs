//! The cluster's network: who may speak, what is said, and how it travels.
//!
//! - [`identity`]: the cluster's authority, certificates, join tokens, revocation;
//! - [`frame`]: the wire protocol as pure functions: bytes in, messages out;
//! - [`transport`]: nodes that talk over QUIC, and datafusion-distributed's view of them;
//! - [`error`]: what can go wrong between nodes.
//!
//! It depends on no sibling crate. `docs/wire-format.md` has the byte tables.
//!
//! # A cluster, step by step
//!
//! 1. [`identity::ClusterDirectory::init`] makes the authority and the master's certificate;
//!    [`identity::ClusterDirectory::token`] an invitation.
//! 2. On another machine, [`join()`] turns the token into [`identity::Credentials`], which
//!    [`identity::Credentials::write`] keeps. (The master serves with
//!    [`Services::admissions`], and its [`identity::Trust`] knows the tokens.)
//! 3. Each process binds a [`Node`] with its credentials. [`Node::resolver`] goes into the sessions
//!    that plan (on the master) and into those that a `Worker` builds (on workers).
//! 4. [`Node::serve`] answers: tasks with a `Worker`, the application's own questions, as
//!    heartbeats and commits, with a [`CallHandler`].
//! 5. Membership tells every node with [`Node::set_peer`] where the others are, and with
//!    [`Node::close_worker`] who is dead; [`LostWorker::in_error`] finds in a query's error which worker
//!    it died of.
//!
//! ```no_run
//! # async fn worker(home: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use std::time::Duration;
//! use datafusion_distributed::{DistributedExt, Worker, WorkerQueryContext};
//! use skewer_net::identity::{Clock, Credentials, NodeId, Revocations, SystemClock, Trust};
//! use skewer_net::{NetOptions, Node, PeerAddress, Services, join};
//!
//! let options = NetOptions::default();
//! let token = "skewer-join-…".parse()?;
//! let clock: Arc<dyn Clock> = Arc::new(SystemClock);
//! let wait = Duration::from_secs(30);
//! let joined = join(&token, Some("host-b"), wait, &options, &clock).await?;
//! joined.credentials.write(home)?;
//!
//! let credentials = Credentials::load(home)?;
//! let trust = Trust::new(credentials.authority(), Arc::new(Revocations::in_memory()))?;
//! let node = Node::bind("0.0.0.0:7433".parse()?, credentials, trust, options)?;
//! node.set_peer(PeerAddress::new(NodeId::MASTER, "the master", joined.master));
//! let resolver = node.resolver();
//! let worker = Worker::from_session_builder(move |context: WorkerQueryContext| {
//!     let resolver = resolver.clone();
//!     async move { Ok(context.builder.with_distributed_channel_resolver(resolver).build()) }
//! });
//! node.serve(Services { worker: Some(worker), ..Services::default() });
//! let answer = node.call(NodeId::MASTER, "here I am", b"0.0.0.0:7433".to_vec()).await?;
//! # Ok(()) }
//! ```

pub mod error;
pub mod frame;
pub mod identity;
mod panics;
pub mod transport;

pub use error::NetError;
pub use frame::{FailureClass, LostWorker, RemoteFailure};
pub use panics::{Panic, log_panics, panic_text};
pub use transport::{
    CallHandler, Lifeline, Lifelines, LinkStats, NetOptions, Node, PeerAddress, QuicResolver,
    RunningTask, Services, TaskEnd, Watched, join, node_of_url, pauses, worker_url,
};
