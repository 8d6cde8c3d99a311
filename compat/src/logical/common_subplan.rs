//! The logical node of rows that several places of a query read, and its planning.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::operators::materialized::{SharedRows, SharedRowsExec};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchemaRef, Result, internal_err};
use datafusion::logical_expr::logical_plan::{Extension, Projection};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};

/// The rows of a plan, the same ones wherever another plan has them by this number: they are made once. In a
/// recursive term that is for all iterations, unless they are of one.
///
/// While the plan around it is optimized it is a leaf: what makes the rows is optimized by itself, so that
/// nothing that one place wants of them is pushed into it. Afterwards it is the input of
/// [one place](Self::made_at_one_place).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Shared {
    number: usize,
    rows: Arc<LogicalPlan>,
    /// Of whose iterations they are, if they are made in each.
    recursion: Option<String>,
    /// Whether they are what a subquery is asked for, not those that ask.
    are_values: bool,
    /// Whether what makes the rows is its input.
    is_made_here: bool,
}

impl Shared {
    /// The rows of `rows` by `number`, which is that of no others in the plan around; of an iteration of the
    /// query `recursion`, if they are made in each of its recursive term.
    pub fn plan(rows: Arc<LogicalPlan>, number: usize, recursion: Option<String>) -> LogicalPlan {
        let shared = Self {
            number,
            rows,
            recursion,
            are_values: false,
            is_made_here: false,
        };
        shared.into_plan()
    }

    /// The same of rows that are the values which a subquery is asked for.
    pub fn values(rows: Arc<LogicalPlan>, number: usize, recursion: Option<String>) -> LogicalPlan {
        let shared = Self {
            number,
            rows,
            recursion,
            are_values: true,
            is_made_here: false,
        };
        shared.into_plan()
    }

    fn into_plan(self) -> LogicalPlan {
        let node = Arc::new(self);
        LogicalPlan::Extension(Extension { node })
    }

    /// `plan` as such rows, if it is some.
    pub fn from_plan(plan: &LogicalPlan) -> Option<&Self> {
        match plan {
            LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref(),
            _ => None,
        }
    }

    /// Which rows they are.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The recursive query of whose iterations they are, if they are of any.
    pub fn recursion(&self) -> Option<&String> {
        self.recursion.as_ref()
    }

    /// What makes them.
    pub fn rows(&self) -> &Arc<LogicalPlan> {
        &self.rows
    }

    /// An optimized plan, in which the first place of each of such rows has what makes them as its input.
    ///
    /// `rewritten` has what makes them, by number, where that has become another plan, with more columns.
    ///
    /// # Errors
    /// None of its own; those of rewriting a plan.
    pub fn made_at_one_place(
        plan: LogicalPlan,
        rewritten: &HashMap<usize, Arc<LogicalPlan>>,
    ) -> Result<LogicalPlan> {
        let mut made = HashSet::new();
        // Whether the next of them is that below a projection that has been put there.
        let mut is_placed = false;
        let plan = plan.transform_down_with_subqueries(|node| {
            let Some(shared) = Self::from_plan(&node) else {
                return Ok(Transformed::no(node));
            };
            if std::mem::take(&mut is_placed) {
                return Ok(Transformed::no(node));
            }
            let number = shared.number;
            let rows = rewritten.get(&number).unwrap_or(&shared.rows);
            let place = Self {
                number,
                rows: Arc::clone(rows),
                recursion: shared.recursion.clone(),
                are_values: shared.are_values,
                is_made_here: made.insert(number),
            };
            if Arc::ptr_eq(rows, &shared.rows) {
                return Ok(Transformed::yes(place.into_plan()));
            }
            is_placed = true;
            let own = node.schema().columns().into_iter().map(Expr::Column);
            let own = Projection::try_new(own.collect(), Arc::new(place.into_plan()))?;
            Ok(Transformed::yes(LogicalPlan::Projection(own)))
        })?;
        Ok(plan.data)
    }
}

// EXPLAIN shows it, beside what makes the rows.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        UserDefinedLogicalNodeCore::fmt_for_explain(self, f)
    }
}

impl PartialOrd for Shared {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.number.partial_cmp(&other.number)
    }
}

impl UserDefinedLogicalNodeCore for Shared {
    fn name(&self) -> &'static str {
        "SharedRows"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        match self.is_made_here {
            true => vec![&self.rows],
            false => Vec::new(),
        }
    }

    fn schema(&self) -> &DFSchemaRef {
        self.rows.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let what = if self.are_values { "values" } else { "rows" };
        write!(f, "SharedRows: {what}={}", self.number)
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        if inputs.len() != usize::from(self.is_made_here) {
            return internal_err!("SharedRows has one input where its rows are made");
        }
        Ok(match inputs.pop() {
            Some(input) => Self {
                rows: Arc::new(input),
                ..self.clone()
            },
            None => self.clone(),
        })
    }
}

/// Plans [`Shared`] as [`SharedRowsExec`].
#[derive(Debug, Default)]
pub struct SharedRowsPlanner {
    rows: Mutex<HashMap<usize, Arc<SharedRows>>>,
}

#[async_trait]
impl ExtensionPlanner for SharedRowsPlanner {
    async fn plan_extension(
        &self,
        _: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        _: &dyn Session,
        _: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<Shared>() else {
            return Ok(None);
        };
        let number = node.number;
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = rows.entry(number).or_insert_with(|| {
            let rows = match node.recursion {
                Some(_) => SharedRows::of_iteration(),
                None => SharedRows::default(),
            };
            Arc::new(rows.of_values(node.are_values))
        });
        let rows = Arc::clone(rows);
        let schema = Arc::clone(node.rows.schema().inner());
        Ok(Some(Arc::new(match physical_inputs.first() {
            Some(input) => SharedRowsExec::making(schema, Arc::clone(input), rows, number),
            None => SharedRowsExec::reading(schema, rows, number),
        })))
    }
}
