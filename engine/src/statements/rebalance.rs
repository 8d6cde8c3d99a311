//! REBALANCE: rows to the workers that are there now.
//!
//! A table that is divided by hash is divided anew among all workers; of another, as many rows go
//! from those that have more than their share to those that have less. What the master has goes to
//! workers. Segments go in batches, each in a transaction of its own: whoever reads meanwhile has
//! the table of before or after it.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{Ident, ObjectName};
use skewer_storage::{MASTER, Partitioning, SegmentMeta, Shard, TableMeta};

use super::on_workers::{Division, OnWorkers, writers_among};
use super::{Context, Outcome};
use crate::error::Error;

/// What moves in one transaction: until it is over, the disks have its rows twice.
const BATCH_BYTES: u64 = 1 << 30;

/// Whoever is this near to its share of a table keeps what it has: rows, and a part of the share.
const NEAR_ROWS: u64 = 1 << 13;
const NEAR_PART: u64 = 10;

/// How often a table is looked at again that others have changed while its rows were moved.
const ATTEMPTS: usize = 10;

/// Spreads `names`, or all tables, over the workers.
pub(crate) async fn execute(
    context: &mut Context,
    names: Vec<ObjectName>,
) -> Result<Outcome, Error> {
    let is_cluster = |workers: skewer_cluster::Workers| !workers.shares_segments();
    if !context.workers(true).is_some_and(is_cluster) {
        return Err(Error::Unsupported(
            "REBALANCE without workers that have segments of their own".to_owned(),
        ));
    }
    context.record.planned();
    let all = names.is_empty();
    let names = match all {
        true => all_tables(context),
        false => names,
    };
    let mut report = Report::default();
    for name in names {
        rebalance(context, &name, all, &mut report).await?;
    }
    Ok(Outcome::Batch(report.batch()?))
}

fn all_tables(context: &Context) -> Vec<ObjectName> {
    let snapshot = context.catalog.snapshot();
    let schemas = snapshot.schemas();
    let tables = schemas.iter().flat_map(|schema| snapshot.tables(schema));
    let quoted = |name: &str| Ident::with_quote('"', name);
    tables
        .map(|table| ObjectName::from(vec![quoted(&table.schema_name), quoted(&table.name)]))
        .collect()
}

