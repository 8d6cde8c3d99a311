//! Stopping statements from outside: CancelRequest, and the end of the server.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use pgwire::messages::ProtocolVersion;
use pgwire::messages::startup::SecretKey;
use tokio::sync::Notify;

/// Stops what one connection runs.
#[derive(Debug, Default)]
pub(crate) struct Canceller {
    notify: Notify,
}

impl Canceller {
    /// Stops the statement that runs now, if one does; later ones run.
    pub(crate) fn cancel(&self) {
        self.notify.notify_waiters();
    }

    /// What `future` gives, unless it is cancelled before.
    pub(crate) async fn guard<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut cancelled = std::pin::pin!(self.notify.notified());
        // From here on, not from when it is first polled.
        cancelled.as_mut().enable();
        tokio::select! {
            biased;
            () = cancelled => None,
            value = future => Some(value),
        }
    }
}

/// The connections that there are, by the keys that cancel requests name.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    by_key: Mutex<HashMap<(i32, Bytes), Arc<Canceller>>>,
    last: AtomicI32,
}

/// A connection among [`Connections`], until it is dropped.
#[derive(Debug)]
pub(crate) struct Registered {
    connections: Arc<Connections>,
    pub(crate) process: i32,
    pub(crate) secret: SecretKey,
    pub(crate) canceller: Arc<Canceller>,
}

impl Connections {
    /// Adds a connection under a number that it has alone and a secret.
    pub(crate) fn register(self: &Arc<Self>, version: ProtocolVersion) -> Registered {
        let process = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let secret = match version {
            ProtocolVersion::PROTOCOL3_0 => SecretKey::I32(rand::random()),
            _ => SecretKey::Bytes(Bytes::copy_from_slice(&rand::random::<[u8; 32]>())),
        };
        let canceller = Arc::new(Canceller::default());
        let key = (process, secret.to_bytes());
        self.by_key.lock().insert(key, Arc::clone(&canceller));
        Registered {
            connections: Arc::clone(self),
            process,
            secret,
            canceller,
        }
    }

    /// Cancels what the connection runs that has this key, if there is one.
    pub(crate) fn cancel(&self, process: i32, secret: &SecretKey) -> bool {
        let found = self
            .by_key
            .lock()
            .get(&(process, secret.to_bytes()))
            .map(Arc::clone);
        if let Some(canceller) = &found {
            canceller.cancel();
        }
        found.is_some()
    }

    /// Cancels what all of them run.
    pub(crate) fn cancel_all(&self) {
        for canceller in self.by_key.lock().values() {
            canceller.cancel();
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.by_key.lock().len()
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let key = (self.process, self.secret.to_bytes());
        self.connections.by_key.lock().remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_key_of_a_connection_cancels_it() {
        let connections = Arc::new(Connections::default());
        let one = connections.register(ProtocolVersion::PROTOCOL3_0);
        let two = connections.register(ProtocolVersion::PROTOCOL3_0);
        let waiting = one.canceller.guard(std::future::pending::<()>());
        let wrong = SecretKey::I32(one.secret.as_i32().unwrap().wrapping_add(1));
        let cancel = async {
            assert!(!connections.cancel(one.process, &wrong));
            assert!(connections.cancel(one.process, &one.secret));
        };
        let (outcome, ()) = tokio::join!(waiting, cancel);
        assert_eq!(outcome, None);
        assert_eq!(two.canceller.guard(async { 1 }).await, Some(1));
        drop(one);
        assert_eq!(connections.count(), 1);
    }
}
