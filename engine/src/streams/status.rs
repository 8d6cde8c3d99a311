//! What is known of streams and continuous queries in this process, and not stored.

use std::collections::HashMap;

use parking_lot::Mutex;

/// What became of a stream's source or of a continuous query since the database was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// What is wrong now; `None` after success.
    pub(crate) error: Option<String>,
    /// Where a source listens.
    pub(crate) address: Option<String>,
    /// Rows that a source has made durable.
    pub(crate) rows: i64,
    /// Lines that a source left out since they are no rows.
    pub(crate) rejected: i64,
    /// Whether a source has come to its end.
    pub(crate) is_ended: bool,
}

/// The statuses, by ids of streams and continuous queries.
#[derive(Debug, Default)]
pub(crate) struct Statuses(Mutex<HashMap<u64, Status>>);

impl Statuses {
    pub(crate) fn get(&self, id: u64) -> Status {
        self.0.lock().get(&id).cloned().unwrap_or_default()
    }

    pub(crate) fn change(&self, id: u64, change: impl FnOnce(&mut Status)) {
        change(self.0.lock().entry(id).or_default());
    }

    /// Says what is wrong, or that nothing is.
    pub(crate) fn set_error(&self, id: u64, error: Option<String>) {
        self.change(id, |status| status.error = error);
    }

    pub(super) fn forget(&self, id: u64) {
        self.0.lock().remove(&id);
    }
}
