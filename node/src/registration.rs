//! A worker's life with its master.
//!
//! ```text
//!   lifeline ─▶ register ─▶ watch, watch, watch … ─┐
//!      ▲                                            │ the master is gone, or has given it up
//!      └────────────── a little later ◀─────────────┘
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use skewer_net::identity::{NodeId, Revocation};
use skewer_net::{Lifeline, NetError, PeerAddress, pauses};
use skewer_storage::TableId;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::VERSION;
use crate::error::Error;
use crate::membership::{Change, MembershipDelta, PresentMember};
use crate::rpc_messages::{self, Register, Registered, Watch};
use crate::worker::{Inner, master_at};

/// A worker that takes part, or tries to. Dropped, it cuts its lifeline.
#[derive(Debug)]
pub(crate) struct Registration {
    task: AbortHandle,
    ended: mpsc::Receiver<Error>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Registration {
    /// Begins to take part; the master is waited for for so long.
    pub(crate) async fn start(worker: Arc<Inner>, wait: Duration) -> Result<Self, Error> {
        let (ready, registered) = oneshot::channel();
        let (end, mut ended) = mpsc::channel(1);
        let deadline = Instant::now() + wait;
        let io = worker.node.io().clone();
        let task = io.spawn(async move {
            let error = take_part(&worker, Some(ready), deadline).await;
            // Without a receiver the worker is ending.
            let _ = end.send(error).await;
        });
        let task = task.abort_handle();
        tokio::select! {
            biased;
            Ok(()) = registered => Ok(Self { task, ended }),
            error = ended.recv() => Err(error.unwrap_or(Error::Stopped)),
        }
    }

    /// Returns when the worker must not take part any more.
    pub(crate) async fn ended(&mut self) -> Error {
        self.ended.recv().await.unwrap_or(Error::Stopped)
    }
}

/// Takes part again and again; returns why it must not any more.
async fn take_part(
    worker: &Inner,
    mut ready: Option<oneshot::Sender<()>>,
    deadline: Instant,
) -> Error {
    let mut waits = pauses();
    let mut told = None;
    loop {
        let error = match once(worker, &mut ready).await {
            Ok(never) => match never {},
            Err(error) => error,
        };
        // What waits for the master fails now.
        worker
            .node
            .close_worker(NodeId::MASTER, "its lifeline has ended");
        worker.queries.end_all().await;
        if error.is_final() || (ready.is_some() && Instant::now() > deadline) {
            return Error::from(error);
        }
        let text = error.to_string();
        if told.as_ref() != Some(&text) {
            tracing::warn!(master = worker.master, error = text, "trying again");
            told = Some(text);
            waits = pauses();
        }
        tokio::time::sleep(waits.next().unwrap_or_default()).await;
    }
}

/// Why a worker does not take part.
#[derive(Debug, thiserror::Error)]
enum NotPart {
    #[error(transparent)]
    Net(#[from] NetError),
    #[error(
        "queries of this cluster may call {functions}, which this worker does not know: it needs \
         the functions of the program that the master runs in"
    )]
    Lacks { functions: String },
}

impl NotPart {
    /// Whether trying again is of no use.
    fn is_final(&self) -> bool {
        match self {
            Self::Net(error) => matches!(
                error,
                NetError::Identity(_) | NetError::Refused { .. } | NetError::OtherVersion { .. }
            ),
            Self::Lacks { .. } => true,
        }
    }
}

impl From<NotPart> for Error {
    fn from(error: NotPart) -> Self {
        match error {
            NotPart::Net(error) => error.into(),
            lacks @ NotPart::Lacks { .. } => Self::Invalid(lacks.to_string()),
        }
    }
}

enum Never {}

/// Takes part until the master is gone.
async fn once(worker: &Inner, ready: &mut Option<oneshot::Sender<()>>) -> Result<Never, NotPart> {
    let unreachable = |reason: String| NetError::Unreachable {
        peer: NodeId::MASTER.to_string(),
        address: worker.master.clone(),
        reason,
    };
    let found = tokio::net::lookup_host(&worker.master).await;
    let mut found = found.map_err(|error| unreachable(error.to_string()))?;
    let address = found
        .next()
        .ok_or_else(|| unreachable("the name has no address".to_owned()))?;
    worker.node.set_peer(master_at(address));
    // The version of the protocol is found out by QUIC's HELLO, which says more.
    worker.node.connect(NodeId::MASTER).await?;
    let mut lifeline = worker.node.lifeline(worker.incarnation).await?;
    tokio::select! {
        result = registered(worker, ready) => result,
        () = lifeline.ended() => Err(lost(&lifeline).into()),
    }
}

