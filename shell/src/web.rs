//! The profiler's page for a database of this process, on a thread of its own: the shell may be waiting for a
//! line meanwhile.

use std::sync::mpsc;
use std::thread::JoinHandle;

use skewer::Database;
use skewer_web::server::Tickets;
use skewer_web::{WebOptions, WebServer};
use tokio::sync::oneshot;

use crate::error::ShellError;

/// A page that is served until this is dropped.
#[derive(Debug)]
pub struct Page {
    tickets: Tickets,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Page {
    /// Serves the page at a port of loopback that is free.
    pub fn serve(database: &Database) -> Result<Page, ShellError> {
        let options = WebOptions {
            listen: "127.0.0.1:0".to_owned(),
            ..WebOptions::default()
        };
        let database = database.clone();
        let (stop, stopped) = oneshot::channel();
        let (bound, address) = mpsc::channel();
        // With a runtime of its own: the shell's waits for a line meanwhile.
        let thread = std::thread::Builder::new()
            .name("skewer-web".to_owned())
            .spawn(move || {
                let served = serve(database, options, &bound, stopped);
                if let Err(error) = served {
                    // Nobody waits any more if it had begun.
                    let _ = bound.send(Err(error));
                }
            })
            .map_err(ShellError::Start)?;
        // The thread has sent its end, or has panicked and logged that.
        let gone = || ShellError::Start(std::io::Error::other("the page's thread ended"));
        let tickets = address.recv().map_err(|_| gone())??;
        Ok(Page {
            tickets,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The address of the home page or of a query, which opens once.
    pub fn address(&self, query_id: Option<i64>) -> String {
        match query_id {
            Some(query_id) => self.tickets.once(&format!("q/{query_id}")),
            None => self.tickets.once(""),
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has logged its panic.
            let _ = thread.join();
        }
    }
}

/// Serves the page until `stopped`; sends what makes its addresses once it listens.
fn serve(
    database: Database,
    options: WebOptions,
    bound: &mpsc::Sender<Result<Tickets, ShellError>>,
    stopped: oneshot::Receiver<()>,
) -> Result<(), ShellError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ShellError::Start)?;
    runtime.block_on(async {
        let server = WebServer::bind(database, options).await?;
        // The shell waits for it.
        let _ = bound.send(Ok(server.tickets()));
        server
            .run(async {
                // Without a sender, the page is no longer wanted.
                let _ = stopped.await;
            })
            .await;
        Ok(())
    })
}

/// Opens an address in a browser, if this machine has a desktop. Whether it did, nobody can tell.
pub fn open_in_browser(address: &str) {
    let program = match std::env::consts::OS {
        "macos" => "open",
        _ if std::env::var_os("DISPLAY").is_none()
            && std::env::var_os("WAYLAND_DISPLAY").is_none() =>
        {
            return;
        }
        _ => "xdg-open",
    };
    let started = std::process::Command::new(program)
        .arg(address)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn();
    if let Ok(mut child) = started {
        // Its end is waited for, so that it does not stay a zombie.
        std::thread::spawn(move || child.wait());
    }
}
