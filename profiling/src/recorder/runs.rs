//! What an operator did in several runs, added up: a recursive query runs its operators in each iteration.

use datafusion::common::hash_map::Entry;

use super::events::Events;
use super::streams::StreamRecord;
use crate::definition::SysRow;
use crate::tables::{OperatorMetric, OperatorStats, TaskStats};
use crate::timeline::RecordedTimeline;

/// Timelines of an operator's runs in one partition are added up when there are so many: a recursive query may
/// run it very often.
const RUNS_KEPT: usize = 32;

/// Adds the timeline of another run; the bytes that this takes in addition.
fn add_run(runs: &mut Vec<RecordedTimeline>, timeline: RecordedTimeline) -> usize {
    let bytes =
        |runs: &[RecordedTimeline]| -> usize { runs.iter().map(RecordedTimeline::memory).sum() };
    let before = bytes(runs);
    runs.push(timeline);
    if runs.len() >= RUNS_KEPT {
        *runs = RecordedTimeline::sum(runs).into_iter().collect();
    }
    bytes(runs).saturating_sub(before)
}

impl Events {
    /// Adds what an operator did in a partition to what it did there before, if it ran several times; the bytes
    /// that this takes in addition.
    pub(super) fn add_stream(&mut self, stream: StreamRecord) -> usize {
        let StreamRecord {
            stats,
            timeline,
            task,
        } = stream;
        let more = task.map_or(0, |task| self.add_task(task));
        let task = (stats.fragment_id, stats.operator_id, stats.partition);
        let bytes = match self.tasks.entry(task) {
            Entry::Vacant(new) => {
                new.insert(self.operator_stats.len());
                self.operator_stats.push(stats);
                let bytes = timeline.as_ref().map_or(0, RecordedTimeline::memory);
                self.timelines.push(timeline.into_iter().collect());
                bytes + size_of::<OperatorStats>() + size_of::<((i64, i64, i64), usize)>()
            }
            Entry::Occupied(known) => {
                let place = *known.get();
                self.operator_stats[place].add(&stats);
                let runs = &mut self.timelines[place];
                match timeline {
                    Some(timeline) => add_run(runs, timeline),
                    None => 0,
                }
            }
        };
        bytes + more
    }

    /// Adds what a task did; the bytes that this takes in addition.
    fn add_task(&mut self, task: TaskStats) -> usize {
        match self.task_places.entry((task.fragment_id, task.partition)) {
            Entry::Vacant(new) => {
                new.insert(self.task_stats.len());
                self.task_stats.push(task);
                size_of::<TaskStats>() + size_of::<((i64, i64), usize)>()
            }
            Entry::Occupied(known) => {
                self.task_stats[*known.get()].add(&task);
                0
            }
        }
    }

    /// Adds what an operator counted itself; the bytes that this takes in addition.
    pub(super) fn add_metric(&mut self, metric: OperatorMetric, sum: fn(i64, i64) -> i64) -> usize {
        let place = (metric.operator_id, metric.partition, metric.metric.clone());
        match self.metric_places.entry(place) {
            Entry::Vacant(new) => {
                new.insert(self.operator_metrics.len());
                let bytes = size_of::<OperatorMetric>() + 2 * metric.text_bytes();
                self.operator_metrics.push(metric);
                bytes + size_of::<((i64, Option<i64>, String), usize)>()
            }
            Entry::Occupied(known) => {
                let value = &mut self.operator_metrics[*known.get()].value;
                *value = sum(*value, metric.value);
                0
            }
        }
    }

    /// Adds up what operators did in several runs.
    pub(super) fn add_up(&mut self) {
        for runs in self.timelines.iter_mut().filter(|runs| runs.len() > 1) {
            *runs = RecordedTimeline::sum(runs).into_iter().collect();
        }
    }
}
