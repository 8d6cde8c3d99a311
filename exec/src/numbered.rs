//! Numbers in a plan that is cut into fragments and sent to workers.

use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

use crate::operator_memory::Streams;
use crate::profiled::Observed;

/// An operator on top of another that says which number that one has, and observes its calls.
///
/// Unlike [`ProfiledExec`](crate::ProfiledExec) it does not pass for the operator: it stays where
/// it is when the operator is replaced by another that does its work, as exchanges are when their
/// input is sent away, and it can be encoded.
#[derive(Debug)]
pub struct NumberedExec {
    observed: Observed,
    streams: Arc<Streams>,
}

impl NumberedExec {
    /// Says where `observed.inner` has its place.
    pub fn new(observed: Observed) -> Self {
        Self {
            observed,
            streams: Arc::default(),
        }
    }

    /// The operator below, and its place.
    pub fn observed(&self) -> &Observed {
        &self.observed
    }
}

impl DisplayAs for NumberedExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "NumberedExec: operator={}, ", self.observed.operator_id)?;
        self.observed.inner.fmt_as(format, f)
    }
}

impl ExecutionPlan for NumberedExec {
    fn name(&self) -> &str {
        "NumberedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.observed.inner.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.observed.inner]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (Some(inner), true) = (children.pop(), children.is_empty()) else {
            return internal_err!("NumberedExec has one input");
        };
        Ok(Arc::new(Self::new(self.observed.around(inner))))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.observed.execute(partition, context, &self.streams)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.observed.inner.metrics()
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match input_stats {
            [input] => Ok(Arc::clone(input)),
            _ => internal_err!("NumberedExec has one input"),
        }
    }
}
