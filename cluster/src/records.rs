//! What the record level's operators of one query have in common, whichever worker runs them.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use parking_lot::Mutex;
use skewer_exec::{LineageCapture, RecordSource, SampledRowId};
use skewer_profiling::{Level, Recorder};

/// The sources of records and the functions that log lineage, of one query.
#[derive(Debug, Default)]
pub struct RecordParts {
    /// A source's number is its place.
    sources: Mutex<Vec<RecordSource>>,
    captures: Mutex<Vec<AggregateUDF>>,
}

impl RecordParts {
    /// Takes note of what `plan` logs lineage with.
    ///
    /// # Errors
    /// None of its own; those of walking a plan.
    pub(crate) fn learn(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
        let mut captures = self.captures.lock();
        plan.apply(|node| {
            if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
                for function in aggregate.aggr_expr() {
                    let known = captures.iter().any(|c| c.name() == function.fun().name());
                    if !known && function.fun().inner().is::<LineageCapture>() {
                        captures.push(function.fun().clone());
                    }
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }

    /// Lets plans be decoded in a session, by a worker that reports to `recorder`.
    ///
    /// # Errors
    /// If the session takes no functions.
    pub(crate) fn register(
        &self,
        state: &mut SessionState,
        recorder: &Arc<Recorder>,
    ) -> Result<()> {
        if recorder.level() < Level::Records {
            return Ok(());
        }
        for function in self.captures.lock().iter() {
            if let Some(capture) = function.inner().downcast_ref::<LineageCapture>() {
                let capture = capture.of_worker(Arc::clone(recorder));
                state.register_udaf(Arc::new(AggregateUDF::from(capture)))?;
            }
        }
        let sampled = SampledRowId::new(recorder.sample_rate());
        state.register_udf(Arc::new(ScalarUDF::from(sampled)))?;
        Ok(())
    }

    /// The number by which plans name a source.
    pub(crate) fn number_of(&self, source: &RecordSource) -> usize {
        let mut sources = self.sources.lock();
        let known = sources.iter().position(|known| known.is(source));
        known.unwrap_or_else(|| {
            sources.push(source.clone());
            sources.len() - 1
        })
    }

    /// The source of a number.
    ///
    /// # Errors
    /// If there is none: the plan is another query's.
    pub(crate) fn source(&self, number: usize) -> Result<RecordSource> {
        let sources = self.sources.lock();
        let source = sources.get(number).cloned();
        source.ok_or_else(|| internal_datafusion_err!("the query has no source {number}"))
    }
}
