//! Lines of the standard input.
//!
//! REFRESH STREAM reads them, until the end of the input. Nothing else does: the input may be a
//! terminal, or have the statements.

use std::io::BufRead;
use std::sync::atomic::{AtomicBool, Ordering};

use skewer_storage::TableId;
use tokio::sync::mpsc;

use super::Request;
use super::lines::{self, LineFormat, WAITING};
use crate::error::Error;
use crate::streams::Link;
use crate::streams::status::Status;

/// Whether somebody reads the standard input of this process, or has read it.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Reads the standard input when somebody asks for it.
pub(super) async fn run(
    link: Link,
    stream: TableId,
    format: LineFormat,
    mut requests: mpsc::Receiver<Request>,
) {
    let mut has_read = false;
    while let Some(request) = requests.recv().await {
        if has_read {
            let _ = request.send(Ok(()));
            continue;
        }
        if IS_TAKEN.swap(true, Ordering::AcqRel) {
            let _ = request.send(Err(Error::Invalid(
                "another stream has read the standard input of this process".to_owned(),
            )));
            continue;
        }
        let (send, mut lines) = mpsc::channel(WAITING);
        let has_header = format.has_header();
        // The thread may wait for input for ever: no runtime must wait for it.
        std::thread::spawn(move || read(&send, has_header));
        let (keep_open, mut nobody_asks) = mpsc::channel(1);
        lines::ingest(&link, stream, &format, &mut lines, &mut nobody_asks).await;
        drop(keep_open);
        has_read = true;
        let ended = |status: &mut Status| status.is_ended = true;
        link.streams.statuses.change(stream.0, ended);
        let _ = request.send(Ok(()));
    }
}

fn read(send: &mpsc::Sender<Vec<u8>>, has_header: bool) {
    let lines = std::io::stdin().lock().split(b'\n');
    let mut is_header = has_header;
    for line in lines.map_while(Result::ok) {
        if std::mem::take(&mut is_header) {
            continue;
        }
        if send.blocking_send(line).is_err() {
            return;
        }
    }
}
