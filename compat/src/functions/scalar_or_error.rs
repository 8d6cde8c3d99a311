//! `only_value`: the value of a correlated scalar subquery that is planned as a join.

use datafusion::arrow::array::{Array, AsArray, UInt64Array};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::utils::take_function_args;
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

/// The scalar function `only_value(values) → value`: the element of a list that has one, NULL if it has
/// none or is NULL, an error if it has more.
///
/// The join with a correlated scalar subquery collects the rows of all values that its condition may
/// compare with. Only those that a row of the query around it is joined with may not be several.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ScalarOrError {
    signature: Signature,
}

impl Default for ScalarOrError {
    fn default() -> Self {
        Self {
            signature: Signature::any(1, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for ScalarOrError {
    fn name(&self) -> &'static str {
        "only_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [DataType::List(element)] => Ok(element.data_type().clone()),
            _ => plan_err!("only_value takes one list"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [lists] = take_function_args(self.name(), args.args)?;
        let lists = lists.into_array(args.number_rows)?;
        let lists = lists.as_list::<i32>();
        let mut places = Vec::with_capacity(lists.len());
        for (row, bounds) in lists.value_offsets().windows(2).enumerate() {
            places.push(match bounds[1] - bounds[0] {
                _ if lists.is_null(row) => None,
                0 => None,
                1 => Some(bounds[0] as u64),
                _ => return exec_err!("Scalar subquery returned more than one row"),
            });
        }
        let places = UInt64Array::from(places);
        Ok(ColumnarValue::Array(take(lists.values(), &places, None)?))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, Int64Array, ListArray};
    use datafusion::arrow::datatypes::{Field, Int64Type};
    use datafusion::config::ConfigOptions;

    use super::*;

    fn only_values(lists: &[Option<&[Option<i64>]>]) -> Result<ArrayRef> {
        let lists = lists.iter().map(|list| list.map(<[_]>::to_vec));
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
        let number_rows = lists.len();
        let result = ScalarOrError::default().invoke_with_args(ScalarFunctionArgs {
            arg_fields: vec![Arc::new(Field::new("l", lists.data_type().clone(), true))],
            args: vec![ColumnarValue::Array(lists)],
            number_rows,
            return_field: Arc::new(Field::new("v", DataType::Int64, true)),
            config_options: Arc::new(ConfigOptions::default()),
        })?;
        result.into_array(number_rows)
    }

    #[test]
    fn one_element_is_the_value_none_is_null_and_more_are_an_error() {
        let lists: [Option<&[_]>; 5] = [
            Some(&[Some(7)]),
            None,
            Some(&[]),
            Some(&[None]),
            Some(&[Some(8)]),
        ];
        let expected = Int64Array::from(vec![Some(7), None, None, None, Some(8)]);
        assert_eq!(only_values(&lists).unwrap().as_ref(), &expected);
        let error = only_values(&[Some(&[Some(7)]), Some(&[None, None])]).unwrap_err();
        assert!(error.to_string().contains("more than one row"), "{error}");
    }
}
