//! What the operators of a query did so far, while it runs.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::HashMap;
use datafusion::common::hash_map::Entry;

use super::{Recorder, UnfinishedStream};
use crate::definition::SysRow;
use crate::tables::{Operator, OperatorStats, RunningOperator};
use crate::ticks::Scale;

impl Recorder {
    /// Rows of `sys.running_operators`: what the operators of the query did so far, on all workers of this
    /// process.
    pub fn running_operators(&self) -> Vec<RecordBatch> {
        let operators = self.events.lock().operators.clone();
        let own = self.running_on_worker(&operators);
        let others = self.workers().into_iter();
        let others = others.map(|worker| worker.running_on_worker(&operators));
        std::iter::once(own).chain(others).collect()
    }

    fn running_on_worker(&self, operators: &[Operator]) -> RecordBatch {
        let known: HashMap<i64, &Operator> = operators
            .iter()
            .map(|operator| (operator.operator_id, operator))
            .collect();
        let unfinished: Vec<Arc<dyn UnfinishedStream>> =
            self.unfinished.lock().values().map(Arc::clone).collect();
        // The query's own scale is taken as late as possible: it gets better.
        let scale = Scale::now();
        let mut tasks: HashMap<(i64, i64, i64), (OperatorStats, bool)> = HashMap::new();
        let mut add = |stats: OperatorStats, has_ended: bool| {
            let task = (stats.fragment_id, stats.operator_id, stats.partition);
            match tasks.entry(task) {
                Entry::Vacant(new) => {
                    new.insert((stats, has_ended));
                }
                Entry::Occupied(mut known) => {
                    let (sum, all_have_ended) = known.get_mut();
                    sum.add(&stats);
                    *all_have_ended &= has_ended;
                }
            }
        };
        for stats in self.events.lock().operator_stats.iter().cloned() {
            add(stats, true);
        }
        for stream in unfinished {
            add(stream.stats_so_far(scale), false);
        }
        let mut rows: Vec<RunningOperator> = tasks
            .into_values()
            .map(|(stats, has_ended)| {
                let operator = known.get(&stats.operator_id).copied();
                RunningOperator::of_stats(&stats, operator, has_ended)
            })
            .collect();
        rows.sort_by_key(|row| (row.operator_id, row.partition));
        RunningOperator::batch(&self.origin(), &rows)
    }

    /// What each partition of the operators of this process returned so far: the operator, and a number of rows.
    pub fn rows_returned(&self) -> Vec<(i64, u64)> {
        let events = self.events.lock();
        let stats = events.operator_stats.iter();
        let rows = |rows| u64::try_from(rows).unwrap_or_default();
        stats
            .map(|stats| (stats.operator_id, rows(stats.rows_out)))
            .collect()
    }
}
