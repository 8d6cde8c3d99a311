//! What a worker answers when it is asked for its part of schema `sys`: pages of rows, as they
//! are stored.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::array::{AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::Int64Type;

use crate::query_ids::QueryIds;
use crate::remote::{PartAnswer, PartRequest, RemoteSysError};
use crate::store::{Snapshot, Store};
use crate::tables::Table;

/// A page is full when its batches have so many bytes: well below what a call may carry.
const PAGE_BYTES: usize = 4 << 20;

/// A reading that nobody goes on with is given up after this time.
const ABANDONED: Duration = Duration::from_secs(60);

/// Readings that may be open at once: each keeps the files open that it reads.
const OPEN: usize = 64;

/// Readings that have more pages.
#[derive(Debug, Default)]
pub(crate) struct PartPages {
    open: HashMap<u64, Reading>,
    /// Number of the last one.
    last: u64,
}

/// Rows of a table that are being read.
struct Reading {
    batches: Box<dyn Iterator<Item = RecordBatch> + Send>,
    used: Instant,
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("used", &self.used).finish()
    }
}

impl PartPages {
    fn add(&mut self, mut reading: Reading) -> u64 {
        let now = Instant::now();
        self.open
            .retain(|_, reading| now - reading.used < ABANDONED);
        if self.open.len() >= OPEN {
            let oldest = self.open.iter().min_by_key(|(_, reading)| reading.used);
            if let Some(oldest) = oldest.map(|(number, _)| *number) {
                self.open.remove(&oldest);
            }
        }
        reading.used = now;
        self.last += 1;
        self.open.insert(self.last, reading);
        self.last
    }
}

/// Answers a [`PartRequest`].
///
/// # Errors
/// If the request is none, or is about a reading that is gone.
pub(crate) fn answer(store: &Arc<Store>, request: &[u8]) -> Result<Vec<u8>, RemoteSysError> {
    let mut reading = match postcard::from_bytes(request)? {
        PartRequest::First { table, ids } => {
            let Some(table) = Table::by_name(&table) else {
                return Err(RemoteSysError::Table(table));
            };
            Reading {
                batches: Box::new(stored(store, table, ids)),
                used: Instant::now(),
            }
        }
        PartRequest::Next(number) => {
            let open = store.readings().open.remove(&number);
            open.ok_or(RemoteSysError::Gone)?
        }
    };
    let mut page = Vec::new();
    let mut bytes = 0;
    let mut more = None;
    for batch in reading.batches.by_ref() {
        bytes += batch.get_array_memory_size();
        page.push(batch);
        if bytes >= PAGE_BYTES {
            more = Some(());
            break;
        }
    }
    let more = more.map(|()| store.readings().add(reading));
    let answer = PartAnswer::new(more, &page)?;
    Ok(postcard::to_stdvec(&answer)?)
}

/// Rows of a table that belong to some queries, as files have them. What is damaged is left out
/// with a warning.
fn stored(
    store: &Arc<Store>,
    table: Table,
    ids: QueryIds,
) -> impl Iterator<Item = RecordBatch> + Send + use<> {
    let Snapshot { buffered, parts } = store.snapshot();
    let mut groups = Vec::new();
    for part in parts {
        let Some(segment) = part.segment(table, &ids) else {
            continue;
        };
        match segment.row_groups(&ids) {
            Ok(wanted) => {
                groups.extend(
                    wanted
                        .into_iter()
                        .map(|(group, _)| (Arc::clone(&part), group)),
                );
            }
            Err(error) => store.warn(format!("skipped {error}")),
        }
    }
    let store = Arc::clone(store);
    let written = groups.into_iter().flat_map(move |(part, group)| {
        let segment = part.segment(table, &QueryIds::ALL);
        let stored = segment.map(|segment| segment.read_stored(group, None));
        let stored = stored.and_then(|stored| {
            let stored = stored.inspect_err(|error| store.warn(format!("skipped {error}")));
            stored.ok()
        });
        let store = Arc::clone(&store);
        stored.into_iter().flatten().map_while(move |batch| {
            let batch =
                batch.inspect_err(|error| store.warn(format!("skipped the rest of {error}")));
            batch.ok()
        })
    });
    let of_logs = ids.clone();
    let buffered = buffered
        .into_iter()
        .filter(move |log| of_logs.contains(log.query_id()))
        .flat_map(move |log| {
            (0..log.stored_batches(table)).map(move |batch| log.stored(table, batch))
        });
    let batches = written.chain(buffered);
    batches.filter_map(move |batch| of_queries(&batch, &ids))
}

/// The rows, or chunks, of a batch that belong to some queries.
fn of_queries(batch: &RecordBatch, ids: &QueryIds) -> Option<RecordBatch> {
    let queries = batch.column(0).as_primitive::<Int64Type>();
    let wanted: BooleanArray = queries
        .values()
        .iter()
        .map(|id| Some(ids.contains(*id)))
        .collect();
    match wanted.true_count() {
        0 => None,
        all if all == batch.num_rows() => Some(batch.clone()),
        _ => filter_record_batch(batch, &wanted).ok(),
    }
}
