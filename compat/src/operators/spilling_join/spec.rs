//! What is joined, and the joins of parts of it.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{JoinType, NullEquality, Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, PartitionMode,
};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::keys::Keys;
use super::leaf::Leaf;

/// Makes a stream of rows that a join probes with yield in time.
pub type Pace =
    Arc<dyn Fn(SendableRecordBatchStream, &TaskContext) -> SendableRecordBatchStream + Send + Sync>;

/// The name of a column with numbers of probe rows.
const NUMBER: &str = "skewer.probe_row";

/// What is joined.
pub(super) struct Spec {
    /// It is, or passes for, one of DataFusion's joins.
    pub(super) plan: Arc<dyn ExecutionPlan>,
    pub(super) kind: JoinType,
    pub(super) null_equality: NullEquality,
    /// `NOT IN`: nothing is outside a list with a NULL.
    pub(super) null_aware: bool,
    /// All partitions of the probe side have the build side in common.
    pub(super) collects_left: bool,
    /// Whether rows are promised in the order of the probe side. Then probe rows are numbered: what
    /// is joined part by part is put in order by that.
    pub(super) ordered: bool,
    pub(super) fetch: Option<usize>,
    pub(super) build_schema: SchemaRef,
    /// That of the probe side, and the number if rows are numbered.
    pub(super) probe_schema: SchemaRef,
    /// Columns of the probe side.
    pub(super) probe_width: usize,
    pub(super) schema: SchemaRef,
    /// Which columns are returned, of those that a join of this kind has.
    columns: Vec<usize>,
    pub(super) pace: Pace,
    left_keys: Vec<Arc<dyn PhysicalExpr>>,
    right_keys: Vec<Arc<dyn PhysicalExpr>>,
}