fn lost(lifeline: &Lifeline) -> NetError {
    NetError::Lost(lifeline.lost())
}

async fn registered(
    worker: &Inner,
    ready: &mut Option<oneshot::Sender<()>>,
) -> Result<Never, NotPart> {
    let home = worker.home.clone();
    let listed = tokio::task::spawn_blocking(move || home.list()).await;
    let segments = match listed {
        Ok(Ok(segments)) => segments,
        Ok(Err(error)) => return Err(local(worker, &error).into()),
        Err(error) => return Err(local(worker, &error).into()),
    };
    let register = Register {
        incarnation: worker.incarnation,
        address: worker.address,
        version: VERSION.to_owned(),
        segments: segments
            .into_iter()
            .map(|(table, id)| (table.0, id))
            .collect(),
        functions: worker.functions.clone(),
    };
    let answer = ask(worker, rpc_messages::REGISTER, &register).await?;
    let garbage = match read(worker, &answer)? {
        Registered::Takes { garbage } => garbage,
        Registered::Lacks { functions } => {
            let functions = functions.join(", ");
            return Err(NotPart::Lacks { functions });
        }
    };
    let mut by_table: HashMap<u64, Vec<u64>> = HashMap::new();
    for (table, id) in garbage {
        by_table.entry(table).or_default().push(id);
    }
    for (table, ids) in by_table {
        tracing::info!(
            table,
            segments = ids.len(),
            "segments that nobody needs are removed"
        );
        let home = worker.home.clone();
        let removed = tokio::task::spawn_blocking(move || home.remove(TableId(table), ids)).await;
        removed.map_err(|error| local(worker, &error))?;
    }
    // Who the others are comes first: whoever waits for us to be ready may send queries at once.
    worker.view.lock().begin();
    loop {
        let watch = Watch {
            incarnation: worker.incarnation,
            known: worker.view.lock().known(),
        };
        let answer = ask(worker, rpc_messages::WATCH, &watch).await?;
        apply(worker, read(worker, &answer)?);
        if let Some(ready) = ready.take() {
            // Without a receiver the worker is ending.
            let _ = ready.send(());
        }
    }
}

async fn ask<T: serde::Serialize>(
    worker: &Inner,
    method: &str,
    question: &T,
) -> Result<Vec<u8>, NetError> {
    let body = rpc_messages::encode(question).map_err(|error| local(worker, &error))?;
    worker.node.call(NodeId::MASTER, method, body).await
}

fn read<T: serde::de::DeserializeOwned>(worker: &Inner, answer: &[u8]) -> Result<T, NetError> {
    rpc_messages::decode(answer).map_err(|error| local(worker, &error))
}

/// Something that went wrong here, and may not the next time.
fn local(worker: &Inner, error: &dyn std::error::Error) -> NetError {
    NetError::Unreachable {
        peer: NodeId::MASTER.to_string(),
        address: worker.master.clone(),
        reason: error.to_string(),
    }
}

/// Makes the node know whom the master knows.
fn apply(worker: &Inner, mut delta: MembershipDelta) {
    let version = delta.version;
    if let Some(revoked) = delta.revoked.take() {
        let revoked = revoked.iter().filter_map(|entry| entry.parse().ok());
        worker
            .revocations
            .replace(revoked.collect::<Vec<Revocation>>());
        if let Err(error) = worker.node.enforce_revocations() {
            tracing::error!(%error, "connections of revoked nodes were not closed");
        }
    }
    let at = |member: &PresentMember| {
        PeerAddress::new(NodeId(member.number), &member.name, member.address)
    };
    let changes = worker.view.lock().learn(delta);
    for change in changes {
        match change {
            Change::Here(member) => worker.node.set_peer(at(&member)),
            Change::Restarted(member) => {
                worker.node.replace_peer(at(&member), "it was restarted");
            }
            Change::Gone { number, reason } => worker.node.close_worker(NodeId(number), &reason),
        }
    }
    worker.members.send_replace(version);
}
