//! The first stage of an aggregate: groups of one partition's rows, with what the second stage merges.
//!
//! `AggregateExec` of DataFusion 55.2 looks up each row's group by its values, once for each grouping set, and keeps
//! all groups until the input ends. [`PartialGroupsExec`] takes four short cuts:
//!
//! * [`keys`]: rows whose values are, bit by bit, those of a row before have its group. Texts that a join copied from
//!   the same row are neither hashed nor compared.
//! * [`sets`]: groups of smaller grouping sets are merged from groups of larger ones, as ROLLUP and CUBE allow.
//! * [`shared`]: `sum(x)` and `count(x)` are not computed where `avg(x)` computes them.
//! * Where rows of a group follow each other, as where a table is in the order of its key, groups are handed on after
//!   some thousand rows. What is looked up stays in the processor's cache.

mod keys;
mod sets;
mod shared;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch, new_null_array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricType, MetricsSet,
    RatioMetrics, RecordOutput, SpillMetrics,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, EmptyRecordBatchStream, ExecutionPlan, InputOrderMode,
};
use futures::{StreamExt, stream};

use self::keys::Keys;
use self::sets::{Groups, Sets};
use self::shared::Shared;
use crate::pass_through;

/// So many groups whose rows follow each other are handed on.
const ADJACENT_GROUPS: usize = 1 << 14;

/// The functions whose states may be merged in any order, and more than once.
const FUNCTIONS: [&str; 16] = [
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "count",
    "max",
    "mean",
    "min",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "var",
    "var_pop",
];

/// Replaces the first stage of an aggregate by a [`PartialGroupsExec`] that can stand for it; returns any other
/// operator as it is.
///
/// # Errors
/// None of its own: it has the type that replacements have.
pub fn with_own_partial_groups(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let operator: &dyn Any = plan.as_ref();
    let can_be_replaced = operator
        .downcast_ref::<AggregateExec>()
        .is_some_and(|plan| {
            let by = plan.group_expr();
            let mut functions = plan.aggr_expr().iter();
            *plan.mode() == AggregateMode::Partial
                && *plan.input_order_mode() == InputOrderMode::Linear
                && plan.limit_options().is_none()
                && plan.dynamic_expressions_produced().is_empty()
                && !by.is_empty()
                && (by.is_single() || Sets::can_be_merged(by))
                && functions.all(|function| can_be_merged(function))
        });
    Ok(match can_be_replaced {
        true => Arc::new(PartialGroupsExec::new(plan)),
        false => plan,
    })
}

fn can_be_merged(function: &AggregateFunctionExpr) -> bool {
    FUNCTIONS.contains(&function.fun().name())
        && !function.is_distinct()
        && function.order_bys().is_empty()
        && function.groups_accumulator_supported()
}

/// The first stage of an `AggregateExec`, computed by Skewer. To plan inspection it *is* the `AggregateExec`.
#[derive(Debug)]
pub struct PartialGroupsExec {
    /// The `AggregateExec`, which is not executed.
    inner: Arc<dyn ExecutionPlan>,
    metrics: ExecutionPlanMetricsSet,
}

impl PartialGroupsExec {
    fn new(inner: Arc<dyn ExecutionPlan>) -> Self {
        Self {
            inner,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The same in place of another `AggregateExec`.
    fn around(&self, inner: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(Self::new(inner))
    }
}

impl DisplayAs for PartialGroupsExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        self.inner.fmt_as(format, f)
    }
}

