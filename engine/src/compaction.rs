//! Small segments merged in the background.

use std::collections::HashSet;
use std::time::Duration;

use skewer_storage::{Storage, TableId};
use tokio::sync::mpsc;

use crate::database::TableLocks;

/// After an insert its table rests for so long: a burst of small inserts is merged once.
const REST: Duration = Duration::from_millis(500);

/// Merges small segments of the tables that arrive, until nobody can send any.
pub(crate) async fn run(
    storage: Storage,
    writers: TableLocks,
    mut tables: mpsc::UnboundedReceiver<TableId>,
) {
    while let Some(first) = tables.recv().await {
        let mut due = HashSet::from([first]);
        tokio::time::sleep(REST).await;
        while let Ok(table) = tables.try_recv() {
            due.insert(table);
        }
        for table in due {
            let _turn = writers.take(table).await;
            if let Err(error) = storage.compact(table).await {
                // Nothing is lost: the segments stay as they are.
                tracing::warn!("table {table:?} could not be compacted: {error}");
            }
        }
    }
}
