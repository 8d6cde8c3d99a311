//! What operators count themselves: their memory, what they spill, and other metrics.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::metrics::{MetricValue, MetricsSet};
use datafusion::physical_plan::projection::ProjectionExec;
use parking_lot::Mutex;
use skewer_profiling::{OperatorMetric, Recorder};

use crate::call_stack::Position;

/// Whether metrics of an operator may tell more than `sys.operator_stats` does without them.
fn tells_metrics(plan: &dyn ExecutionPlan) -> bool {
    !plan.is::<CoalescePartitionsExec>() && !plan.is::<ProjectionExec>() && !plan.is::<FilterExec>()
}

/// Whether they may tell of memory or of what was spilled.
fn tells_memory(plan: &dyn ExecutionPlan) -> bool {
    !plan.children().is_empty()
}

/// Scans keep all metrics of a recursive query's iterations: to read them at the end of each would take longer
/// and longer. After so many runs they are read whenever there have been twice as many.
const RUNS_OF_SCANS: u64 = 8;

/// The streams of an operator that tells its metrics. It tells those of all partitions at once, which
/// takes longer than anything else at the end of a stream: it is asked when none is open any more.
#[derive(Debug, Default)]
pub(crate) struct Streams(Mutex<OfStreams>);

#[derive(Debug, Default)]
struct OfStreams {
    open: usize,
    /// The partitions of those that were closed since it was asked, each with its number in its own
    /// task.
    closed: Vec<(i64, i64)>,
    /// How often the last one was closed.
    runs: u64,
    /// What it told before: the metrics of an operator go on when it runs again.
    told: HashMap<(Option<i64>, String), i64>,
}

/// A stream of an operator that tells its metrics.
pub(crate) struct OpenMetrics {
    plan: Arc<dyn ExecutionPlan>,
    streams: Arc<Streams>,
}

impl Streams {
    /// One of `plan` has been opened.
    pub(crate) fn opened(this: &Arc<Self>, plan: &Arc<dyn ExecutionPlan>) -> Option<OpenMetrics> {
        if !tells_metrics(plan.as_ref()) {
            return None;
        }
        this.0.lock().open += 1;
        Some(OpenMetrics {
            plan: Arc::clone(plan),
            streams: Arc::clone(this),
        })
    }
}

impl OpenMetrics {
    /// The stream, whose partition has this number in its own task, is closed.
    pub(crate) fn closed(&self, own_partition: i64, position: Position, recorder: &Recorder) {
        let mut streams = self.streams.0.lock();
        streams.closed.push((position.partition, own_partition));
        streams.open -= 1;
        if streams.open > 0 {
            return;
        }
        let closed = std::mem::take(&mut streams.closed);
        streams.runs += 1;
        let tells_memory = tells_memory(self.plan.as_ref());
        if !tells_memory && streams.runs > RUNS_OF_SCANS && !streams.runs.is_power_of_two() {
            return;
        }
        let Some(metrics) = self.plan.metrics() else {
            return;
        };
        // Partitions are numbered over all tasks.
        let before = position.partition - own_partition;
        self.hand_over(&mut streams, &metrics, before, position, recorder);
        drop(streams);
        if !tells_memory {
            return;
        }
        for (partition, own_partition) in closed {
            let (peak_bytes, spilled_bytes) = memory_and_spill(&metrics, own_partition);
            if peak_bytes > 0 || spilled_bytes > 0 {
                let place = (position.fragment_id, position.operator_id, partition);
                recorder.operator_memory(place, peak_bytes, spilled_bytes);
            }
        }
    }

    /// Hands over what was not told before.
    fn hand_over(
        &self,
        streams: &mut OfStreams,
        metrics: &MetricsSet,
        before: i64,
        position: Position,
        recorder: &Recorder,
    ) {
        let mut now: HashMap<(Option<i64>, String, Sum), i64> = HashMap::new();
        for metric in metrics.iter() {
            let partition = metric
                .partition()
                .map(|partition| before + partition as i64);
            for (name, value, sum) in values(metric.value()) {
                let value = i64::try_from(value).unwrap_or(i64::MAX);
                let known = now.entry((partition, name, sum)).or_default();
                *known = known.saturating_add(value);
            }
        }
        for sum in [Sum::All, Sum::Most] {
            let mut rows = Vec::new();
            for ((partition, name, _), value) in now.iter().filter(|((.., kind), _)| *kind == sum) {
                let told = streams.told.entry((*partition, name.clone())).or_default();
                let more = match sum {
                    Sum::All => *value - *told,
                    Sum::Most => *value,
                };
                *told = *value;
                if more > 0 {
                    rows.push(OperatorMetric {
                        operator_id: position.operator_id,
                        partition: *partition,
                        metric: name.clone(),
                        value: more,
                    });
                }
            }
            match sum {
                Sum::All => recorder.operator_metrics(rows, i64::saturating_add),
                Sum::Most => recorder.operator_metrics(rows, i64::max),
            }
        }
    }
}

/// What several runs of an operator come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Sum {
    /// The sum of all.
    All,
    /// The most of any.
    Most,
}

/// The numbers of a metric, each with its name; none if `sys.operator_stats` has it.
fn values(metric: &MetricValue) -> Vec<(String, usize, Sum)> {
    let all = |name: &str, value: usize| vec![(name.to_owned(), value, Sum::All)];
    let most = |name: &str, value: usize| vec![(name.to_owned(), value, Sum::Most)];
    match metric {
        MetricValue::SpillCount(count) | MetricValue::SpilledRows(count) => {
            all(metric.name(), count.value())
        }
        MetricValue::Count { name, count } => all(name, count.value()),
        MetricValue::Gauge { name, gauge } | MetricValue::PeakMemoryUsage { name, gauge } => {
            most(name, gauge.value())
        }
        MetricValue::Time { name, time } => all(&format!("{name}_ns"), time.value()),
        MetricValue::PruningMetrics {
            name,
            pruning_metrics,
        } => vec![
            (format!("{name}_pruned"), pruning_metrics.pruned(), Sum::All),
            (
                format!("{name}_matched"),
                pruning_metrics.matched(),
                Sum::All,
            ),
        ],
        MetricValue::Ratio {
            name,
            ratio_metrics,
        } => vec![
            (format!("{name}_part"), ratio_metrics.part(), Sum::All),
            (format!("{name}_total"), ratio_metrics.total(), Sum::All),
        ],
        MetricValue::OutputRows(_)
        | MetricValue::OutputBytes(_)
        | MetricValue::OutputBatches(_)
        | MetricValue::ElapsedCompute(_)
        | MetricValue::SpilledBytes(_)
        | MetricValue::CurrentMemoryUsage(_)
        | MetricValue::StartTimestamp(_)
        | MetricValue::EndTimestamp(_)
        | MetricValue::Custom { .. } => Vec::new(),
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
