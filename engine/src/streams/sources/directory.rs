//! New files of a directory.
//!
//! A file is taken once, when two looks in a row find it with the same length and time of
//! modification. Its rows and the note that it was taken are in one commit.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use datafusion::sql::sqlparser::ast::{Ident, ObjectName};
use skewer_files::FileKind;
use skewer_profiling::nanos_since_epoch;
use skewer_sql::quote::literal;
use skewer_sql::{CopyFrom, CopyOptions};
use skewer_storage::{FileMark, TableId};
use tokio::sync::mpsc;

use super::{Request, kind_of};
use crate::error::Error;
use crate::settings::ProfileSettings;
use crate::statements::{Context, Tracing, copy_from};
use crate::streams::input::qualified;
use crate::streams::status::Status;
use crate::streams::{Held, Link};

/// From one look to the next.
const LOOK: Duration = Duration::from_millis(250);

/// So many names of files are kept, also of files that are not there any more.
const NAMES: usize = 10_000;

/// The files of a directory, by name.
type Found = BTreeMap<String, FileMark>;

/// A directory whose files become rows.
struct Directory {
    stream: TableId,
    path: PathBuf,
    options: CopyOptions,
    kind: FileKind,
    /// What the look before found.
    seen: Found,
    /// Files that could not be read, as they were.
    failed: HashMap<String, FileMark>,
}

