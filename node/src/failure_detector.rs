//! How the master notices who is gone: lifelines end at once with their process, who is silent for
//! long is given up, and who was revoked is turned out.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use skewer_net::Lifelines;
use skewer_net::identity::NodeId;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::master::{Held, Inner};
use crate::rpc_messages::{self, wall_ns};

/// It is looked so often whom to ask for the time: a tenth of the workers at a time.
const BEAT: Duration = Duration::from_millis(100);

/// The revocation list is looked at so often.
const REVOCATIONS: Duration = Duration::from_millis(500);

/// When too many files are open, accepting fails at once and would fail again at once.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Watches for as long as the master is there, on threads that its own part of queries does not
/// keep busy: it would take itself for a cluster of silent workers.
pub(crate) fn start(lifelines: Lifelines, master: &Arc<Inner>) {
    let io = master.node.io();
    io.spawn(accept(lifelines, Arc::downgrade(master)));
    io.spawn(heartbeats(Arc::downgrade(master)));
    io.spawn(revocations(Arc::downgrade(master)));
}

/// How long a process may take to read why it cannot take part.
const FAREWELL: Duration = Duration::from_secs(2);

async fn accept(lifelines: Lifelines, master: Weak<Inner>) {
    loop {
        match lifelines.accept().await {
            Ok(incoming) => {
                let master = Weak::clone(&master);
                tokio::spawn(async move {
                    match incoming.watch().await {
                        Ok(watched) => watch(watched, master).await,
                        Err(error) => tracing::warn!(%error, "a lifeline was refused"),
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a lifeline could not be accepted");
                tokio::time::sleep(BACK_OFF).await;
            }
        }
    }
}

async fn watch(mut watched: skewer_net::Watched, master: Weak<Inner>) {
    let number = watched.peer.node.0;
    let cut = Arc::new(Notify::new());
    let is_second = {
        let Some(master) = master.upgrade() else {
            return;
        };
        let held = Held {
            incarnation: watched.incarnation,
            address: watched.address,
            cut: Arc::clone(&cut),
        };
        let mut lifelines = master.lifelines.lock();
        let present = lifelines.get(&number);
        let is_second = present.is_some_and(|other| other.incarnation != watched.incarnation);
        if !is_second {
            lifelines.insert(number, held);
        }
        is_second
    };
    if is_second {
        // Whoever has it is not thrown out by a copy of its directory.
        tracing::warn!(worker = number, address = %watched.address,
            "a second process has the certificate of a worker that runs");
        // It is told why when it registers.
        let _ = tokio::time::timeout(FAREWELL, watched.ended()).await;
        return;
    }
    let is_cut = tokio::select! {
        () = watched.ended() => false,
        () = cut.notified() => true,
    };
    let Some(master) = master.upgrade() else {
        return;
    };
    let replaced = {
        let lifelines = master.lifelines.lock();
        let held = lifelines.get(&number);
        held.is_some_and(|held| !Arc::ptr_eq(&held.cut, &cut))
    };
    if !is_cut && !replaced {
        let reason = "its process has ended".to_owned();
        let _ = lose(&master, number, watched.incarnation, reason).await;
        // It may not have registered.
        let mut lifelines = master.lifelines.lock();
        if lifelines
            .get(&number)
            .is_some_and(|held| Arc::ptr_eq(&held.cut, &cut))
        {
            lifelines.remove(&number);
        }
    }
}

/// A worker is gone. Waits for a commit that goes on, which must not keep the threads of the connections
/// from anything.
fn lose(master: &Arc<Inner>, number: u32, incarnation: u64, reason: String) -> JoinHandle<()> {
    let master = Arc::clone(master);
    tokio::task::spawn_blocking(move || master.lose(number, incarnation, &reason))
}

async fn heartbeats(master: Weak<Inner>) {
    let mut ticks = tokio::time::interval(BEAT);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut given_up: HashMap<u32, JoinHandle<()>> = HashMap::new();
    loop {
        ticks.tick().await;
        let Some(master) = master.upgrade() else {
            return;
        };
        given_up.retain(|_, lost| !lost.is_finished());
        let patience = master.options.heartbeat_timeout;
        let beat = master.members.beat(patience);
        for (number, incarnation, silent) in beat.silent {
            let reason = format!("it has not answered for {} s", silent.as_secs());
            // The others are heard meanwhile.
            given_up
                .entry(number)
                .or_insert_with(|| lose(&master, number, incarnation, reason));
        }
        for (number, incarnation) in beat.ask {
            let master = Arc::clone(&master);
            tokio::spawn(async move {
                // Whoever does not answer is asked again a second later all the same.
                let _ = tokio::time::timeout(patience, ask(&master, number, incarnation)).await;
            });
        }
    }
}

/// Asks a worker for the time.
pub(crate) async fn ask(master: &Inner, number: u32, incarnation: u64) {
    let (asked_ns, asked) = (wall_ns(), Instant::now());
    let node = &master.node;
    let answer = node
        .call(NodeId(number), rpc_messages::CLOCK, Vec::new())
        .await;
    let round_trip = asked.elapsed();
    match answer
        .map_err(Into::into)
        .and_then(|body| rpc_messages::decode(&body))
    {
        Ok(theirs_ns) => {
            let members = &master.members;
            members.heard(number, incarnation, asked_ns, theirs_ns, round_trip);
        }
        Err(error) => tracing::debug!(worker = number, %error, "no answer"),
    }
}

async fn revocations(master: Weak<Inner>) {
    let mut known = Vec::new();
    let mut ticks = tokio::time::interval(REVOCATIONS);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(master) = master.upgrade() else {
            return;
        };
        let entries = match master.revocations.entries() {
            Ok(entries) => entries,
            Err(error) => {
                tracing::error!(%error, "the revocation list cannot be read: nobody is let in");
                continue;
            }
        };
        if entries == known {
            continue;
        }
        known = entries;
        for (peer, incarnation) in master.members.identities() {
            if master.revocations.check(&peer).is_err() {
                let reason = "its certificate has been revoked".to_owned();
                let _ = lose(&master, peer.node.0, incarnation, reason).await;
            }
        }
        if let Err(error) = master.node.enforce_revocations() {
            tracing::error!(%error, "connections of revoked nodes were not closed");
        }
        // The workers keep a copy of the list.
        master.members.revocations_changed();
    }
}
