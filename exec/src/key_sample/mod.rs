//! Which keys an exchange hashes most, or most rows of a join's input have, from a [sample] of the rows.

mod sample;

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::JoinType;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::joins::{HashJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use skewer_profiling::{KeyFrequency, Recorder};

use self::sample::Sample;
use crate::routes::{RouteRowsExec, SpreadKeys};

/// Of what keys are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampled {
    /// The exchange or the join, by its number in `sys.operators`.
    pub operator_id: i64,
    /// Which input of a join it is, from 0; `None` for an exchange.
    pub input: Option<usize>,
}

impl Sampled {
    /// What goes into exchange `operator_id`.
    pub fn exchange(operator_id: i64) -> Self {
        Self {
            operator_id,
            input: None,
        }
    }
}

/// Samples the keys of all partitions that go into one exchange, or into one side of a join. Reports to
/// the recorder when it is asked to, or else when it is dropped, with the plan.
#[derive(Debug)]
pub struct KeySample {
    recorder: Arc<Recorder>,
    /// Whose rows they are.
    of: Sampled,
    /// Indices of the key's columns.
    columns: Vec<usize>,
    sample: Mutex<Sample>,
}

impl KeySample {
    /// A sample of the keys of `exchange`, if it hashes plain columns, or routes rows by them.
    pub fn of_exchange(
        exchange: &dyn ExecutionPlan,
        exchange_id: i64,
        recorder: &Arc<Recorder>,
    ) -> Option<Self> {
        let exchange = exchange.downcast_ref::<RepartitionExec>()?;
        let Partitioning::Hash(keys, _) = exchange.partitioning() else {
            return None;
        };
        let of = Sampled::exchange(exchange_id);
        let columns = match exchange.input().downcast_ref::<RouteRowsExec>() {
            // Copies would be counted.
            Some(routed) if routed.spread() == SpreadKeys::Copy => return None,
            Some(routed) => routed.keys().to_vec(),
            None => plain_columns(keys)?,
        };
        Some(Self::new(columns, of, recorder))
    }

    /// A sample of the keys of what goes into `join`, operator `operator_id`, from its input 0 or 1, if the
    /// join's rows may be more than its inputs' and its keys are plain columns.
    pub fn of_join_input(
        join: &dyn ExecutionPlan,
        operator_id: i64,
        input: usize,
        recorder: &Arc<Recorder>,
    ) -> Option<Self> {
        let (on, join_type) = if let Some(join) = join.downcast_ref::<HashJoinExec>() {
            (join.on(), *join.join_type())
        } else {
            let join = join.downcast_ref::<SortMergeJoinExec>()?;
            (join.on(), join.join_type())
        };
        let multiplies = matches!(
            join_type,
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full
        );
        if !multiplies {
            return None;
        }
        let keys = on.iter().map(|(left, right)| match input {
            0 => left,
            _ => right,
        });
        let columns = plain_columns(keys)?;
        let of = Sampled {
            operator_id,
            input: Some(input),
        };
        (!columns.is_empty()).then(|| Self::new(columns, of, recorder))
    }

    /// A sample of the keys in `columns` of what goes into an exchange or a join.
    pub fn new(columns: Vec<usize>, of: Sampled, recorder: &Arc<Recorder>) -> Self {
        Self {
            recorder: Arc::clone(recorder),
            of,
            columns,
            sample: Mutex::default(),
        }
    }

    /// Of what keys are sampled.
    pub fn sampled(&self) -> Sampled {
        self.of
    }

    /// Indices of the key's columns.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Takes the keys of some rows of a batch into the sample.
    pub fn observe(&self, batch: &RecordBatch) {
        let is_exchange = self.of.input.is_none();
        // Columns that cannot be copied or hashed have no heavy keys.
        let _ = self
            .sample
            .lock()
            .observe(batch, &self.columns, is_exchange);
    }

    /// Tells the recorder of the heavy keys among those seen so far, and forgets them.
    pub fn report(&self) {
        let mut sample = self.sample.lock();
        let heavy = sample.heavy_keys().unwrap_or_default();
        let estimates = heavy.iter().map(|key| sample.estimate(key));
        let estimates: Vec<_> = estimates.collect();
        *sample = sample.emptied();
        for (heavy, estimate) in heavy.into_iter().zip(estimates) {
            self.recorder.key_frequency(KeyFrequency {
                exchange_id: self.of.operator_id,
                input: self.of.input.map(|input| input as i64),
                key: heavy.key,
                key_hash: Some(heavy.hash as i64),
                key_has_null: Some(heavy.has_null),
                tuples: estimate.tuples.round() as i64,
                error: estimate.error as i64,
                share: estimate.share,
                list_values: estimate.list_values.map(|values| values.round() as i64),
                list_share: estimate.list_share,
                worker_id: Some(self.recorder.worker_id()),
            });
        }
    }
}

/// The indices of keys that are all columns.
fn plain_columns<'a>(
    keys: impl IntoIterator<Item = &'a Arc<dyn PhysicalExpr>>,
) -> Option<Vec<usize>> {
    let keys = keys.into_iter();
    keys.map(|key| Some(key.downcast_ref::<Column>()?.index()))
        .collect()
}

impl Drop for KeySample {
    fn drop(&mut self) {
        self.report();
    }
}
