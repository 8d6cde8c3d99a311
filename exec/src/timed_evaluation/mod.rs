//! Evaluating expressions and saying what each record took.

mod evaluation;
mod latency_groups;
mod probe_thread;

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{ColumnStatistics, Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Operator, Volatility};
use datafusion::physical_expr::expressions::{BinaryExpr, CaseExpr, Column};
use datafusion::physical_expr::projection::{ProjectionMapping, ProjectionTargets};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter_pushdown::{FilterDescription, FilterPushdownPhase};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, ReplaceChildrenOptions,
};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use skewer_profiling::Recorder;

use self::evaluation::Evaluation;
use crate::record_origin::RecordOrigin;
use crate::row_function::RowFunction;

/// A kind of record whose latencies are logged.
#[derive(Debug, Clone)]
pub struct MeasuredRecords {
    /// Where the records come from.
    pub source: RecordOrigin,
    /// The input column with their ids, or what [`RecordColumn`](crate::RecordColumn) has made of them.
    pub id_column: usize,
}

/// Which column has the latencies of rows; `C` stands for a column of the input.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Serialize, Deserialize)]
pub enum LatencyColumn<C> {
    /// A new one, `BIGINT` picoseconds.
    New {
        /// Its name.
        name: String,
        /// One with latencies to add to those measured here.
        earlier: Option<C>,
    },
    /// One of the input, which [`RecordColumn`](crate::RecordColumn) has made of the rows' only records:
    /// what is measured here is added to it.
    Packed(C),
}

impl<C> LatencyColumn<C> {
    /// The same with other columns for those of the input.
    ///
    /// # Errors
    /// Those of `column`.
    pub fn try_map<D, E>(
        &self,
        column: impl FnOnce(&C) -> Result<D, E>,
    ) -> Result<LatencyColumn<D>, E> {
        Ok(match self {
            Self::New { name, earlier } => LatencyColumn::New {
                name: name.clone(),
                earlier: earlier.as_ref().map(column).transpose()?,
            },
            Self::Packed(packed) => LatencyColumn::Packed(column(packed)?),
        })
    }

    /// The new column, if there is one.
    pub fn field(&self) -> Option<Field> {
        match self {
            Self::New { name, .. } => Some(Field::new(name, DataType::Int64, true)),
            Self::Packed(_) => None,
        }
    }
}

/// What to evaluate, and whose time it is.
#[derive(Debug, Clone)]
pub struct TimedExpressions {
    /// The expressions and the names of the columns that they become.
    pub expressions: Vec<(Arc<dyn PhysicalExpr>, String)>,
    /// Where the latency of each row goes; columns by their places in the input.
    pub latency: LatencyColumn<usize>,
    /// The records that each row stems from.
    pub records: Vec<MeasuredRecords>,
}

/// Appends to its input the values of expressions and a column with what they took, and logs
/// the latency of each record.
///
/// ```text
/// input columns … │ expression values … │ latency (ps)
/// ```
///
/// What has its records packed has no such column: see [`LatencyColumn`].
#[derive(Debug)]
pub struct TimedEvaluationExec {
    input: Arc<dyn ExecutionPlan>,
    timed: Arc<TimedExpressions>,
    how: Timing,
    recorder: Arc<Recorder>,
    properties: Arc<PlanProperties>,
}

/// How rows are timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Timing {
    /// The functions of one row in the expressions time each call.
    ByRowFunctions,
    /// In chunks; slow chunks are searched.
    InChunks,
    /// One by one: a volatile expression must not be evaluated twice.
    OneByOne,
}

