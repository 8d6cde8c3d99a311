//! The memory of operators, and what they spill, by their own metrics.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::metrics::{MetricValue, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use parking_lot::Mutex;
use skewer_profiling::Recorder;

use crate::call_stack::Position;

/// Whether metrics of an operator may tell of memory or of what was spilled. Scans have neither, and keep
/// all metrics of a recursive query's iterations: to read them at the end of each would take longer and
/// longer.
fn tells_memory(plan: &dyn ExecutionPlan) -> bool {
    !plan.children().is_empty()
        && !plan.is::<CoalescePartitionsExec>()
        && !plan.is::<ProjectionExec>()
        && !plan.is::<FilterExec>()
}

/// The streams of an operator that tells its memory. It tells that of all partitions at once, which
/// takes longer than anything else at the end of a stream: it is asked when none is open any more.
#[derive(Debug, Default)]
pub(crate) struct Streams(Mutex<OfStreams>);

#[derive(Debug, Default)]
struct OfStreams {
    open: usize,
    /// The partitions of those that were closed since it was asked, each with its number in its own
    /// task.
    closed: Vec<(i64, i64)>,
}

/// A stream of an operator that tells its memory.
pub(crate) struct OpenMemory {
    plan: Arc<dyn ExecutionPlan>,
    streams: Arc<Streams>,
}

impl Streams {
    /// One of `plan` has been opened.
    pub(crate) fn opened(this: &Arc<Self>, plan: &Arc<dyn ExecutionPlan>) -> Option<OpenMemory> {
        if !tells_memory(plan.as_ref()) {
            return None;
        }
        this.0.lock().open += 1;
        Some(OpenMemory {
            plan: Arc::clone(plan),
            streams: Arc::clone(this),
        })
    }
}

impl OpenMemory {
    /// The stream, whose partition has this number in its own task, is closed.
    pub(crate) fn closed(&self, own_partition: i64, position: Position, recorder: &Recorder) {
        let mut streams = self.streams.0.lock();
        streams.closed.push((position.partition, own_partition));
        streams.open -= 1;
        if streams.open > 0 {
            return;
        }
        let closed = std::mem::take(&mut streams.closed);
        drop(streams);
        let Some(metrics) = self.plan.metrics() else {
            return;
        };
        for (partition, own_partition) in closed {
            let (peak_bytes, spilled_bytes) = memory_and_spill(&metrics, own_partition);
            if peak_bytes > 0 || spilled_bytes > 0 {
                let place = (position.fragment_id, position.operator_id, partition);
                recorder.operator_memory(place, peak_bytes, spilled_bytes);
            }
        }
    }
}

/// Peak memory and spilled bytes that an operator's own metrics tell of one partition.
fn memory_and_spill(metrics: &MetricsSet, partition: i64) -> (i64, i64) {
    let (mut memory, mut spilled) = (0, 0);
    for metric in metrics.iter() {
        // Metrics without a partition are the whole operator's: told once, by partition 0.
        if metric.partition().map_or(0, |p| p as i64) != partition {
            continue;
        }
        match metric.value() {
            MetricValue::SpilledBytes(count) => spilled += count.value() as i64,
            MetricValue::PeakMemoryUsage { gauge, .. } => memory += gauge.value() as i64,
            MetricValue::Gauge { name, gauge } if name.contains("mem") => {
                memory += gauge.value() as i64;
            }
            _ => {}
        }
    }
    (memory, spilled)
}