/// Takes new files as long as the stream and the database are there.
pub(super) async fn run(
    link: Link,
    stream: TableId,
    path: String,
    options: CopyOptions,
    mut requests: mpsc::Receiver<Request>,
) {
    let Ok(kind) = kind_of(&options) else {
        return;
    };
    let mut directory = Directory {
        stream,
        path: PathBuf::from(path),
        options,
        kind,
        seen: Found::new(),
        failed: HashMap::new(),
    };
    loop {
        let request = match tokio::time::timeout(LOOK, requests.recv()).await {
            Ok(None) => return,
            Ok(Some(request)) => Some(request),
            Err(_) => None,
        };
        if request.is_some() {
            // What is complete now is so at the second look.
            if directory.look(&link).await.is_none() {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
        let Some(outcome) = directory.look(&link).await else {
            return;
        };
        if let Some(request) = request {
            // Whoever asked may have gone.
            let _ = request.send(outcome);
        }
    }
}

impl Directory {
    /// Takes the files that are complete; `None` if the database is gone. The first error is also the
    /// stream's status.
    async fn look(&mut self, link: &Link) -> Option<Result<(), Error>> {
        let held = link.hold()?;
        let outcome = self.take_complete(&held).await;
        let error = outcome.as_ref().err().map(ToString::to_string);
        link.streams.statuses.set_error(self.stream.0, error);
        Some(outcome)
    }

    async fn take_complete(&mut self, held: &Held) -> Result<(), Error> {
        let database = held.inner();
        let snapshot = database.storage.snapshot();
        let Some(stream) = snapshot.stream(self.stream) else {
            return Ok(());
        };
        let (path, kind) = (self.path.clone(), self.kind);
        let found = tokio::task::spawn_blocking(move || list(&path, kind)).await;
        let found = found.map_err(|error| Error::Internal(error.to_string()))??;
        let mut complete: Vec<(&String, &FileMark)> = found
            .iter()
            .filter(|(name, mark)| {
                !stream.files.contains_key(*name) && self.seen.get(*name) == Some(*mark)
            })
            .collect();
        complete.sort_by_key(|(name, mark)| (mark.modified_ns, name.as_str()));
        let mut first_error = None;
        for (name, mark) in complete {
            if self.failed.get(name) == Some(mark) {
                let message = "it could not be read and has not changed since".to_owned();
                first_error.get_or_insert(self.wrong(name, message));
                continue;
            }
            let forgotten = forgettable(&stream.files, &found);
            match self.take(held, name, *mark, forgotten).await {
                Ok(rows) => {
                    let count = |status: &mut Status| {
                        status.rows = status.rows.saturating_add_unsigned(rows);
                    };
                    database.streams.statuses.change(self.stream.0, count);
                }
                // Others may be readable.
                Err(error) => {
                    if matches!(
                        error,
                        Error::File { .. } | Error::Invalid(_) | Error::NotNull { .. }
                    ) {
                        self.failed.insert(name.clone(), *mark);
                    }
                    first_error.get_or_insert(error);
                }
            }
        }
        for (name, mark) in &found {
            if stream.files.get(name).is_some_and(|taken| taken != mark) {
                let message = "it was changed after its rows were taken; a stream takes each file once: write new rows \
                               to a new file"
                    .to_owned();
                first_error.get_or_insert(self.wrong(name, message));
            }
        }
        self.failed.retain(|name, _| found.contains_key(name));
        self.seen = found;
        first_error.map_or(Ok(()), Err)
    }

    fn wrong(&self, name: &str, message: String) -> Error {
        Error::File {
            path: self.path.join(name).display().to_string(),
            line: None,
            message,
        }
    }

    /// Commits the rows of a file, and that it was taken. Gives the number of rows.
    async fn take(
        &self,
        held: &Held,
        name: &str,
        mark: FileMark,
        forgotten: Vec<String>,
    ) -> Result<u64, Error> {
        let within = held.clone();
        let path = self.path.join(name).display().to_string();
        let (stream, name, options) = (self.stream, name.to_owned(), self.options.clone());
        let taken = async move {
            let session = within.database().session();
            let catalog = session.catalog();
            let Some(table) = catalog.snapshot().table_by_id(stream) else {
                return Ok(0);
            };
            let sql = format!("COPY {} FROM {}", qualified(&table), literal(&path));
            let tracing = Tracing::At(ProfileSettings::default());
            let mut context = Context::begin(&session, catalog, &sql, tracing);
            context.admit().await;
            let copy = CopyFrom {
                table: ObjectName::from(vec![Ident::new(&table.name)]),
                columns: Vec::new(),
                path,
                options,
            };
            let _turn = context.turn_to_append(&table).await;
            let outcome = match copy_from::read(&mut context, &copy, &table).await {
                Ok((segments, rows)) => {
                    let mut transaction = context.storage().begin();
                    let changed = transaction.add_segments(stream, segments).and_then(|()| {
                        transaction.take_files(stream, vec![(name, mark)], forgotten)
                    });
                    match changed {
                        Ok(()) => context.commit(transaction).await.map(|_| rows),
                        Err(error) => Err(error.into()),
                    }
                }
                Err(error) => Err(error),
            };
            if outcome.is_ok() {
                session.database_inner().has_grown(stream);
            }
            context.end(outcome).await
        };
        held.database().run(taken).await
    }
}

/// The files of the format in a directory.
fn list(path: &Path, kind: FileKind) -> Result<Found, Error> {
    let unreadable = |error: std::io::Error| Error::File {
        path: path.display().to_string(),
        line: None,
        message: format!("the directory cannot be read: {error}"),
    };
    let mut found = Found::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if name.starts_with('.') || FileKind::of_path(&name) != Some(kind) {
            continue;
        }
        // A file that was removed meanwhile is no new file.
        let Ok(metadata) = std::fs::metadata(entry.path()) else {
            continue;
        };
        if let (true, Ok(modified)) = (metadata.is_file(), metadata.modified()) {
            let mark = FileMark {
                bytes: metadata.len(),
                modified_ns: nanos_since_epoch(modified),
            };
            found.insert(name, mark);
        }
    }
    Ok(found)
}

/// Names that need not be kept: the oldest of too many that are not in the directory any more.
fn forgettable(taken: &BTreeMap<String, FileMark>, found: &Found) -> Vec<String> {
    let too_many = (taken.len() + 1).saturating_sub(NAMES);
    if too_many == 0 {
        return Vec::new();
    }
    let gone = taken.iter().filter(|(name, _)| !found.contains_key(*name));
    let mut gone: Vec<_> = gone.collect();
    gone.sort_by_key(|(_, mark)| mark.modified_ns);
    let oldest = gone.into_iter().take(too_many);
    oldest.map(|(name, _)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_names_of_too_many_are_forgotten_and_only_of_files_that_are_gone() {
        let mark = |n: usize| FileMark {
            bytes: 1,
            modified_ns: n as i64,
        };
        let taken: BTreeMap<String, FileMark> = (0..NAMES + 1)
            .map(|n| (format!("{n}.csv"), mark(n)))
            .collect();
        let found: Found = [("0.csv".to_owned(), mark(0))].into();
        assert_eq!(forgettable(&taken, &found), ["1.csv", "2.csv"]);
        assert_eq!(forgettable(&found, &found), Vec::<String>::new());
    }
}
