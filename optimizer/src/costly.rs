//! Which expressions can make one record slower than another.
//!
//! Arithmetic, comparisons and functions of fixed-width values take the same few nanoseconds
//! for every record: timing them costs more than they do and can blame nobody. So do functions that
//! read so much of a value as literals say, and functions of what these return. What can is a function
//! of values that vary in size, one that returns as much as a number says, a pattern, or a function that
//! the user registered.

use std::collections::HashSet;
use std::sync::LazyLock;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::execution::SessionStateDefaults;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, ScalarUDF};
use skewer_compat::functions::arithmetic::Arithmetic;
use skewer_compat::functions::conversion::Conversion;
use skewer_compat::functions::patterns::EscapedPattern;
use skewer_compat::functions::quantified::Quantified;
use skewer_compat::functions::read_array::ReadArray;
use skewer_compat::functions::scalar_or_error::ScalarOrError;
use skewer_compat::functions::zones::{AddInterval, ReadTime, ShowTime, Timezone};

/// Names of the functions that come with DataFusion.
static BUILT_IN: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let functions = SessionStateDefaults::default_scalar_functions();
    functions.iter().map(|f| f.name().to_owned()).collect()
});

/// Whether a function comes with the database: no user registered it.
pub(crate) fn is_built_in(function: &ScalarUDF) -> bool {
    let inner = function.inner();
    inner.is::<ReadArray>()
        || inner.is::<EscapedPattern>()
        || inner.is::<Quantified>()
        || BUILT_IN.contains(function.name())
}

