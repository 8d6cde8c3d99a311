//! Comparisons with any, or with all, elements of a list.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, BooleanBuilder, UInt64Array,
};
use datafusion::arrow::compute::kernels::cmp;
use datafusion::arrow::compute::kernels::comparison::{ilike, like, nilike, nlike};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::utils::take_function_args;
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::expr_fn::in_list;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::binary::{comparison_coercion, like_coercion};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility, lit,
};

/// The scalar functions `any_of(value, operator, list)` and `all_of(value, operator, list)`: PostgreSQL's
/// `value operator ANY (list)` and `ALL (list)`. Operators are `=`, `<>`, `<`, `<=`, `>`, `>=`, and those of LIKE,
/// `~~`, `~~*`, `!~~` and `!~~*`.
///
/// As there, it is NULL if neither an element decides it nor all of them are known, and for a list that is NULL.
/// (DataFusion 55.2 takes NULLs in a list for elements that are not equal.)
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Quantified {
    signature: Signature,
    quantifier: Quantifier,
}

/// Of how many elements a comparison has to be true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quantifier {
    /// At least one.
    Any,
    /// All.
    All,
}

impl Quantified {
    /// The function for a quantifier.
    pub fn new(quantifier: Quantifier) -> Self {
        Self {
            signature: Signature::user_defined(Volatility::Immutable),
            quantifier,
        }
    }

    /// Of how many elements it asks.
    pub fn quantifier(&self) -> Quantifier {
        self.quantifier
    }

    /// What decides it: an element for which the comparison is that.
    fn decides(&self) -> bool {
        self.quantifier == Quantifier::Any
    }
}

impl ScalarUDFImpl for Quantified {
    fn name(&self) -> &'static str {
        match self.quantifier {
            Quantifier::Any => "any_of",
            Quantifier::All => "all_of",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [value, operator, list] = take_function_args(self.name(), types)?;
        let element = match list {
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                item.data_type().clone()
            }
            // A text is read as a list.
            DataType::Null => value.clone(),
            text if text.is_string() => value.clone(),
            other => return plan_err!("ANY and ALL take a list or a subquery, not {other}"),
        };
        let common =
            comparison_coercion(value, &element).or_else(|| like_coercion(value, &element));
        let Some(common) = common else {
            return plan_err!(
                "{value} cannot be compared with the elements of a list of {element}"
            );
        };
        let common = match common {
            DataType::Null => DataType::Utf8,
            other => other,
        };
        let list = DataType::List(Arc::new(Field::new_list_field(common.clone(), true)));
        let operator = match operator {
            DataType::Utf8 => DataType::Utf8,
            other if other.is_string() => DataType::Utf8,
            other => return plan_err!("{other} is no operator"),
        };
        Ok(vec![common, operator, list])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    /// Of a list that is known it is IN or NOT IN, by which segments are left out.
    fn simplify(&self, args: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let [
            value,
            Expr::Literal(operator, _),
            Expr::Literal(ScalarValue::List(list), _),
        ] = args.as_slice()
        else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        let is_in = operator.try_as_str() == Some(Some("=")) && self.decides();
        let is_not_in = operator.try_as_str() == Some(Some("<>")) && !self.decides();
        if list.is_null(0) || !(is_in || is_not_in) {
            return Ok(ExprSimplifyResult::Original(args));
        }
        let elements = list.value(0);
        if elements.is_empty() {
            return Ok(ExprSimplifyResult::Simplified(lit(is_not_in)));
        }
        let literals = (0..elements.len()).map(|element| {
            let element = ScalarValue::try_from_array(&elements, element)?;
            Ok(Expr::Literal(element, None))
        });
        let literals = literals.collect::<Result<Vec<_>>>()?;
        let membership = in_list(value.clone(), literals, is_not_in);
        Ok(ExprSimplifyResult::Simplified(membership))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [values, operator, lists] = take_function_args(self.name(), &args.args)?;
        let ColumnarValue::Scalar(operator) = operator else {
            return exec_err!("{}() takes a constant operator", self.name());
        };
        let Some(operator) = operator.try_as_str().flatten() else {
            return exec_err!("{}() takes an operator, not NULL", self.name());
        };
        let is_scalar = matches!(
            (values, lists),
            (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_))
        );
        let rows = if is_scalar { 1 } else { args.number_rows };
        let decided = self.compare(&values.to_array(rows)?, operator, &lists.to_array(rows)?)?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&decided, 0)?),
            false => ColumnarValue::Array(Arc::new(decided)),
        })
    }
}

