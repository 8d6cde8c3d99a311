//! A database served in this process, on a port by the operating system.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use skewer::Database;
use skewer_server::{Server, ServerOptions};
use tempfile::TempDir;
use tokio::sync::oneshot;

/// A server that ends when this is dropped.
#[derive(Debug)]
pub struct Served {
    /// Where it listens.
    pub address: SocketAddr,
    /// The database, for what clients cannot see.
    pub database: Database,
    directory: PathBuf,
    /// If nobody else removes it.
    _temporary: Option<TempDir>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Served {
    /// Serves an empty database.
    pub fn start() -> Served {
        Served::with(|_| {})
    }

    /// The same, after `prepare` has done something to the directory.
    pub fn with(prepare: impl FnOnce(&Path)) -> Served {
        Served::on("127.0.0.1:0", prepare)
    }

    /// The same, on an address of one's own choice.
    pub fn on(listen: &str, prepare: impl FnOnce(&Path)) -> Served {
        let temporary = tempfile::tempdir().unwrap();
        let database = Database::open(temporary.path()).unwrap();
        prepare(temporary.path());
        let mut served = Served::of_database(database, temporary.path(), listen);
        served._temporary = Some(temporary);
        served
    }

    /// Serves a database that somebody else has opened in `directory`.
    pub fn of_database(database: Database, directory: &Path, listen: &str) -> Served {
        let mut options = ServerOptions::new(directory);
        options.listen = listen.to_owned();
        options.drain = Duration::from_secs(30);
        let (stop, stopped) = oneshot::channel::<()>();
        let (listening, address) = std::sync::mpsc::channel();
        let served = database.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let server = Server::bind(served, options).await.unwrap();
                listening.send(server.local_addr().unwrap()).unwrap();
                server
                    .run(async {
                        let _ = stopped.await;
                    })
                    .await;
            });
        });
        Served {
            address: address.recv().unwrap(),
            database,
            directory: directory.to_owned(),
            _temporary: None,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// The database's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Tells the server to end; running statements may go on.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Waits until it has ended.
    pub fn wait(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
        if !std::thread::panicking() {
            self.wait();
        }
    }
}
