//! Commits that are written together.
//!
//! Writing the catalog waits for the disk, whatever is written. Statements that commit at the same
//! time queue up; whoever gets the catalog next writes all that is in the queue as one transaction
//! of redb ("group commit").

use std::sync::Arc;

use parking_lot::Mutex;

use crate::catalog_changes::{Change, Effects};
use crate::remote::Writer;
use crate::snapshot::Snapshot;
use crate::storage::{CatalogState, Garbage, Inner, Storage};
use crate::{Result, StorageError};

/// A commit that waits, and later its outcome.
#[derive(Debug)]
struct Commit {
    /// The version that its transaction began with.
    base: u64,
    changes: Vec<Change>,
    outcome: Mutex<Option<Result<Arc<Snapshot>>>>,
}

impl Commit {
    fn end(&self, outcome: Result<Arc<Snapshot>>) {
        *self.outcome.lock() = Some(outcome);
    }

    /// Applies the changes to `state`, or leaves it as it is.
    ///
    /// # Errors
    /// [`StorageError::Conflict`] if the changes do not fit what others committed meanwhile.
    fn apply(&self, state: &mut Snapshot, version: u64, effects: &mut Effects) -> Result<()> {
        let mut next = Snapshot::clone(state);
        let mut own = Effects::default();
        for change in &self.changes {
            next.apply(change, &mut own).map_err(|error| {
                if version == self.base {
                    error
                } else {
                    StorageError::Conflict {
                        detail: error.to_string(),
                    }
                }
            })?;
        }
        *state = next;
        effects.append(own);
        Ok(())
    }
}

/// Commits in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct CommitQueue(Mutex<Vec<Arc<Commit>>>);

impl Storage {
    /// Replays changes on the current state and publishes the result. The changes of a transaction
    /// that began with version `base` may have been written by other nodes, `writers`: these must
    /// still be there.
    pub(crate) fn commit(
        &self,
        writers: &[Writer],
        base: u64,
        changes: Vec<Change>,
    ) -> Result<Arc<Snapshot>> {
        let commit = Arc::new(Commit {
            base,
            changes,
            outcome: Mutex::default(),
        });
        if writers.is_empty() {
            return self.inner().enqueue(&commit);
        }
        let membership = self.inner().membership.read().clone();
        let membership = membership.ok_or_else(|| StorageError::Internal {
            detail: "segments of workers are published, and nobody knows the workers".to_owned(),
        })?;
        let mut committed = None;
        membership.while_present(writers, &mut || {
            committed = Some(self.inner().enqueue(&commit));
        })?;
        committed.ok_or_else(|| StorageError::Internal {
            detail: "all writers are there, and nothing was published".to_owned(),
        })?
    }
}

impl Inner {
    /// Waits for the catalog and writes the queue, unless somebody else has written this commit by
    /// then.
    fn enqueue(&self, commit: &Arc<Commit>) -> Result<Arc<Snapshot>> {
        self.waiting.0.lock().push(Arc::clone(commit));
        let mut state = self.catalog.lock();
        if commit.outcome.lock().is_none() {
            let group = std::mem::take(&mut *self.waiting.0.lock());
            let garbage = self.write_group(&mut state, group);
            // Dropping the last reference to a file removes it, which needs no lock.
            drop(state);
            drop(garbage);
        }
        let outcome = commit.outcome.lock().take();
        outcome.unwrap_or_else(|| {
            Err(StorageError::Internal {
                detail: "a commit has no outcome".to_owned(),
            })
        })
    }

    /// Writes commits in their order, each of which gets its outcome. Those that conflict with what
    /// is before them fail alone; an I/O error fails all.
    fn write_group(&self, state: &mut CatalogState, group: Vec<Arc<Commit>>) -> Option<Garbage> {
        if let Err(error) = self.resolve(state) {
            fail(&group, &error);
            return None;
        }
        let current = Arc::clone(&self.snapshot.read());
        let mut next = Snapshot::clone(&current);
        let mut effects = Effects::default();
        let mut written = Vec::with_capacity(group.len());
        for commit in group {
            let version = current.version + u64::from(!written.is_empty());
            match commit.apply(&mut next, version, &mut effects) {
                Ok(()) => written.push(commit),
                Err(error) => commit.end(Err(error)),
            }
        }
        if written.is_empty() {
            return None;
        }
        next.version += 1;
        let counters = self.counters();
        if let Err(error) = state.catalog.write(next.version, counters, &effects.rows) {
            tracing::warn!(%error, "commit failed, reading the catalog again");
            let found = state
                .catalog
                .reopen()
                .and_then(|()| state.catalog.version());
            match found {
                Ok(version) if version == next.version => {}
                Ok(_) => {
                    fail(&written, &error);
                    return None;
                }
                Err(_) => {
                    // Until it is known whether the catalog has them, the files must stay.
                    for segment in &effects.published {
                        segment.file.set_published(true);
                    }
                    state.unresolved = Some((next, effects));
                    fail(&written, &error);
                    return None;
                }
            }
        }
        let (snapshot, garbage) = self.install(next, effects);
        for commit in written {
            commit.end(Ok(Arc::clone(&snapshot)));
        }
        Some(garbage)
    }
}

fn fail(commits: &[Arc<Commit>], error: &StorageError) {
    for commit in commits {
        commit.end(Err(error.shared()));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use datafusion::arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    /// For what must happen, on a machine that is busy.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn create(storage: &Storage, name: &str) -> Result<Arc<Snapshot>> {
        let columns = Schema::new(vec![Field::new("a", DataType::Int64, true)]);
        let mut transaction = storage.begin();
        transaction.create_table("main", name, Arc::new(columns), false)?;
        transaction.commit()
    }

    #[test]
    fn commits_that_wait_are_written_together_and_conflict_alone() {
        let storage = Storage::in_memory().unwrap();
        let before = storage.snapshot().version;
        let catalog = storage.inner().catalog.lock();
        let names = ["a", "b", "b", "c"];
        let threads = names.map(|name| {
            let storage = storage.clone();
            thread::spawn(move || create(&storage, name).map(|snapshot| snapshot.version))
        });
        let begun = Instant::now();
        while storage.inner().waiting.0.lock().len() < names.len() {
            assert!(begun.elapsed() < PATIENCE, "commits do not queue up");
            thread::yield_now();
        }
        drop(catalog);
        let outcomes = threads.map(|thread| thread.join().unwrap());
        let versions: Vec<_> = outcomes.iter().filter_map(|o| o.as_ref().ok()).collect();
        assert_eq!(versions, [&(before + 1); 3]);
        let conflicts = outcomes.iter().filter(|outcome| {
            matches!(outcome, Err(StorageError::Conflict { detail }) if detail.contains("main.b"))
        });
        assert_eq!(conflicts.count(), 1);
        let snapshot = storage.snapshot();
        for name in ["a", "b", "c"] {
            assert!(snapshot.table("main", name).is_some(), "{name}");
        }
    }
}
