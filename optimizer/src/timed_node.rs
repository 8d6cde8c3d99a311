//! The logical node of a timed evaluation, and its planning.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, DFSchemaRef, Result, internal_err};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use skewer_exec::{
    LatencyColumn, MeasuredRecords, RecordOrigin, TimedEvaluationExec, TimedExpressions,
};
use skewer_profiling::Recorder;

/// Appends to its input the values of expressions, and to one of its columns, or in one more, what each row
/// took.
#[derive(Debug, Clone)]
pub struct TimedEvaluation {
    input: LogicalPlan,
    /// Expressions and the names of their columns.
    expressions: Vec<(Expr, String)>,
    latency: LatencyColumn<String>,
    /// Sources of the input's records and the names of their id columns.
    records: Vec<(RecordOrigin, String)>,
    schema: DFSchemaRef,
}

impl TimedEvaluation {
    /// Evaluates `expressions` over `input`; see the fields for the rest.
    pub fn try_new(
        input: LogicalPlan,
        expressions: Vec<(Expr, String)>,
        latency: LatencyColumn<String>,
        records: Vec<(RecordOrigin, String)>,
    ) -> Result<Self> {
        let input_schema = input.schema();
        let mut fields: Vec<_> = input_schema
            .iter()
            .map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field)))
            .collect();
        for (expression, name) in &expressions {
            let (_, field) = expression.to_field(input_schema.as_ref())?;
            // The operator may say that it can be NULL where this would not: of `x IS NOT TRUE`.
            let field = field.as_ref().clone().with_name(name).with_nullable(true);
            fields.push((None, Arc::new(field)));
        }
        fields.extend(latency.field().map(|field| (None, Arc::new(field))));
        let schema = DFSchema::new_with_metadata(fields, input_schema.metadata().clone())?;
        Ok(Self {
            schema: Arc::new(schema),
            input,
            expressions,
            latency,
            records,
        })
    }

    /// The expression that has become this column.
    pub(crate) fn expression_of(&self, column: &str) -> Option<&Expr> {
        let mut expressions = self.expressions.iter();
        let (expression, _) = expressions.find(|(_, name)| name == column)?;
        Some(expression)
    }

    /// What the columns of its expressions are called.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.expressions.iter().map(|(_, name)| name.as_str())
    }
}

// Column names of timed evaluations are unique in a plan, so they stand for the node.
impl PartialEq for TimedEvaluation {
    fn eq(&self, other: &Self) -> bool {
        self.latency == other.latency
            && self.expressions == other.expressions
            && self.input == other.input
    }
}

impl Eq for TimedEvaluation {}

impl PartialOrd for TimedEvaluation {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let by_name = self.names().cmp(other.names());
        match by_name {
            Ordering::Equal => self.latency.partial_cmp(&other.latency),
            _ => Some(by_name),
        }
    }
}

impl Hash for TimedEvaluation {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.latency.hash(state);
        self.expressions.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for TimedEvaluation {
    fn name(&self) -> &str {
        "TimedEvaluation"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.expressions.iter().map(|(e, _)| e.clone()).collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let expressions: Vec<_> = self
            .expressions
            .iter()
            .map(|(e, _)| e.to_string())
            .collect();
        write!(f, "TimedEvaluation: {}", expressions.join(", "))
    }

    fn with_exprs_and_inputs(
        &self,
        exprs: Vec<Expr>,
        mut inputs: Vec<LogicalPlan>,
    ) -> Result<Self> {
        let Some(input) = inputs.pop() else {
            return internal_err!("TimedEvaluation has one input");
        };
        let names = self.expressions.iter().map(|(_, name)| name.clone());
        Self::try_new(
            input,
            exprs.into_iter().zip(names).collect(),
            self.latency.clone(),
            self.records.clone(),
        )
    }
}

/// Plans [`TimedEvaluation`] as [`TimedEvaluationExec`].
#[derive(Debug)]
pub struct TimedEvaluationPlanner {
    /// Where latencies go.
    pub recorder: Arc<Recorder>,
}

#[async_trait]
impl ExtensionPlanner for TimedEvaluationPlanner {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        planning_ctx: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<TimedEvaluation>() else {
            return Ok(None);
        };
        let ([logical], [physical]) = (logical_inputs, physical_inputs) else {
            return internal_err!("TimedEvaluation has one input");
        };
        let column = |name: &String| physical.schema().index_of(name);
        let expressions = node
            .expressions
            .iter()
            .map(|(expr, name)| {
                let schema = logical.schema();
                let expr = planner.create_physical_expr(expr, schema, session, planning_ctx)?;
                Ok((expr, name.clone()))
            })
            .collect::<Result<_>>()?;
        let records = node
            .records
            .iter()
            .map(|(source, id)| {
                Ok(MeasuredRecords {
                    source: source.clone(),
                    id_column: column(id)?,
                })
            })
            .collect::<Result<_>>()?;
        let timed = TimedExpressions {
            expressions,
            latency: node.latency.try_map(column)?,
            records,
        };
        let exec = TimedEvaluationExec::try_new(
            Arc::clone(physical),
            Arc::new(timed),
            Arc::clone(&self.recorder),
        )?;
        Ok(Some(Arc::new(exec)))
    }
}