impl Quantified {
    fn compare(&self, values: &ArrayRef, operator: &str, lists: &ArrayRef) -> Result<BooleanArray> {
        let lists = lists.as_list::<i32>();
        let offsets = lists.value_offsets();
        let (first, last) = (offsets[0] as usize, offsets[lists.len()] as usize);
        // Each value beside each element of its list.
        let beside = offsets.windows(2).enumerate().flat_map(|(row, bounds)| {
            std::iter::repeat_n(row as u64, (bounds[1] - bounds[0]) as usize)
        });
        let beside = take(values, &UInt64Array::from_iter_values(beside), None)?;
        let elements = lists.values().slice(first, last - first);
        let compared = compare(&beside, operator, &elements)?;
        let mut decided = BooleanBuilder::with_capacity(lists.len());
        for (row, bounds) in offsets.windows(2).enumerate() {
            if lists.is_null(row) {
                decided.append_null();
                continue;
            }
            let mut known = true;
            let mut is_decided = false;
            for element in bounds[0] as usize - first..bounds[1] as usize - first {
                match compared.is_valid(element) {
                    true if compared.value(element) == self.decides() => is_decided = true,
                    true => {}
                    false => known = false,
                }
            }
            match (is_decided, known) {
                (true, _) => decided.append_value(self.decides()),
                (false, true) => decided.append_value(!self.decides()),
                (false, false) => decided.append_null(),
            }
        }
        Ok(decided.finish())
    }
}

fn compare(left: &ArrayRef, operator: &str, right: &ArrayRef) -> Result<BooleanArray> {
    Ok(match operator {
        "=" => cmp::eq(left, right)?,
        "<>" | "!=" => cmp::neq(left, right)?,
        "<" => cmp::lt(left, right)?,
        "<=" => cmp::lt_eq(left, right)?,
        ">" => cmp::gt(left, right)?,
        ">=" => cmp::gt_eq(left, right)?,
        "~~" => like(left, right)?,
        "~~*" => ilike(left, right)?,
        "!~~" => nlike(left, right)?,
        "!~~*" => nilike(left, right)?,
        other => return exec_err!("ANY and ALL do not know the operator {other}"),
    })
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int32Array, ListArray};
    use datafusion::arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn nulls_are_unknown_and_no_element_decides_nothing() {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), Some(2)]),
            Some(vec![Some(1), None]),
            Some(vec![Some(2), None]),
            Some(vec![]),
            None,
            Some(vec![Some(1)]),
        ]);
        let values: ArrayRef = Arc::new(Int32Array::from(vec![
            Some(1),
            Some(1),
            Some(1),
            None,
            Some(1),
            None,
        ]));
        let lists: ArrayRef = Arc::new(lists);
        let of = |quantifier, operator, from: usize| {
            let (values, lists) = (values.slice(from, 6 - from), lists.slice(from, 6 - from));
            let compared = Quantified::new(quantifier).compare(&values, operator, &lists);
            compared.unwrap().iter().collect::<Vec<_>>()
        };
        let yes = Some(true);
        let no = Some(false);
        let any = [yes, yes, None, no, None, None];
        assert_eq!(of(Quantifier::Any, "=", 0), any);
        assert_eq!(of(Quantifier::Any, "=", 2), any[2..]);
        let all = [no, no, None, yes, None, None];
        assert_eq!(of(Quantifier::All, "<>", 0), all);
        assert_eq!(
            of(Quantifier::All, "<=", 0),
            [yes, None, None, yes, None, None]
        );
        assert!(
            Quantified::new(Quantifier::All)
                .compare(&values, "?", &lists)
                .is_err()
        );
    }
}
