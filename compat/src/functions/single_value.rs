//! `single_value`: the value of a scalar subquery that is planned as a join.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, UInt64Type};
use datafusion::common::{Result, ScalarValue, exec_err, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};

/// The aggregate function `single_value(value) → value`: the value of the only row, NULL if there is
/// none, an error if there are more.
///
/// A scalar subquery that becomes a join would otherwise return each row of the query once for each
/// of its own.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct SingleValue {
    signature: Signature,
}

impl Default for SingleValue {
    fn default() -> Self {
        Self {
            signature: Signature::any(1, Volatility::Immutable),
        }
    }
}

impl AggregateUDFImpl for SingleValue {
    fn name(&self) -> &'static str {
        "single_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [argument] => Ok(argument.clone()),
            _ => internal_err!("single_value takes one argument"),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let value = args.return_field.as_ref().clone();
        let value = value.with_name(format!("{}[value]", args.name));
        let rows = Field::new(format!("{}[rows]", args.name), DataType::UInt64, false);
        Ok(vec![value.with_nullable(true).into(), rows.into()])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Single {
            value: ScalarValue::try_from(args.return_type())?,
            rows: 0,
        }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

#[derive(Debug)]
struct Single {
    value: ScalarValue,
    rows: u64,
}

impl Single {
    /// `rows` more rows, the first of them with the value at `place` of `values`.
    fn add(&mut self, rows: u64, values: &dyn Array, place: usize) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        self.rows += rows;
        if self.rows > 1 {
            return exec_err!("Scalar subquery returned more than one row");
        }
        self.value = ScalarValue::try_from_array(values, place)?;
        Ok(())
    }
}

impl Accumulator for Single {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values[0].len() as u64, &values[0], 0)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value.clone())
    }

    fn size(&self) -> usize {
        size_of_val(self) - size_of_val(&self.value) + self.value.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![
            self.value.clone(),
            ScalarValue::UInt64(Some(self.rows)),
        ])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let rows: &UInt64Array = states[1].as_primitive::<UInt64Type>();
        for (place, rows) in rows.values().iter().enumerate() {
            self.add(*rows, &states[0], place)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::Int64Array;

    use super::*;

    fn single() -> Single {
        Single {
            value: ScalarValue::Int64(None),
            rows: 0,
        }
    }

    fn column(values: &[Option<i64>]) -> Vec<ArrayRef> {
        vec![Arc::new(values.iter().copied().collect::<Int64Array>())]
    }

    fn merged(states: Vec<Vec<ScalarValue>>) -> Result<ScalarValue> {
        let mut whole = single();
        for state in states {
            let state: Vec<_> = state.iter().map(|s| s.to_array().unwrap()).collect();
            whole.merge_batch(&state)?;
        }
        whole.evaluate()
    }

    #[test]
    fn one_row_has_its_value_none_has_null_and_more_are_an_error() {
        for (values, expected) in [
            (vec![], Some(None)),
            (vec![Some(7)], Some(Some(7))),
            (vec![None], Some(None)),
            (vec![Some(7), Some(7)], None),
            (vec![None, None], None),
        ] {
            let value = |mut single: Single| {
                single.update_batch(&column(&values))?;
                single.evaluate()
            };
            match (value(single()), expected) {
                (Ok(value), Some(expected)) => assert_eq!(value, ScalarValue::Int64(expected)),
                (Err(error), None) => assert!(error.to_string().contains("more than one row")),
                (value, expected) => panic!("{value:?} is not {expected:?}"),
            }
        }
    }

    #[test]
    fn rows_of_several_partitions_count_together() {
        let state = |values: &[Option<i64>]| {
            let mut part = single();
            part.update_batch(&column(values)).unwrap();
            part.state().unwrap()
        };
        let one = merged(vec![state(&[]), state(&[Some(7)]), state(&[])]).unwrap();
        assert_eq!(one, ScalarValue::Int64(Some(7)));
        assert!(merged(vec![state(&[None]), state(&[Some(7)])]).is_err());
    }
}