/// Spreads one table, which may be gone if it `was_there`: when the statement began, or before.
async fn rebalance(
    context: &mut Context,
    name: &ObjectName,
    mut was_there: bool,
    report: &mut Report,
) -> Result<(), Error> {
    let mut before = None;
    let mut conflicts = 0;
    loop {
        let locked = match context.lock(name).await {
            Err(Error::UnknownTable { .. } | Error::UnknownSchema { .. }) if was_there => {
                return Ok(());
            }
            locked => locked?,
        };
        was_there = true;
        let table = &locked.table;
        let rows = rows_by_owner(table);
        let before = before.get_or_insert_with(|| rows.clone());
        let lost = rows
            .keys()
            .filter(|owner| **owner != MASTER)
            .find_map(|owner| {
                let lost = context.session.database_inner().lost(*owner)?;
                Some(format!("{}: {}", lost.name, lost.reason))
            });
        if let Some(lost) = lost {
            report.add(table, before, &rows, Some(lost));
            return Ok(());
        }
        let workers = context.workers(true);
        let present = workers.as_ref().map(writers_among).unwrap_or_default();
        let Some(step) = next_step(table, &present) else {
            report.add(table, before, &rows, None);
            return Ok(());
        };
        let begun = OnWorkers::begin(context.storage(), table, workers, step.division)?;
        let Some(on) = begun else {
            return Err(Error::Unsupported("REBALANCE without workers".to_owned()));
        };
        let removed: Vec<u64> = step.segments.iter().map(|segment| segment.id).collect();
        let added = context
            .rewrite_on(on, table, step.segments, None, true)
            .await?;
        let mut transaction = context.storage().begin();
        let replaced = transaction.replace_segments(table.id, &removed, added);
        let published = match replaced {
            Ok(()) => context.commit(transaction).await.map(|_| ()),
            Err(error) => Err(error.into()),
        };
        match published {
            Ok(()) => {}
            // Others have changed it meanwhile, or dropped it.
            Err(Error::Conflict(_) | Error::UnknownTable { .. }) if conflicts < ATTEMPTS => {
                conflicts += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Segments that are written anew together, and who gets their rows.
#[derive(Debug)]
struct Step {
    segments: Vec<Arc<SegmentMeta>>,
    division: Division,
}

/// What brings `table` nearer to where it should be; `None` if it is there.
fn next_step(table: &TableMeta, present: &[u32]) -> Option<Step> {
    match &table.partitioning {
        Partitioning::Hash(_) => by_hash(table, present),
        Partitioning::RoundRobin => by_rows(table, present),
    }
}

fn by_hash(table: &TableMeta, present: &[u32]) -> Option<Step> {
    let of = present.len() as u32;
    let is_placed = |segment: &Arc<SegmentMeta>| match segment.shard {
        Some(Shard { index, of: among }) => {
            among == of && present.get(index as usize) == Some(&segment.owner)
        }
        None => false,
    };
    let misplaced = table.segments.iter().filter(|s| !is_placed(s)).cloned();
    let segments = up_to_a_batch(misplaced);
    (!segments.is_empty()).then_some(Step {
        segments,
        division: Division::Anew,
    })
}

fn by_rows(table: &TableMeta, present: &[u32]) -> Option<Step> {
    let rows = rows_by_owner(table);
    let total: u64 = rows.values().sum();
    let workers = present.len() as u64;
    if workers == 0 {
        return None;
    }
    let share = total / workers;
    let near = (share / NEAR_PART).max(NEAR_ROWS);
    let has = |owner: u32| rows.get(&owner).copied().unwrap_or(0);
    let lacks = |worker: &u32| share.saturating_sub(has(*worker));
    let lacking = present.iter().map(lacks).max().unwrap_or(0);
    let (giver, excess) = giver(&rows, share, near, lacking)?;
    let mut candidates: Vec<_> = table.segments.iter().filter(|s| s.owner == giver).collect();
    candidates.sort_by_key(|segment| std::cmp::Reverse(segment.rows));
    let mut left = excess;
    let (mut whole, mut larger) = (Vec::new(), Vec::new());
    for segment in candidates {
        if segment.rows <= left {
            left -= segment.rows;
            whole.push(Arc::clone(segment));
        } else {
            larger.push(Arc::clone(segment));
        }
    }
    let fitting = whole.len();
    let mut segments = up_to_a_batch(whole.into_iter());
    if segments.len() == fitting && (left > near || segments.is_empty()) {
        // One is divided; what is left of it comes back.
        segments.extend(larger.pop());
    }
    let mut to_give = segments.iter().map(|s| s.rows).sum::<u64>().min(excess);
    let mut takers: Vec<u32> = present.iter().copied().filter(|w| *w != giver).collect();
    takers.sort_by_key(|worker| has(*worker));
    let mut quotas = Vec::new();
    for worker in takers {
        let quota = share.saturating_sub(has(worker)).min(to_give);
        if quota > 0 {
            quotas.push((worker, quota));
            to_give -= quota;
        }
    }
    match (giver, quotas.last_mut()) {
        // What the division of rows by workers leaves over.
        (MASTER, Some((_, last))) => *last += to_give,
        (MASTER, None) => quotas.push((*present.first()?, to_give)),
        // What it has more than it gives, and that.
        _ => quotas.push((giver, 0)),
    }
    (!segments.is_empty()).then_some(Step {
        segments,
        division: Division::Quotas(quotas),
    })
}

/// Who gives rows, and how many: the master all that it has, then whoever has most, as long as that
/// is far above the share or somebody is far below it, `lacking` so many.
fn giver(rows: &BTreeMap<u32, u64>, share: u64, near: u64, lacking: u64) -> Option<(u32, u64)> {
    if let Some(rows) = rows.get(&MASTER).filter(|rows| **rows > 0) {
        return Some((MASTER, *rows));
    }
    let (giver, rows) = rows.iter().max_by_key(|(_, rows)| **rows)?;
    let excess = rows.saturating_sub(share);
    (excess > near || (lacking > near && excess > 0)).then_some((*giver, excess))
}

/// The first of `segments`, as many as are moved at once.
fn up_to_a_batch(segments: impl Iterator<Item = Arc<SegmentMeta>>) -> Vec<Arc<SegmentMeta>> {
    let mut bytes = 0;
    segments
        .take_while(|segment| {
            let is_first = bytes == 0;
            bytes += segment.bytes;
            is_first || bytes <= BATCH_BYTES
        })
        .collect()
}

fn rows_by_owner(table: &TableMeta) -> BTreeMap<u32, u64> {
    let mut rows = BTreeMap::new();
    for segment in &table.segments {
        *rows.entry(segment.owner).or_default() += segment.rows;
    }
    rows
}

/// The columns of its result.
pub(crate) fn columns() -> SchemaRef {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    Arc::new(Schema::new(vec![
        field("table_name", DataType::Utf8),
        field("worker_id", DataType::Int64),
        field("rows_before", DataType::Int64),
        field("rows_after", DataType::Int64),
        field("note", DataType::Utf8),
    ]))
}

/// What was moved: a row for each table and node whose rows are others than before, and one for
/// each table that could not be moved.
#[derive(Debug, Default)]
struct Report {
    tables: Vec<String>,
    nodes: Vec<Option<i64>>,
    before: Vec<Option<i64>>,
    after: Vec<Option<i64>>,
    notes: Vec<Option<String>>,
}

impl Report {
    fn add(
        &mut self,
        table: &TableMeta,
        before: &BTreeMap<u32, u64>,
        after: &BTreeMap<u32, u64>,
        lost: Option<String>,
    ) {
        let nodes: std::collections::BTreeSet<u32> =
            before.keys().chain(after.keys()).copied().collect();
        for node in nodes {
            let rows = |of: &BTreeMap<u32, u64>| of.get(&node).copied().unwrap_or(0);
            if rows(before) != rows(after) {
                self.row(table, Some((node, rows(before), rows(after))), None);
            }
        }
        if let Some(lost) = lost {
            self.row(table, None, Some(format!("not moved: {lost}")));
        }
    }

    fn row(&mut self, table: &TableMeta, moved: Option<(u32, u64, u64)>, note: Option<String>) {
        self.tables.push(table.qualified_name());
        self.nodes.push(moved.map(|(node, ..)| i64::from(node)));
        let rows = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.before.push(moved.map(|(_, before, _)| rows(before)));
        self.after.push(moved.map(|(_, _, after)| rows(after)));
        self.notes.push(note);
    }

    fn batch(self) -> Result<RecordBatch, Error> {
        let numbers = |of: Vec<Option<i64>>| Arc::new(Int64Array::from(of)) as ArrayRef;
        let columns = vec![
            Arc::new(StringArray::from(self.tables)) as ArrayRef,
            numbers(self.nodes),
            numbers(self.before),
            numbers(self.after),
            Arc::new(StringArray::from(self.notes)),
        ];
        Ok(RecordBatch::try_new(self::columns(), columns)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_master_gives_all_that_it_has_also_where_workers_have_about_their_share() {
        let gives =
            |rows: &[(u32, u64)]| giver(&rows.iter().copied().collect(), 2_550, NEAR_ROWS, 2_550);
        assert_eq!(
            gives(&[(MASTER, 100), (1, 5_000), (2, 0)]),
            Some((MASTER, 100))
        );
        assert_eq!(gives(&[(MASTER, 0), (1, 5_000), (2, 100)]), None);
        assert_eq!(gives(&[(1, 50_000), (2, 60_000)]), Some((2, 57_450)));
        assert_eq!(gives(&[]), None);
    }

    #[test]
    fn workers_that_have_a_little_too_much_give_to_one_that_has_far_too_little() {
        let rows = [(1, 37_500), (2, 37_501), (3, 37_500), (4, 17_656)];
        let rows: BTreeMap<u32, u64> = rows.into_iter().collect();
        assert_eq!(giver(&rows, 32_539, NEAR_ROWS, 14_883), Some((2, 4_962)));
        assert_eq!(giver(&rows, 32_539, NEAR_ROWS, 5_000), None);
    }
}
