//! Which operators evaluate expressions that may take long for a row, so that they get their input in slices.
//!
//! [`is_costly`](crate::costly::is_costly) says the same of logical expressions, more exactly: it tells what is
//! worth timing, while a slice costs little.

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Operator, ScalarUDF};
use datafusion::physical_expr::expressions::{BinaryExpr, LikeExpr};
use datafusion::physical_expr::{HigherOrderFunctionExpr, PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use skewer_compat::functions::arithmetic::Arithmetic;
use skewer_compat::functions::conversion::Conversion;
use skewer_compat::functions::octet_length::OctetLength;
use skewer_compat::functions::row_numbers::RowNumbers;
use skewer_compat::functions::scalar_or_error::ScalarOrError;
use skewer_compat::functions::zones::{AddInterval, ReadTime, ShowTime, Timezone};
use skewer_exec::{CarriedState, FirstSeen, Int32RowId, RecordColumn, RowCapture, SampledRowId};

use crate::costly::{is_built_in, varies_in_size};

/// Whether an operator evaluates an expression on the rows of an input, with this schema, that may take long
/// for a row: a function of the user's, a function of values that vary in size, a pattern.
pub fn evaluates_costly(plan: &dyn ExecutionPlan, input: &Schema) -> bool {
    let mut costly = false;
    let walked = plan.apply_expressions(&mut |expression| {
        costly |= is_costly(expression, input);
        Ok(match costly {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    });
    // Slices do no harm.
    costly || walked.is_err()
}

fn is_costly(expression: &Arc<dyn PhysicalExpr>, input: &Schema) -> bool {
    let found = expression.exists(|node| {
        if let Some(function) = node.downcast_ref::<ScalarFunctionExpr>() {
            return Ok(may_take_long(function, input));
        }
        let binary = node.downcast_ref::<BinaryExpr>();
        Ok(node.is::<LikeExpr>()
            || node.is::<HigherOrderFunctionExpr>()
            || binary.is_some_and(|binary| {
                matches!(
                    binary.op(),
                    Operator::RegexMatch
                        | Operator::RegexIMatch
                        | Operator::RegexNotMatch
                        | Operator::RegexNotIMatch
                        | Operator::LikeMatch
                        | Operator::ILikeMatch
                        | Operator::NotLikeMatch
                        | Operator::NotILikeMatch
                )
            }))
    });
    found.unwrap_or(true)
}

/// Whether a function is one of those that come with Skewer, which take about the same for each row.
pub(crate) fn is_own(function: &ScalarUDF) -> bool {
    let inner = function.inner();
    inner.is::<AddInterval>()
        || inner.is::<Arithmetic>()
        || inner.is::<CarriedState>()
        || inner.is::<Conversion>()
        || inner.is::<FirstSeen>()
        || inner.is::<Int32RowId>()
        || inner.is::<OctetLength>()
        || inner.is::<ScalarOrError>()
        || inner.is::<RecordColumn>()
        || inner.is::<ReadTime>()
        || inner.is::<RowCapture>()
        || inner.is::<RowNumbers>()
        || inner.is::<SampledRowId>()
        || inner.is::<ShowTime>()
        || inner.is::<Timezone>()
}

fn may_take_long(function: &ScalarFunctionExpr, input: &Schema) -> bool {
    if is_own(function.fun()) {
        return false;
    }
    // What a function returns may be long where its arguments are not: `repeat('x', n)`.
    let varies = |argument: &Arc<dyn PhysicalExpr>| {
        let data_type = argument.data_type(input);
        data_type.map_or(true, |data_type| varies_in_size(&data_type))
    };
    !is_built_in(function.fun())
        || varies_in_size(function.return_type())
        || function.args().iter().any(varies)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field};
    use datafusion::logical_expr::{Expr, col, lit};
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::filter::FilterExec;
    use datafusion::prelude::SessionContext;

    use super::*;

    fn filter(predicate: Expr) -> bool {
        let schema = Arc::new(Schema::new(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("s", DataType::Utf8, true),
        ]));
        let of_names = datafusion::common::DFSchema::try_from(Arc::clone(&schema)).unwrap();
        let context = SessionContext::new();
        let predicate = context.create_physical_expr(predicate, &of_names).unwrap();
        let input = Arc::new(EmptyExec::new(Arc::clone(&schema)));
        let filter = FilterExec::try_new(predicate, input).unwrap();
        evaluates_costly(&filter, &schema)
    }

    #[test]
    fn functions_of_what_varies_in_size_are_costly() {
        use datafusion::functions::expr_fn::{abs, levenshtein, repeat};
        assert!(!filter(col("n").gt(lit(1_i64))));
        assert!(!filter(abs(col("n")).gt(lit(1_i64))));
        assert!(!filter(col("s").eq(lit("x"))));
        assert!(filter(col("s").like(lit("%x%"))));
        assert!(filter(levenshtein(col("s"), lit("x")).gt(lit(1))));
        let long = repeat(lit("x"), col("n")).eq(lit("x"));
        assert!(filter(col("n").gt(lit(1_i64)).and(long)));
    }
}
