//! Operators that DataFusion 55.2 takes for more than they are.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{JoinType, Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::expressions::Column;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};

/// An operator on top of another, that hands on its rows and claims of them only what is so.
///
/// DataFusion 55.2 concludes too much
///
/// * from aggregates over several sets of keys: in the rows of a set that it is not in, a key is NULL,
///   yet it is taken for constant, ordered or hashed as it is in the aggregate's input;
/// * from outer joins: what is constant in the side that lacks rows is NULL in some of the join's;
/// * from the order of both sides of a join: the rows that a probe row meets are in the order of
///   their side, but begin again with the next probe row, whose own sort keys may be the same;
/// * from exchanges that keep an order: between workers they do not.
///
/// It would leave out sort keys and sorts, and emit groups before they are complete.
#[derive(Debug)]
pub struct ConservativePropertiesExec {
    input: Arc<dyn ExecutionPlan>,
    trusted: Trusted,
    properties: Arc<PlanProperties>,
}

/// Which properties of its input the operator keeps. It never keeps an order.
#[derive(Debug, Clone, Copy)]
enum Trusted {
    /// None: the input is an aggregate or a union.
    Nothing,
    /// The partitioning: the input is a join that pads rows with NULL.
    Partitioning,
    /// The partitioning, and which columns are equal.
    PartitioningAndEquality,
}

impl Trusted {
    fn of_operator(operator: &Arc<dyn ExecutionPlan>) -> Self {
        if operator.is::<AggregateExec>() || operator.is::<UnionExec>() {
            return Self::Nothing;
        }
        if Join::of_plan(operator).is_some_and(|join| join.pads_constants()) {
            return Self::Partitioning;
        }
        Self::PartitioningAndEquality
    }
}

impl ConservativePropertiesExec {
    /// Keeps no order of `input`, and no property of aggregates and unions.
    pub fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let trusted = Trusted::of_operator(&input);
        Self::trusting(input, trusted)
    }

    /// The same if `input` only observes `operator`, which decides what to keep.
    pub fn observed(input: Arc<dyn ExecutionPlan>, operator: &Arc<dyn ExecutionPlan>) -> Self {
        Self::trusting(input, Trusted::of_operator(operator))
    }

    fn trusting(input: Arc<dyn ExecutionPlan>, trusted: Trusted) -> Self {
        let mut equivalences = EquivalenceProperties::new(input.schema());
        let mut partitioning =
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count());
        if !matches!(trusted, Trusted::Nothing) {
            partitioning = input.output_partitioning().clone();
            if matches!(trusted, Trusted::PartitioningAndEquality) {
                let group = input.equivalence_properties().eq_group().clone();
                // Fails only where expressions have no types: then there is nothing to claim.
                if equivalences.add_equivalence_group(group).is_err() {
                    equivalences = EquivalenceProperties::new(input.schema());
                }
            }
        }
        let properties = PlanProperties::new(
            equivalences,
            partitioning,
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self {
            input,
            trusted,
            properties: Arc::new(properties),
        }
    }

    /// What it is on top of.
    pub fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }
}

/// Whether `plan` is an aggregate or a join whose claims may not hold.
pub fn claims_too_much(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return aggregate.group_expr().has_grouping_set();
    }
    Join::of_plan(plan).is_some_and(|join| join.pads_constants() || join.orders_pairs(plan))
}

/// Whether `plan` is a join whose claims are to be looked at.
pub fn is_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
    Join::of_plan(plan).is_some()
}

/// A join whose rows are pairs of rows.
struct Join<'a> {
    left: &'a Arc<dyn ExecutionPlan>,
    right: &'a Arc<dyn ExecutionPlan>,
    kind: JoinType,
    /// Columns of the pairs that it returns; all if there is no list.
    projection: Option<&'a [usize]>,
}

impl<'a> Join<'a> {
    fn of_plan(plan: &'a Arc<dyn ExecutionPlan>) -> Option<Self> {
        let join = if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            Self {
                left: join.left(),
                right: join.right(),
                kind: *join.join_type(),
                projection: join.projection.as_deref(),
            }
        } else if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
            Self {
                left: join.left(),
                right: join.right(),
                kind: *join.join_type(),
                projection: join.projection().as_deref(),
            }
        } else {
            let join = plan.downcast_ref::<SortMergeJoinExec>()?;
            Self {
                left: join.left(),
                right: join.right(),
                kind: join.join_type(),
                projection: None,
            }
        };
        let pairs = matches!(
            join.kind,
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full
        );
        pairs.then_some(join)
    }

    /// Whether anything is taken for constant, or for the value of an expression, that is NULL in rows
    /// without a partner.
    fn pads_constants(&self) -> bool {
        let padded: &[&Arc<dyn ExecutionPlan>] = match self.kind {
            JoinType::Left => &[self.right],
            JoinType::Right => &[self.left],
            JoinType::Full => &[self.left, self.right],
            _ => &[],
        };
        padded.iter().any(|side| {
            let claims = side.equivalence_properties();
            let mut equal = claims.eq_group().iter().flat_map(|class| class.iter());
            !claims.constants().is_empty() || equal.any(|member| !member.is::<Column>())
        })
    }

    /// Whether `plan`, which is this join, claims an order by columns of one side and then of the other.
    fn orders_pairs(&self, plan: &Arc<dyn ExecutionPlan>) -> bool {
        let width = self.left.schema().fields().len();
        let is_left = |column: usize| {
            let column = self.projection.map_or(column, |shown| shown[column]);
            column < width
        };
        let claims = plan.equivalence_properties();
        claims.oeq_class().iter().any(|ordering| {
            // What is equal to a key before, or constant, orders nothing.
            let keys = claims.normalize_sort_exprs(ordering.iter().cloned());
            let columns: HashSet<bool> = keys
                .iter()
                .flatten()
                .flat_map(|key| collect_columns(&key.expr))
                .map(|column| is_left(column.index()))
                .collect();
            columns.len() > 1
        })
    }
}

impl DisplayAs for ConservativePropertiesExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match format {
            DisplayFormatType::TreeRender => Ok(()),
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "{}", self.name())
            }
        }
    }
}

impl ExecutionPlan for ConservativePropertiesExec {
    fn name(&self) -> &str {
        "SoundPropertiesExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    // A sort that were pushed below would be left out for what the input claims.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
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
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(Self::trusting(input, self.trusted))),
            _ => internal_err!("SoundPropertiesExec has one input"),
        }
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match input_stats {
            [input] => Ok(Arc::clone(input)),
            _ => internal_err!("SoundPropertiesExec has one input"),
        }
    }
}
