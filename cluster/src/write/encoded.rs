//! Operators that write, as bytes.

use std::io::Cursor;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::common::{Result, internal_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use serde::{Deserialize, Serialize};

use super::apply::{ApplyChangesExec, Changes};
use super::entry::EntryExec;
use super::place::SegmentPlace;
use super::route::RouteExec;
use super::segments::{RowsHave, WriteSegmentsExec};
use super::target::Target;

/// An operator without its inputs.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum EncodedWrite {
    /// [`EntryExec`].
    Entry { number: u64 },
    /// [`RouteExec`].
    Route {
        target: Target,
        has_ids: bool,
        partitions: usize,
    },
    /// [`WriteSegmentsExec`].
    Segments { target: Target, have: RowsHave },
    /// [`ApplyChangesExec`].
    Apply {
        /// Consecutive ids: the first of them, and how many there are. Deleted rows are often
        /// neighbours.
        ids: Vec<(i64, u64)>,
        /// The columns that get new values, and those, as an Arrow IPC stream.
        update: Option<(Vec<usize>, Vec<u8>)>,
    },
}

/// An operator in bytes; `None` if it is another.
pub(crate) fn encode(plan: &dyn ExecutionPlan) -> Result<Option<EncodedWrite>> {
    if let Some(entry) = plan.downcast_ref::<EntryExec>() {
        let number = entry.number();
        return Ok(Some(EncodedWrite::Entry { number }));
    }
    if let Some(route) = plan.downcast_ref::<RouteExec>() {
        let (target, has_ids, partitions) = route.parts();
        return Ok(Some(EncodedWrite::Route {
            target: Target::clone(target),
            has_ids,
            partitions,
        }));
    }
    if let Some(segments) = plan.downcast_ref::<WriteSegmentsExec>() {
        return Ok(Some(EncodedWrite::Segments {
            target: Target::clone(segments.target()),
            have: segments.have(),
        }));
    }
    let Some(apply) = plan.downcast_ref::<ApplyChangesExec>() else {
        return Ok(None);
    };
    let changes = apply.changes();
    let mut ids: Vec<(i64, u64)> = Vec::new();
    for id in changes.ids() {
        match ids.last_mut() {
            Some((first, count)) if *first + count.cast_signed() == *id => *count += 1,
            _ => ids.push((*id, 1)),
        }
    }
    let update = match &**changes {
        Changes::Delete(_) => None,
        Changes::Update { columns, .. } => {
            let places = columns.iter().map(|(place, _)| *place).collect();
            let arrays = columns.iter().map(|(_, values)| Arc::clone(values));
            Some((places, to_bytes(arrays.collect())?))
        }
    };
    Ok(Some(EncodedWrite::Apply { ids, update }))
}

/// The operator on these inputs.
pub(crate) fn decode(
    encoded: EncodedWrite,
    inputs: &[Arc<dyn ExecutionPlan>],
    context: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let EncodedWrite::Entry { number } = encoded {
        let place = SegmentPlace::of(context.session_config())?;
        let schema = place.entering_schema(number)?;
        return Ok(Arc::new(EntryExec::new(number, schema)));
    }
    let [input] = inputs else {
        return internal_err!("operators that write have one input, not {}", inputs.len());
    };
    let input = Arc::clone(input);
    Ok(match encoded {
        EncodedWrite::Entry { .. } => return internal_err!("EntryExec has no input"),
        EncodedWrite::Route {
            target,
            has_ids,
            partitions,
        } => Arc::new(RouteExec::new(input, Arc::new(target), has_ids, partitions)),
        EncodedWrite::Segments { target, have } => {
            Arc::new(WriteSegmentsExec::new(input, Arc::new(target), have))
        }
        EncodedWrite::Apply { ids, update } => {
            let ids: Vec<i64> = ids
                .into_iter()
                .flat_map(|(first, count)| first..first + count.cast_signed())
                .collect();
            let changes = match update {
                None => Changes::Delete(ids),
                Some((places, bytes)) => Changes::Update {
                    ids,
                    columns: places.into_iter().zip(from_bytes(bytes)?).collect(),
                },
            };
            Arc::new(ApplyChangesExec::new(input, Arc::new(changes)))
        }
    })
}

fn to_bytes(arrays: Vec<ArrayRef>) -> Result<Vec<u8>> {
    let fields = arrays
        .iter()
        .map(|array| Field::new("", array.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays)?;
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, &schema)?;
    writer.write(&batch)?;
    writer.finish()?;
    drop(writer);
    Ok(bytes)
}

fn from_bytes(bytes: Vec<u8>) -> Result<Vec<ArrayRef>> {
    let mut reader = StreamReader::try_new(Cursor::new(bytes), None)?;
    match reader.next().transpose()? {
        Some(batch) => Ok(batch.columns().to_vec()),
        None => internal_err!("new values without a batch"),
    }
}