/// Whether `expr`, over rows of `schema`, is worth timing. Expressions that contain a subquery
/// are not: their plan is not the row's work.
pub fn is_costly(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    let mut costly = false;
    let mut subquery = false;
    expr.apply(|node| {
        match node {
            Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) => subquery = true,
            Expr::ScalarFunction(function) if is_of_one_size(function) => {}
            Expr::ScalarFunction(function) => {
                costly |= !is_built_in(&function.func)
                    || returns_as_much_as_a_number_says(function)
                    || !reads_a_bounded_part(function) && !has_bounded_args(function, schema)?;
            }
            Expr::Like(_) | Expr::SimilarTo(_) => costly = true,
            Expr::BinaryExpr(BinaryExpr { op, .. }) => {
                costly |= matches!(
                    op,
                    Operator::RegexMatch
                        | Operator::RegexIMatch
                        | Operator::RegexNotMatch
                        | Operator::RegexNotIMatch
                        | Operator::LikeMatch
                        | Operator::ILikeMatch
                        | Operator::NotLikeMatch
                        | Operator::NotILikeMatch
                ) || *op == Operator::StringConcat && !is_bounded(node, schema)?;
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(costly && !subquery)
}

/// Whether a function takes as long for each record: what was an operator or a cast, or a value that
/// is there.
fn is_of_one_size(function: &ScalarFunction) -> bool {
    let function = function.func.inner();
    function.is::<ScalarOrError>()
        || function.is::<Arithmetic>()
        || function.is::<Conversion>()
        || function.is::<Timezone>()
        || function.is::<ReadTime>()
        || function.is::<ShowTime>()
        || function.is::<AddInterval>()
}

/// Whether a built-in function reads only so much of its value as literals say, or only its
/// length: `left(s, 2)`, `substr(s, 1, 4)`, `starts_with(s, 'x')`, `octet_length(s)`.
/// (DataFusion's `left` and `right` also look whether all of a value is ASCII, many bytes at once, which
/// does not count here.)
fn reads_a_bounded_part(function: &ScalarFunction) -> bool {
    let bounded = matches!(
        function.name(),
        "left" | "right" | "substr" | "substring" | "starts_with" | "ends_with" | "octet_length"
    );
    let literal = |expr: &Expr| matches!(expr, Expr::Literal(..));
    // `substr(s, 3)` and `left(s, -1)` go on to the end.
    let open_ended = function.name().starts_with("substr") && function.args.len() < 3
        || function.args.iter().skip(1).any(
            |arg| matches!(arg, Expr::Literal(value, _) if value.to_string().starts_with('-')),
        );
    bounded && !open_ended && function.args.iter().skip(1).all(literal)
}

/// Whether a built-in function returns more the greater one of its arguments is, and that is no literal:
/// `repeat('x', n)`, `range(n)`.
fn returns_as_much_as_a_number_says(function: &ScalarFunction) -> bool {
    let grows = matches!(
        function.name(),
        "array_repeat" | "array_resize" | "generate_series" | "lpad" | "range" | "repeat" | "rpad"
    );
    let literal = |arg: &Expr| matches!(arg, Expr::Literal(..));
    grows && !function.args.iter().all(literal)
}

fn has_bounded_args(function: &ScalarFunction, schema: &DFSchema) -> Result<bool> {
    for arg in &function.args {
        if !is_bounded(arg, schema)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether no row's value is longer than the expression itself says.
fn is_bounded(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    Ok(match expr {
        Expr::Literal(..) => true,
        Expr::Alias(alias) => is_bounded(&alias.expr, schema)?,
        Expr::Cast(cast) => is_bounded(&cast.expr, schema)?,
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::StringConcat,
            right,
        }) => is_bounded(left, schema)? && is_bounded(right, schema)?,
        Expr::ScalarFunction(function) => {
            !varies_in_size(&expr.get_type(schema)?)
                || BUILT_IN.contains(function.name())
                    && !returns_as_much_as_a_number_says(function)
                    && (reads_a_bounded_part(function) || has_bounded_args(function, schema)?)
        }
        _ => !varies_in_size(&expr.get_type(schema)?),
    })
}

/// Whether one value of a type can be far longer than another.
pub(crate) fn varies_in_size(data_type: &DataType) -> bool {
    !(data_type.is_primitive()
        || matches!(
            data_type,
            DataType::Boolean | DataType::Null | DataType::FixedSizeBinary(_)
        ))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::common::ToDFSchema;
    use datafusion::functions::expr_fn::{
        abs, concat, date_part, left, repeat, right, substr, upper,
    };
    use datafusion::functions_nested::expr_fn::{make_array, range};
    use datafusion::logical_expr::{col, lit};

    use super::*;

    #[test]
    fn only_what_varies_with_the_record_is_costly() {
        let schema = Schema::new(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("s", DataType::Utf8, true),
            Field::new("d", DataType::Date32, true),
        ])
        .to_dfschema()
        .unwrap();
        for (expr, expected) in [
            (col("n") + lit(1_i64), false),
            (abs(col("n")).gt(lit(3_i64)), false),
            (col("s").eq(lit("x")), false),
            (upper(col("s")), true),
            (left(col("s"), lit(2_i64)), false),
            (left(col("s"), lit(-2_i64)), true),
            (left(col("s"), col("n")), true),
            (substr(col("s"), lit(2_i64)), true),
            (left(upper(col("s")), lit(2_i64)), true),
            (upper(left(col("s"), lit(2_i64))), false),
            (
                make_array(vec![
                    left(col("s"), lit(5_i64)),
                    right(col("s"), lit(4_i64)),
                ]),
                false,
            ),
            (make_array(vec![col("s")]), true),
            (concat(vec![left(col("s"), lit(2_i64)), col("s")]), true),
            (repeat(left(col("s"), lit(2_i64)), col("n")), true),
            (repeat(lit("x"), col("n")), true),
            (upper(repeat(lit("x"), lit(3_i64))), false),
            (range(lit(0_i64), col("n"), lit(1_i64)), true),
            (date_part(lit("year"), col("d")), false),
            (date_part(col("s"), col("d")), true),
            (col("s").like(lit("%x%")).and(col("n").gt(lit(1_i64))), true),
        ] {
            assert_eq!(is_costly(&expr, &schema).unwrap(), expected, "{expr}");
        }
    }
}