impl ExecutionPlan for PartialGroupsExec {
    pass_through!(inner);

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let plan = self.inner.downcast_ref::<AggregateExec>();
        let plan =
            plan.ok_or_else(|| internal_datafusion_err!("{} is no aggregate", self.inner.name()))?;
        let input = plan.input().execute(partition, Arc::clone(&context))?;
        let groups = PartialGroups::new(plan, input, &self.metrics, partition, &context)?;
        let rows = stream::try_unfold(groups, |mut groups| async move {
            let batch = groups.next().await?;
            Ok(batch.map(|batch| (batch, groups)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// What is computed for each group.
struct Function {
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    filter: Option<Arc<dyn PhysicalExpr>>,
    expression: Arc<AggregateFunctionExpr>,
}

impl Function {
    fn name(&self) -> &str {
        self.expression.fun().name()
    }
}

/// When rows are handed on without being grouped, since nearly each has a group of its own.
struct Probe {
    /// Rows that are looked at.
    rows: usize,
    /// The share of rows that have groups of their own.
    ratio: f64,
    skipped: Count,
}

/// The groups of a partition.
struct PartialGroups {
    input: SendableRecordBatchStream,
    schema: SchemaRef,
    by: Vec<Arc<dyn PhysicalExpr>>,
    functions: Vec<Function>,
    /// Of each function, where its states are, if its accumulator is not used.
    shared: Vec<Option<Shared>>,
    sets: Sets,
    keys: Keys,
    accumulators: Vec<Box<dyn GroupsAccumulator>>,
    /// The group of each row of a batch.
    groups: Vec<usize>,
    /// Rows since groups were handed on.
    rows: usize,
    /// Whether there were rows at all.
    has_rows: bool,
    probe: Option<Probe>,
    is_skipping: bool,
    is_at_end: bool,
    output: VecDeque<RecordBatch>,
    batch_size: usize,
    memory: MemoryReservation,
    /// How often groups were handed on before the end of the input.
    flushes: Count,
    metrics: BaselineMetrics,
    reduction: RatioMetrics,
}

impl PartialGroups {
    fn new(
        plan: &AggregateExec,
        input: SendableRecordBatchStream,
        metrics: &ExecutionPlanMetricsSet,
        partition: usize,
        context: &TaskContext,
    ) -> Result<Self> {
        let functions = functions(plan);
        let accumulators = new_accumulators(&functions)?;
        let options = &context.session_config().options().execution;
        let ratio = options.skip_partial_aggregation_probe_ratio_threshold;
        let can_skip = plan.group_expr().is_single() && ratio < 1.0;
        let probe = can_skip.then(|| Probe {
            rows: options.skip_partial_aggregation_probe_rows_threshold,
            ratio,
            skipped: MetricBuilder::new(metrics).counter("skipped_aggregation_rows", partition),
        });
        let consumer = MemoryConsumer::new(format!("PartialGroups[{partition}]"));
        // Others tell that they spill, too.
        let _ = SpillMetrics::new(metrics, partition);
        let ratio = MetricBuilder::new(metrics).with_type(MetricType::Summary);
        Ok(Self {
            keys: Keys::try_new(plan.group_expr(), &plan.input().schema())?,
            sets: Sets::try_new(plan.group_expr(), &plan.input().schema())?,
            schema: plan.schema(),
            by: plan.group_expr().input_exprs(),
            shared: Shared::of_functions(&functions, &plan.input().schema())?,
            functions,
            accumulators,
            groups: Vec::new(),
            rows: 0,
            has_rows: false,
            probe,
            is_skipping: false,
            is_at_end: false,
            output: VecDeque::new(),
            batch_size: context.session_config().batch_size(),
            memory: consumer
                .with_can_spill(true)
                .register(context.memory_pool()),
            flushes: MetricBuilder::new(metrics).counter("early_flushes", partition),
            metrics: BaselineMetrics::new(metrics, partition),
            reduction: ratio.ratio_metrics("reduction_factor", partition),
            input,
        })
    }

    /// The next batch of groups; `None` at the end.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.output.pop_front() {
                self.reduction.add_part(batch.num_rows());
                return Ok(Some(batch.record_output(&self.metrics)));
            }
            if self.is_at_end {
                return Ok(None);
            }
            let batch = self.input.next().await.transpose()?;
            let time = self.metrics.elapsed_compute().clone();
            let _timer = time.timer();
            match batch {
                Some(batch) if batch.num_rows() == 0 => {}
                Some(batch) => self.add(&batch)?,
                None => {
                    self.is_at_end = true;
                    self.input = Box::pin(EmptyRecordBatchStream::new(self.input.schema()));
                    self.hand_on()?;
                    if !self.has_rows {
                        self.hand_on_nothing()?;
                    }
                }
            }
        }
    }

    /// Adds the rows of a batch to their groups.
    fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        self.has_rows = true;
        self.reduction.add_total(batch.num_rows());
        let by = evaluated(&self.by, batch)?;
        let arguments = self.functions.iter();
        let arguments = arguments.map(|function| evaluated(&function.arguments, batch));
        let arguments = arguments.collect::<Result<Vec<_>>>()?;
        let filters = self.functions.iter().map(|function| {
            let filter = function.filter.as_ref();
            let filter = filter.map(|filter| filter.evaluate(batch)?.into_array(batch.num_rows()));
            filter.transpose()
        });
        let filters = filters.collect::<Result<Vec<_>>>()?;
        let filters = filters
            .iter()
            .map(|filter| filter.as_ref().map(|filter| filter.as_boolean()));
        let filters: Vec<Option<&BooleanArray>> = filters.collect();
        if self.is_skipping {
            return self.pass_on(batch.num_rows(), by, &arguments, &filters);
        }
        self.keys.find(&by, &mut self.groups)?;
        let count = self.keys.len();
        let functions = self.accumulators.iter_mut().zip(&self.shared);
        let functions = functions.zip(arguments.iter().zip(filters));
        for ((accumulator, shared), (arguments, filter)) in functions {
            if shared.is_none() {
                accumulator.update_batch(arguments, &self.groups, filter, count)?;
            }
        }
        self.rows += batch.num_rows();
        let accumulators = self
            .accumulators
            .iter()
            .map(|accumulator| accumulator.size());
        let size = self.keys.size() + accumulators.sum::<usize>();
        let is_refused = self.memory.try_resize(size).is_err();
        let is_skipped = self.probe.as_ref().is_some_and(|probe| {
            self.rows >= probe.rows && count as f64 > probe.ratio * self.rows as f64
        });
        self.is_skipping |= is_skipped;
        let are_adjacent = count >= ADJACENT_GROUPS && self.keys.are_adjacent();
        if is_refused || is_skipped || are_adjacent {
            self.flushes.add(1);
            self.hand_on()?;
        }
        Ok(())
    }

    /// Hands on rows as groups of their own.
    fn pass_on(
        &mut self,
        rows: usize,
        mut columns: Vec<ArrayRef>,
        arguments: &[Vec<ArrayRef>],
        filters: &[Option<&BooleanArray>],
    ) -> Result<()> {
        for ((accumulator, arguments), filter) in
            self.accumulators.iter().zip(arguments).zip(filters)
        {
            columns.extend(accumulator.convert_to_state(arguments, *filter)?);
        }
        if let Some(probe) = &self.probe {
            probe.skipped.add(rows);
        }
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        self.output.push_back(batch);
        Ok(())
    }

    /// Hands on all groups, and begins anew.
    fn hand_on(&mut self) -> Result<()> {
        if self.keys.len() > 0 {
            let groups = Groups {
                by: self.keys.take()?,
                states: self.states()?,
            };
            let functions = &self.functions;
            for columns in self.sets.merged(groups, || new_accumulators(functions))? {
                let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
                let begins = (0..batch.num_rows()).step_by(self.batch_size.max(1));
                self.output.extend(begins.map(|begin| {
                    batch.slice(begin, self.batch_size.min(batch.num_rows() - begin))
                }));
            }
        }
        self.rows = 0;
        self.memory.free();
        Ok(())
    }

    /// The states of all functions, which begin anew.
    fn states(&mut self) -> Result<Vec<Vec<ArrayRef>>> {
        let computed = self.accumulators.iter_mut().zip(&self.shared);
        let computed = computed.map(|(accumulator, shared)| match shared {
            None => accumulator.state(EmitTo::All),
            Some(_) => Ok(Vec::new()),
        });
        let computed = computed.collect::<Result<Vec<_>>>()?;
        let shared = self.shared.iter().map(|shared| {
            let shared = shared.as_ref();
            shared.map(|shared| shared.states(&computed)).transpose()
        });
        let shared = shared.collect::<Result<Vec<_>>>()?;
        let states = computed.into_iter().zip(shared);
        let states = states.map(|(computed, shared)| shared.unwrap_or(computed));
        Ok(states.collect())
    }
}

impl PartialGroups {
    /// Without rows, the grouping set of no columns has a group all the same, as in PostgreSQL.
    fn hand_on_nothing(&mut self) -> Result<()> {
        let schema = self.input.schema();
        let none = BooleanArray::from(vec![false]);
        let mut states = Vec::with_capacity(self.functions.len());
        for (function, accumulator) in self.functions.iter().zip(&mut self.accumulators) {
            let arguments = function.arguments.iter();
            let arguments = arguments
                .map(|argument| Ok(new_null_array(&argument.data_type(&schema)?, 1)))
                .collect::<Result<Vec<_>>>()?;
            accumulator.update_batch(&arguments, &[0], Some(&none), 1)?;
            states.push(accumulator.state(EmitTo::All)?);
        }
        for columns in self.sets.of_no_rows(states)? {
            let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
            self.output.push_back(batch);
        }
        Ok(())
    }
}

/// The functions of an aggregate.
fn functions(plan: &AggregateExec) -> Vec<Function> {
    let functions = plan.aggr_expr().iter().zip(plan.filter_expr());
    let functions = functions.map(|(expression, filter)| Function {
        arguments: expression.expressions(),
        filter: filter.clone(),
        expression: Arc::clone(expression),
    });
    functions.collect()
}

fn new_accumulators(functions: &[Function]) -> Result<Vec<Box<dyn GroupsAccumulator>>> {
    let functions = functions.iter();
    functions
        .map(|function| function.expression.create_groups_accumulator())
        .collect()
}

fn evaluated(expressions: &[Arc<dyn PhysicalExpr>], batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
    let expressions = expressions.iter();
    expressions
        .map(|expression| expression.evaluate(batch)?.into_array(batch.num_rows()))
        .collect()
}
