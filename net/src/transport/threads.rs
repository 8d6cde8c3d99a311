//! Threads that move packets.
//!
//! Those that run queries may be kept by an operator for as long as a batch takes it: seconds, if a
//! function is slow. Connections that were driven there would end because nobody answers, and a
//! worker that is only busy would be taken for dead.

use std::future::Future;
use std::io;
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quinn::{AsyncTimer, AsyncUdpSocket, TokioRuntime};
use tokio::runtime::{Builder, Handle, Runtime};

/// A node's threads for packets, timers and handshakes. They end when it is dropped, wherever that
/// is.
#[derive(Debug)]
pub(crate) struct IoThreads {
    /// `None` once they have been told to end, or if they are somebody else's.
    runtime: Mutex<Option<Runtime>>,
    handle: Handle,
}

impl IoThreads {
    /// Starts so many; none are those of the runtime that this is called in.
    pub(crate) fn start(count: usize) -> io::Result<Self> {
        if count == 0 {
            return Ok(Self {
                runtime: Mutex::new(None),
                handle: Handle::current(),
            });
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(count)
            .thread_name("skewer-net")
            .enable_all()
            .build()?;
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Mutex::new(Some(runtime)),
        })
    }

    /// To run something there that never blocks.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Ends them, and what runs there; waits for it, at most so long.
    pub(crate) async fn end(&self, patience: Duration) {
        let runtime = self.runtime.lock().take();
        if let Some(runtime) = runtime {
            let ending = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(patience));
            let _ = ending.await;
        }
    }

    /// Ends them without waiting.
    pub(crate) fn abandon(&self) {
        let runtime = self.runtime.lock().take();
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }

    /// What quinn runs its endpoint and connections on.
    pub(crate) fn quic(&self) -> Arc<dyn quinn::Runtime> {
        Arc::new(On(self.handle.clone()))
    }
}

impl Drop for IoThreads {
    fn drop(&mut self) {
        // Waiting for them is not allowed in a task, which may have had the last clone.
        self.abandon();
    }
}

/// quinn's tokio runtime, on threads that need not be those of the caller.
#[derive(Debug)]
struct On(Handle);

impl quinn::Runtime for On {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        let _within = self.0.enter();
        TokioRuntime.new_timer(at)
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.0.spawn(future);
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        let _within = self.0.enter();
        TokioRuntime.wrap_udp_socket(socket)
    }

    fn now(&self) -> Instant {
        TokioRuntime.now()
    }
}
