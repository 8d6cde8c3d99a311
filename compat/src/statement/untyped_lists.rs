//! Texts beside lists: `list = '{1,2}'`.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable};
use datafusion::sql::sqlparser::ast::BinaryOperator;

/// Reads a text that is compared with a list as a list of that type, as PostgreSQL does: DataFusion finds no
/// common type.
#[derive(Debug)]
pub struct ReadsLists;

impl ExprPlanner for ReadsLists {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let compares = matches!(
            expr.op,
            BinaryOperator::Eq
                | BinaryOperator::NotEq
                | BinaryOperator::Lt
                | BinaryOperator::LtEq
                | BinaryOperator::Gt
                | BinaryOperator::GtEq
        );
        if compares && is_text(&expr.right) {
            expr.right = read(expr.right, &expr.left, schema)?;
        } else if compares && is_text(&expr.left) {
            expr.left = read(expr.left, &expr.right, schema)?;
        }
        Ok(PlannerResult::Original(expr))
    }
}

fn is_text(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(value, _) if value.data_type().is_string())
}

fn read(text: Expr, other: &Expr, schema: &DFSchema) -> Result<Expr> {
    Ok(match other.get_type(schema)? {
        list @ (DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..)) => {
            Expr::Cast(Cast::new(Box::new(text), list))
        }
        _ => text,
    })
}
