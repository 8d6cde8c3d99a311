//! What the columns of `unnest` in FROM are called, and of which types they are.

use crate::statement::table_functions::{name_columns, with_times};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::ExprSchemable;
use datafusion::logical_expr::planner::{
    RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::sql::sqlparser::ast::{Expr, TableFactor};

/// Names the columns of lists in FROM after the table, as PostgreSQL does. Of a struct each field is a
/// column, which has its name. Series of dates are of timestamps.
#[derive(Debug)]
pub struct NamesUnnested;

impl RelationPlanner for NamesUnnested {
    fn plan_relation(
        &self,
        mut relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        if let TableFactor::UNNEST { array_exprs, .. } = &mut relation {
            for list in array_exprs {
                with_times(list, |time| {
                    let data_type = type_of(time, context);
                    matches!(data_type, Some(DataType::Date32 | DataType::Date64))
                });
            }
        }
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

fn is_list(value: &Expr, context: &mut dyn RelationPlannerContext) -> bool {
    if matches!(value, Expr::Array(_)) {
        return true;
    }
    let data_type = type_of(value, context);
    data_type.is_some_and(|data_type| !matches!(data_type, DataType::Struct(_)))
}

/// None of what cannot be planned: its error is for DataFusion to tell.
fn type_of(value: &Expr, context: &mut dyn RelationPlannerContext) -> Option<DataType> {
    let nothing = DFSchema::empty();
    let planned = context.sql_expr_to_logical_expr(value.clone(), &nothing);
    planned.and_then(|value| value.get_type(&nothing)).ok()
}
