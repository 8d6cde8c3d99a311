//! Operators that write, as bytes.

use std::sync::Arc;

use datafusion::common::{Result, internal_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use serde::{Deserialize, Serialize};

use super::apply::ApplyChangesExec;
use super::destination::SegmentDestination;
use super::ingest::EntryExec;
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
        /// The columns that get new values.
        updated: Option<Vec<usize>>,
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
    let apply = plan.downcast_ref::<ApplyChangesExec>();
    Ok(apply.map(|apply| EncodedWrite::Apply {
        updated: apply.updated().map(<[usize]>::to_vec),
    }))
}

/// The operator on these inputs.
pub(crate) fn decode(
    encoded: EncodedWrite,
    inputs: &[Arc<dyn ExecutionPlan>],
    context: &TaskContext,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let EncodedWrite::Entry { number } = encoded {
        let place = SegmentDestination::of_session(context.session_config())?;
        let schema = place.entering_schema(number)?;
        return Ok(Arc::new(EntryExec::new(number, schema)));
    }
    if let EncodedWrite::Apply { updated } = encoded {
        let [input, changes] = inputs else {
            return internal_err!("ApplyChangesExec has two inputs, not {}", inputs.len());
        };
        let (input, changes) = (Arc::clone(input), Arc::clone(changes));
        return Ok(Arc::new(ApplyChangesExec::new(input, changes, updated)));
    }
    let [input] = inputs else {
        return internal_err!("operators that write have one input, not {}", inputs.len());
    };
    let input = Arc::clone(input);
    Ok(match encoded {
        EncodedWrite::Route {
            target,
            has_ids,
            partitions,
        } => Arc::new(RouteExec::new(input, Arc::new(target), has_ids, partitions)),
        EncodedWrite::Segments { target, have } => {
            Arc::new(WriteSegmentsExec::new(input, Arc::new(target), have))
        }
        EncodedWrite::Entry { .. } | EncodedWrite::Apply { .. } => {
            return internal_err!("it does not have one input");
        }
    })
}