impl TimedEvaluationExec {
    /// Evaluates `timed` on the rows of `input`.
    pub fn try_new(
        input: Arc<dyn ExecutionPlan>,
        timed: Arc<TimedExpressions>,
        recorder: Arc<Recorder>,
    ) -> Result<Self> {
        let input_schema = input.schema();
        let mut fields: Vec<Arc<Field>> = input_schema.fields().iter().cloned().collect();
        for (expression, name) in &timed.expressions {
            let field = expression.return_field(&input_schema)?;
            fields.push(Arc::new(field.as_ref().clone().with_name(name)));
        }
        fields.extend(timed.latency.field().map(Arc::new));
        let schema = Arc::new(Schema::new_with_metadata(
            fields,
            input_schema.metadata().clone(),
        ));
        let kept = input_schema.fields().iter().enumerate();
        let kept = kept.filter(|(i, _)| timed.latency != LatencyColumn::Packed(*i));
        let kept = kept.map(|(i, field)| {
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), i));
            let place = ProjectionTargets::from(vec![(Arc::clone(&column), i)]);
            (column, place)
        });
        let mapping: ProjectionMapping = kept.collect();
        let equivalences = input
            .equivalence_properties()
            .project(&mapping, Arc::clone(&schema));
        let partitioning = input
            .output_partitioning()
            .project(&mapping, input.equivalence_properties());
        let properties = PlanProperties::new(
            equivalences,
            partitioning,
            input.pipeline_behavior(),
            input.boundedness(),
        );
        let how = timing_of(&timed.expressions)?;
        Ok(Self {
            input,
            timed,
            how,
            recorder,
            properties: Arc::new(properties),
        })
    }

    /// What is evaluated.
    pub fn timed(&self) -> &TimedExpressions {
        &self.timed
    }
}

/// Functions that see one row at a time are timed exactly, where they see all rows: `CASE`, `AND` and
/// `OR` may leave some out. Volatile ones must not be replayed.
fn timing_of(expressions: &[(Arc<dyn PhysicalExpr>, String)]) -> Result<Timing> {
    let (mut row_functions, mut volatile, mut other_functions) = (false, false, false);
    let mut leaves_out = false;
    for (expression, _) in expressions {
        expression.apply(|node| {
            leaves_out |= leaves_rows_out(node.as_ref());
            if let Some(function) = node.downcast_ref::<ScalarFunctionExpr>() {
                let udf = function.fun();
                let by_row = udf.inner().is::<RowFunction>();
                row_functions |= by_row;
                other_functions |= !by_row;
                volatile |= udf.signature().volatility == Volatility::Volatile;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(if volatile {
        Timing::OneByOne
    } else if row_functions && !other_functions && !leaves_out {
        Timing::ByRowFunctions
    } else {
        Timing::InChunks
    })
}

/// Whether it may leave out rows of what is below it, or all of that.
fn leaves_rows_out(node: &dyn PhysicalExpr) -> bool {
    let binary = node.downcast_ref::<BinaryExpr>();
    node.is::<CaseExpr>()
        || binary.is_some_and(|binary| matches!(binary.op(), Operator::And | Operator::Or))
}

impl DisplayAs for TimedEvaluationExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let expressions: Vec<String> = self
            .timed
            .expressions
            .iter()
            .map(|(expression, _)| expression.to_string())
            .collect();
        match format {
            DisplayFormatType::TreeRender => writeln!(f, "{}", expressions.join(", ")),
            _ => write!(f, "TimedEvaluationExec: expr=[{}]", expressions.join(", ")),
        }
    }
}

impl ExecutionPlan for TimedEvaluationExec {
    fn name(&self) -> &'static str {
        "TimedEvaluationExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    /// Rows come and go as they are: join order and sides are chosen as without the profiler.
    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let mut statistics = input_stats[0].as_ref().clone();
        statistics.column_statistics.resize(
            self.schema().fields().len(),
            ColumnStatistics::new_unknown(),
        );
        Ok(Arc::new(statistics))
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    /// What a join learns of its other side reaches the scan, as without the profiler: input columns keep
    /// their places.
    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        FilterDescription::from_children(parent_filters, &self.children())
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for (expression, _) in &self.timed.expressions {
            if f(expression)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.len() != 1 {
            return internal_err!("TimedEvaluationExec has one input");
        }
        let input = children.swap_remove(0);
        let mut new = Self::try_new(input, Arc::clone(&self.timed), Arc::clone(&self.recorder))?;
        if matches!(options.children_properties, ChildrenPropertiesMode::Keep) {
            new.properties = Arc::clone(&self.properties);
        }
        Ok(Arc::new(new))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let mut evaluation = Evaluation::new(
            self.schema(),
            Arc::clone(&self.timed),
            self.how,
            Arc::clone(&self.recorder),
        );
        let stream = self.input.execute(partition, context)?;
        let stream = stream.flat_map(move |batch| {
            let batches = match batch.and_then(|batch| evaluation.run(&batch)) {
                Ok(batches) => batches.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            };
            futures::stream::iter(batches)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            stream,
        )))
    }
}
