//! What there is to read, dealt out to partitions.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;

use super::Question;
use crate::chunk_codec;
use crate::part::Part;
use crate::query_log::QueryLog;
use crate::store::Store;
use crate::sys_table::now;
use crate::tables::Table;

/// Something to read, with its number of rows.
#[derive(Debug, Clone)]
pub(super) enum Unit {
    Buffered {
        log: Arc<QueryLog>,
        piece: usize,
    },
    Written {
        part: Arc<Part>,
        row_group: usize,
    },
    /// What a worker has sent, as it is stored.
    RemoteCache {
        batch: RecordBatch,
    },
}

/// What one partition of a scan reads.
#[derive(Debug, Clone, Default)]
pub(super) struct Share {
    pub(super) here: Vec<Unit>,
    /// All that these workers have, page by page.
    pub(super) workers: Vec<i64>,
}

/// What there is to read here, each with its number of rows, and what has been fetched.
pub(super) fn units(
    store: &Arc<Store>,
    question: &Question,
    fetched: Vec<RecordBatch>,
) -> Result<Vec<(Unit, usize)>> {
    let Question {
        table, ids, chunks, ..
    } = question;
    let snapshot = store.snapshot();
    let mut units: Vec<(Unit, usize)> = Vec::new();
    for part in &snapshot.parts {
        let Some(segment) = part.segment(*table, ids) else {
            continue;
        };
        let groups = segment.row_groups(ids).unwrap_or_else(|error| {
            store.warn(format!("skipped {error}"));
            Vec::new()
        });
        units.extend(groups.into_iter().map(|(row_group, rows)| {
            let part = Arc::clone(part);
            (Unit::Written { part, row_group }, rows)
        }));
    }
    for log in &snapshot.buffered {
        if ids.contains(log.query_id()) {
            let pieces = log.wanted(*table, chunks).into_iter();
            units.extend(pieces.map(|(piece, rows)| {
                let log = Arc::clone(log);
                (Unit::Buffered { log, piece }, rows)
            }));
        }
    }
    let packed = chunk_codec::schema(*table).is_some();
    units.extend(fetched.into_iter().map(|batch| {
        let rows = match packed {
            true => chunk_codec::records(&batch),
            false => batch.num_rows(),
        };
        (Unit::RemoteCache { batch }, rows)
    }));
    if let (Table::Workers, Some(cluster)) = (table, store.fetched()) {
        let batch = now(&cluster.workers())?;
        let rows = batch.num_rows();
        units.push((Unit::RemoteCache { batch }, rows));
    }
    Ok(units)
}

/// Deals units out to at most `partitions` consecutive shares of about equal rows; there is at
/// least one share.
pub(super) fn deal(units: Vec<(Unit, usize)>, partitions: usize) -> Vec<Share> {
    /// Below so many rows another partition is not worth its task.
    const ROWS: usize = 16 * 1024;
    let total: usize = units.iter().map(|(_, rows)| rows).sum();
    let shares = partitions.clamp(1, total / ROWS + 1);
    let per_share = total.div_ceil(shares).max(1);
    let mut dealt = vec![Share::default(); shares];
    let mut before = 0;
    for (unit, rows) in units {
        dealt[(before / per_share).min(shares - 1)].here.push(unit);
        before += rows;
    }
    dealt
}
