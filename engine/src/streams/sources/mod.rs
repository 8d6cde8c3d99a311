//! Rows of streams that come from elsewhere than INSERT.
//!
//! Each source has a task, which makes rows durable in the stream's table. Only then are they read.
//!
//! * `directory`: new files
//! * `lines`: lines of text as rows; `socket` and `stdin`: where lines come from

mod directory;
mod lines;
mod socket;
mod stdin;

use std::future::Future;
use std::pin::Pin;

use skewer_files::{CsvDialect, FileKind};
use skewer_sql::{CopyOptions, StreamSource};
use skewer_storage::StreamMeta;
use tokio::sync::{mpsc, oneshot};

use super::{Link, definition};
use crate::error::Error;

/// Told when what a source has now is durable.
type Request = oneshot::Sender<Result<(), Error>>;

/// Asks the task of a source.
#[derive(Debug, Clone)]
pub(super) struct Requests(mpsc::Sender<Request>);

impl Requests {
    /// Waits until what the source has now is durable.
    pub(super) async fn refresh(&self) -> Result<(), Error> {
        let (request, answer) = oneshot::channel();
        let gone = || Error::Conflict("the stream was dropped meanwhile".to_owned());
        self.0.send(request).await.map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// The task of a source.
type Source = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The task of a stream's source, and who asks it; `None` for a stream of INSERT.
pub(super) fn start(link: &Link, stream: &StreamMeta) -> Option<(Source, Requests)> {
    let (send, requests) = mpsc::channel(1);
    let id = stream.table;
    let unreadable = |error: Error| {
        let error = format!("its definition cannot be read: {error}");
        link.streams.statuses.set_error(id.0, Some(error));
    };
    let source = definition::stream(&stream.sql)
        .map_err(unreadable)
        .ok()?
        .source;
    let source: Source = match source {
        StreamSource::Insert => return None,
        StreamSource::Directory(path, options) => {
            Box::pin(directory::run(link.clone(), id, path, options, requests))
        }
        StreamSource::Stdin(options) => {
            let format = lines::LineFormat::new(&options).map_err(unreadable).ok()?;
            Box::pin(stdin::run(link.clone(), id, format, requests))
        }
        StreamSource::Socket(address, options) => {
            let format = lines::LineFormat::new(&options).map_err(unreadable).ok()?;
            Box::pin(socket::run(link.clone(), id, address, format, requests))
        }
    };
    Some((source, Requests(send)))
}

/// A source as the catalog keeps it, after it has been seen to make sense.
///
/// # Errors
/// If there is no such directory, if nobody can listen at the address, or if options are wrong.
pub(crate) fn checked(source: &StreamSource) -> Result<StreamSource, Error> {
    match source {
        StreamSource::Insert => {}
        StreamSource::Stdin(options) => {
            lines::LineFormat::new(options)?;
        }
        StreamSource::Socket(address, options) => {
            lines::LineFormat::new(options)?;
            let listening = std::net::TcpListener::bind(address);
            listening.map_err(|error| {
                Error::Invalid(format!(
                    "nobody can listen at '{address}': {error}; write FROM SOCKET 'host:port'"
                ))
            })?;
        }
        StreamSource::Directory(path, options) => {
            let absolute = std::path::absolute(path)
                .ok()
                .filter(|absolute| absolute.is_dir());
            let Some(absolute) = absolute else {
                return Err(Error::File {
                    path: path.clone(),
                    line: None,
                    message: "it is not a directory; create it before the stream".to_owned(),
                });
            };
            let kind = kind_of(options)?;
            CsvDialect::from_options(kind, options, &[])?;
            let absolute = absolute.to_string_lossy().into_owned();
            return Ok(StreamSource::Directory(absolute, options.clone()));
        }
    }
    Ok(source.clone())
}

/// The format of the files of a directory, which the options must say.
fn kind_of(options: &CopyOptions) -> Result<FileKind, Error> {
    let Some(format) = &options.format else {
        return Err(Error::Invalid(
            "a stream FROM DIRECTORY needs the format of its files: write FROM DIRECTORY 'path' (FORMAT csv), \
             (FORMAT json) or (FORMAT parquet)"
                .to_owned(),
        ));
    };
    Ok(FileKind::of_copy(Some(format), "")?)
}
