//! Statements that rewrite rows of one table take turns.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use skewer_storage::TableId;

/// Statements that rewrite rows of a table take turns; appending needs no turn.
#[derive(Debug, Clone, Default)]
pub(crate) struct TableLocks {
    locks: Arc<Mutex<HashMap<TableId, Arc<tokio::sync::Mutex<()>>>>>,
}

impl TableLocks {
    /// The table's turn, until the result is dropped.
    pub(crate) async fn take(&self, table: TableId) -> tokio::sync::OwnedMutexGuard<()> {
        let lock = Arc::clone(self.locks.lock().entry(table).or_default());
        lock.lock_owned().await
    }
}