impl Spec {
    pub(super) fn new(plan: Arc<dyn ExecutionPlan>, pace: Pace) -> Result<Self> {
        let [left, right] = plan.children()[..] else {
            return internal_err!("{} is no join", plan.name());
        };
        let (build_schema, right_schema) = (left.schema(), right.schema());
        let probe_width = right_schema.fields().len();
        let keeps_order = plan.maintains_input_order() == [false, true];
        let ordered = keeps_order && right.output_ordering().is_some();
        let mut spec = Self {
            kind: JoinType::Inner,
            null_equality: NullEquality::NullEqualsNothing,
            null_aware: false,
            collects_left: true,
            ordered,
            fetch: plan.fetch(),
            columns: (0..plan.schema().fields().len()).collect(),
            probe_schema: match ordered {
                true => numbered(&right_schema),
                false => right_schema,
            },
            build_schema,
            probe_width,
            schema: plan.schema(),
            pace,
            left_keys: vec![],
            right_keys: vec![],
            plan: Arc::clone(&plan),
        };
        let projection = if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            spec.kind = *join.join_type();
            spec.null_equality = join.null_equality();
            spec.null_aware = join.null_aware;
            spec.collects_left = *join.partition_mode() == PartitionMode::CollectLeft;
            (spec.left_keys, spec.right_keys) = join.on().iter().cloned().unzip();
            join.projection.as_deref()
        } else if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
            spec.kind = *join.join_type();
            join.projection().as_deref()
        } else if plan.is::<CrossJoinExec>() {
            None
        } else {
            return internal_err!("{} is no join that can be made to spill", plan.name());
        };
        if let Some(columns) = projection {
            spec.columns = columns.to_vec();
        }
        Ok(spec)
    }

    /// The build side.
    pub(super) fn left(&self) -> &Arc<dyn ExecutionPlan> {
        self.plan.children()[0]
    }

    /// The probe side.
    pub(super) fn right(&self) -> &Arc<dyn ExecutionPlan> {
        self.plan.children()[1]
    }

    /// Whether any rows of both sides may be partners. Then nothing is split, and what is not in memory
    /// is joined in blocks.
    pub(super) fn has_no_keys(&self) -> bool {
        self.left_keys.is_empty()
    }

    /// The first of the build side's keys.
    pub(super) fn build_key(&self) -> Option<&Arc<dyn PhysicalExpr>> {
        self.left_keys.first()
    }

    pub(super) fn build_keys(&self, depth: usize) -> Keys {
        Keys::new(self.left_keys.clone(), self.null_equality, depth)
    }

    pub(super) fn probe_keys(&self, depth: usize) -> Keys {
        Keys::new(self.right_keys.clone(), self.null_equality, depth)
    }

    /// Whether build rows without a partner are of any use.
    pub(super) fn keeps_build(&self) -> bool {
        matches!(
            self.kind,
            JoinType::Left | JoinType::Full | JoinType::LeftAnti | JoinType::LeftMark
        )
    }

    /// Whether probe rows without a partner are of any use.
    pub(super) fn keeps_probe(&self) -> bool {
        matches!(
            self.kind,
            JoinType::Right | JoinType::Full | JoinType::RightAnti | JoinType::RightMark
        )
    }

    /// Whether build rows are returned once for all probe rows together.
    pub(super) fn returns_build_at_end(&self) -> bool {
        self.keeps_build() || self.kind == JoinType::LeftSemi
    }

    /// The columns that are returned, of a join of the same kind whose probe side has `extra` more,
    /// and the extra ones.
    pub(super) fn columns(&self, extra: usize) -> Vec<usize> {
        let own = self.columns.iter().map(|&column| {
            // Only marks are behind the columns of the probe side.
            match self.kind == JoinType::RightMark && column == self.probe_width {
                true => column + extra,
                false => column,
            }
        });
        own.chain(self.extra_columns(self.kind, extra)).collect()
    }

    /// Where a join of some kind has the extra columns of its probe side.
    pub(super) fn extra_columns(&self, kind: JoinType, extra: usize) -> Vec<usize> {
        let before = match kind {
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
                self.build_schema.fields().len() + self.probe_width
            }
            JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => self.probe_width,
            JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => return vec![],
        };
        (before..before + extra).collect()
    }

    /// The columns that are returned, without extra ones.
    pub(super) fn own_columns(&self) -> &[usize] {
        &self.columns
    }

    /// How many numbers probe rows have in all parts of this join.
    pub(super) fn numbers(&self) -> usize {
        usize::from(self.ordered)
    }

    /// The join of everything that fits, with its dynamic filter: partitions share it.
    pub(super) fn whole(&self) -> Result<Inputs> {
        let (left, right) = (
            Leaf::instead_of(self.left()),
            Leaf::instead_of(self.right()),
        );
        let children = vec![Arc::clone(&left) as _, Arc::clone(&right) as _];
        let join = match self.plan.downcast_ref::<HashJoinExec>() {
            // It counts for the plan node.
            Some(join) => join.builder().with_new_children(children)?.build_exec()?,
            None if self.plan.is::<CrossJoinExec>() => Arc::new(CrossJoinExec::new(
                Arc::clone(&left) as _,
                Arc::clone(&right) as _,
            )),
            None => {
                let columns = self.columns.clone();
                self.nested_loop(self.kind, children, columns)?
            }
        };
        Ok(Inputs {
            left,
            right,
            join,
            collects_left: self.collects_left,
        })
    }

    /// A join of some of the rows, that returns `columns`.
    pub(super) fn part(
        &self,
        kind: JoinType,
        mode: PartitionMode,
        probe_schema: &SchemaRef,
        partitions: usize,
        columns: Vec<usize>,
    ) -> Result<Inputs> {
        let collects_left = mode == PartitionMode::CollectLeft;
        let build_partitions = if collects_left { 1 } else { partitions };
        let left = Leaf::new(Arc::clone(&self.build_schema), build_partitions, None);
        let by_number = self.ordered.then_some(self.probe_width);
        let right = Leaf::new(Arc::clone(probe_schema), partitions, by_number);
        let children = vec![Arc::clone(&left) as _, Arc::clone(&right) as _];
        let join = match self.plan.downcast_ref::<HashJoinExec>() {
            Some(join) => join
                .builder()
                .reset_state()
                .with_type(kind)
                .with_null_aware(false)
                .with_fetch(None)
                .with_partition_mode(mode)
                .with_new_children(children)?
                .with_projection(Some(columns))
                .build_exec()?,
            None => self.nested_loop(kind, children, columns)?,
        };
        Ok(Inputs {
            left,
            right,
            join,
            collects_left,
        })
    }

    fn nested_loop(
        &self,
        kind: JoinType,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        columns: Vec<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (Some(right), Some(left)) = (children.pop(), children.pop()) else {
            return internal_err!("a join has two inputs");
        };
        let join = self.plan.downcast_ref::<NestedLoopJoinExec>();
        let filter = join.and_then(|join| join.filter().cloned());
        let join = NestedLoopJoinExecBuilder::new(left, right, kind)
            .with_filter(filter)
            .with_projection(Some(columns))
            .build()?;
        Ok(Arc::new(join))
    }
}

/// A join, and what hands its rows to it.
pub(super) struct Inputs {
    pub(super) left: Arc<Leaf>,
    pub(super) right: Arc<Leaf>,
    pub(super) join: Arc<dyn ExecutionPlan>,
    /// Whether the build side is one for all partitions.
    pub(super) collects_left: bool,
}

/// A schema with one more column, for numbers of rows.
pub(super) fn numbered(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().cloned();
    let number = Arc::new(Field::new(NUMBER, DataType::UInt64, false));
    let fields: Vec<_> = fields.chain([number]).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}
