//! INTERSECT ALL and EXCEPT ALL, which DataFusion 55.2 takes for questions of whether a row has an equal one on
//! the other side, not of how many.
//!
//! Of rows that are equal, each is numbered, on both sides, and is looked for with its number: of three rows
//! and two equal ones on the other side, INTERSECT ALL has two and EXCEPT ALL one.
//!
//! ```text
//! LeftSemi Join: t.a = u.b       Projection: t.a
//!   TableScan: t             →     LeftSemi Join: t.a = u.b, __equal_1 = __equal_2
//!   TableScan: u                     WindowAggr: row_number() PARTITION BY [t.a] AS __equal_1
//!                                      TableScan: t
//!                                    WindowAggr: row_number() PARTITION BY [u.b] AS __equal_2
//!                                      TableScan: u
//! ```

use std::sync::Arc;

use datafusion::common::alias::AliasGenerator;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DataFusionError, NullEquality, Result};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{
    Distinct, Expr, ExprFunctionExt, Join, JoinType, LogicalPlan, LogicalPlanBuilder,
};

/// How the columns begin that number equal rows.
const NUMBER: &str = "__equal";

/// `plan`, as SQL was planned, with as many rows of INTERSECT ALL and EXCEPT ALL as the standard says.
///
/// # Errors
/// Those of building a plan.
pub fn expand_bag_set_operations(plan: LogicalPlan) -> Result<LogicalPlan> {
    let aliases = AliasGenerator::new();
    let counted = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Join(join) if is_of_all(&join) => {
            counted(join, &aliases).map(Transformed::yes)
        }
        node => Ok(Transformed::no(node)),
    })?;
    Ok(counted.data)
}

/// Whether the planner made it of INTERSECT ALL or EXCEPT ALL. (Where the left side has no equal rows there is
/// nothing to count. A join that is written as one finds no NULL equal to another.)
fn is_of_all(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.filter.is_none()
        && join.on.len() == join.left.schema().fields().len()
        && !matches!(join.left.as_ref(), LogicalPlan::Distinct(Distinct::All(_)))
        && !is_counted(join)
}

/// Whether it is what [`counted`] has made of one, in a view.
fn is_counted(join: &Join) -> bool {
    join.on.last().is_some_and(|(left, _)| match left {
        Expr::Column(column) => column.name.starts_with(NUMBER),
        _ => false,
    })
}

fn counted(join: Join, aliases: &AliasGenerator) -> Result<LogicalPlan> {
    let columns: Vec<Expr> = join.schema.columns().into_iter().map(Expr::from).collect();
    let (left_keys, right_keys): (Vec<Expr>, Vec<Expr>) = join.on.into_iter().unzip();
    let numbered = |side: &LogicalPlan, keys: &[Expr]| {
        let name = aliases.next(NUMBER);
        let number = row_number().partition_by(keys.to_vec()).build()?;
        let side = LogicalPlanBuilder::from(side.clone());
        let side = side.window(vec![number.alias(&name)])?.build()?;
        Ok::<_, DataFusionError>((side, name))
    };
    let (left, left_number) = numbered(&join.left, &left_keys)?;
    let (right, right_number) = numbered(&join.right, &right_keys)?;
    let number = |name: String| Expr::from(Column::from_name(name));
    let mut on: Vec<(Expr, Expr)> = left_keys.into_iter().zip(right_keys).collect();
    on.push((number(left_number), number(right_number)));
    let join = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        None,
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?;
    let join = LogicalPlanBuilder::from(LogicalPlan::Join(join));
    join.project(columns)?.build()
}
