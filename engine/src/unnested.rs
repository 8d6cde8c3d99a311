//! What the columns of `unnest` in FROM are called.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::ExprSchemable;
use datafusion::logical_expr::planner::{
    RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::sql::sqlparser::ast::{Expr, TableFactor};
use skewer_sql::from_functions::name_columns;

/// Names the columns of lists in FROM after the table, as PostgreSQL does. Of a struct each field is a
/// column, which has its name.
#[derive(Debug)]
pub(crate) struct NamesUnnested;

impl RelationPlanner for NamesUnnested {
    fn plan_relation(
        &self,
        mut relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        if let TableFactor::UNNEST {
            alias: Some(alias),
            array_exprs,
            ..
        } = &mut relation
            && alias.columns.len() < array_exprs.len()
            && array_exprs.iter().all(|list| is_list(list, context))
        {
            name_columns(alias, array_exprs.len());
        }
        Ok(RelationPlanning::Original(Box::new(relation)))
    }
}

/// What cannot be planned is none: its error is for DataFusion to tell.
fn is_list(value: &Expr, context: &mut dyn RelationPlannerContext) -> bool {
    if matches!(value, Expr::Array(_)) {
        return true;
    }
    let nothing = DFSchema::empty();
    let planned = context.sql_expr_to_logical_expr(value.clone(), &nothing);
    let value = planned.and_then(|value| value.get_type(&nothing));
    value.is_ok_and(|value| !matches!(value, DataType::Struct(_)))
}
