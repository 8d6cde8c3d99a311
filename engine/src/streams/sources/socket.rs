//! Lines of TCP connections.
//!
//! The stream listens. It acknowledges nothing: what a client has sent and the stream has not
//! committed is lost when the process ends.

use std::time::Duration;

use skewer_storage::TableId;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Request;
use super::lines::{self, LONGEST, LineFormat, WAITING};
use crate::error::Error;
use crate::streams::Link;

/// Connections at once.
const CONNECTIONS: usize = 64;

/// An address that is not free is tried again after so long.
const RETRY: Duration = Duration::from_secs(5);

/// Listens, and makes rows of lines, as long as the stream and the database are there.
pub(super) async fn run(
    link: Link,
    stream: TableId,
    address: String,
    format: LineFormat,
    mut requests: mpsc::Receiver<Request>,
) {
    let Some(listener) = listen(&link, stream, &address, &mut requests).await else {
        return;
    };
    let (send, mut lines) = mpsc::channel(WAITING);
    let reject = |what: String| {
        link.streams.statuses.change(stream.0, |status| {
            status.rejected += 1;
            status.error = Some(what);
        });
    };
    let accept = async {
        let mut connections: JoinSet<Option<String>> = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                    Ok((connection, _)) => {
                        connections.spawn(read(connection, send.clone(), format.has_header()));
                    }
                    // As when there are too many open files.
                    Err(_) => tokio::time::sleep(RETRY).await,
                },
                Some(ended) = connections.join_next() => {
                    if let Ok(Some(rejected)) = ended {
                        reject(rejected);
                    }
                }
            }
        }
    };
    tokio::select! {
        () = accept => {}
        () = lines::ingest(&link, stream, &format, &mut lines, &mut requests) => {}
    }
}

/// Listens at an address as soon as that is possible; `None` if the stream or the database is gone.
async fn listen(
    link: &Link,
    stream: TableId,
    address: &str,
    requests: &mut mpsc::Receiver<Request>,
) -> Option<TcpListener> {
    loop {
        let outcome = TcpListener::bind(address).await;
        let statuses = &link.streams.statuses;
        let error = match outcome {
            Ok(listener) => {
                let address = listener.local_addr().map(|address| address.to_string());
                statuses.change(stream.0, |status| {
                    status.address = address.ok();
                    status.error = None;
                });
                return Some(listener);
            }
            Err(error) => format!("nobody can listen at '{address}': {error}"),
        };
        statuses.set_error(stream.0, Some(error.clone()));
        if let Ok(request) = tokio::time::timeout(RETRY, requests.recv()).await {
            let _ = request?.send(Err(Error::Io(error)));
        }
    }
}

/// Sends the lines of a connection on. Returns what is wrong with the last one, if it is no whole
/// line.
async fn read(
    connection: TcpStream,
    send: mpsc::Sender<Vec<u8>>,
    has_header: bool,
) -> Option<String> {
    let mut reader = BufReader::new(connection);
    let mut is_header = has_header;
    loop {
        let mut line = Vec::new();
        let mut at_most = (&mut reader).take(LONGEST as u64 + 1);
        match at_most.read_until(b'\n', &mut line).await {
            Ok(_) if line.is_empty() => return None,
            Ok(_) if line.last() == Some(&b'\n') => {
                line.pop();
                if !std::mem::take(&mut is_header) && send.send(line).await.is_err() {
                    return None;
                }
            }
            Ok(_) if line.len() > LONGEST => {
                return Some(format!(
                    "a line of more than {LONGEST} bytes is left out, and its connection was closed"
                ));
            }
            Ok(_) | Err(_) if line.is_empty() => return None,
            // It may be the begin of a longer line, as '12' is of '123'.
            Ok(_) | Err(_) => {
                return Some(
                    "the last line of a connection is left out: it has no end of line".to_owned(),
                );
            }
        }
    }
}
