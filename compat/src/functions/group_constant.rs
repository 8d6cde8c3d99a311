//! `any_value`: the value of a column that is the same in all rows of a group.

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, UInt64Array, new_empty_array};
use datafusion::arrow::compute::{concat, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};

/// The aggregate function `any_value(value) → value`: that of one row of each group, bit for bit. Only
/// for aggregates with GROUP BY, whose groups all have rows.
///
/// To group by such a column would return something else: of 0.0 and -0.0 one, and dictionaries that
/// are made anew. DataFusion's `first_value` has an accumulator for each group.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct GroupConstant {
    signature: Signature,
}

impl Default for GroupConstant {
    fn default() -> Self {
        Self {
            signature: Signature::any(1, Volatility::Immutable),
        }
    }
}

impl AggregateUDFImpl for GroupConstant {
    fn name(&self) -> &'static str {
        "any_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [argument] => Ok(argument.clone()),
            _ => internal_err!("any_value takes one argument"),
        }
    }

    /// NULL only where the argument is.
    fn return_field(&self, arguments: &[FieldRef]) -> Result<FieldRef> {
        match arguments {
            [argument] => Ok(argument.as_ref().clone().with_name(self.name()).into()),
            _ => internal_err!("any_value takes one argument"),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let name = format!("{}[value]", args.name);
        let value = Field::new(name, args.return_field.data_type().clone(), true);
        Ok(vec![value.into()])
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        internal_err!("any_value is only for aggregates with GROUP BY")
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs) -> bool {
        true
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(AnyValues {
            parts: vec![new_empty_array(args.return_type())],
            groups: 0,
        }))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// The values of groups that have not been emitted, in order.
#[derive(Debug)]
struct AnyValues {
    /// At least one.
    parts: Vec<ArrayRef>,
    groups: usize,
}

impl AnyValues {
    /// Takes the values of the groups that are new.
    fn add(&mut self, values: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        let [values] = values else {
            return internal_err!("any_value takes one argument");
        };
        if total == self.groups {
            return Ok(());
        }
        let mut first = vec![None; total - self.groups];
        for (row, group) in groups.iter().enumerate() {
            if let Some(first @ None) = group
                .checked_sub(self.groups)
                .and_then(|new| first.get_mut(new))
            {
                *first = Some(row as u64);
            }
        }
        let rows: UInt64Array = first.into_iter().collect();
        if rows.null_count() > 0 {
            return internal_err!("any_value: {} groups have no rows", rows.null_count());
        }
        self.parts.push(take(values, &rows, None)?);
        self.groups = total;
        Ok(())
    }

    fn emit(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let parts: Vec<&dyn Array> = self.parts.iter().map(AsRef::as_ref).collect();
        let all = concat(&parts)?;
        let emitted = match emit_to {
            EmitTo::All => self.groups,
            EmitTo::First(groups) => groups.min(self.groups),
        };
        self.groups -= emitted;
        self.parts = vec![all.slice(emitted, self.groups)];
        Ok(all.slice(0, emitted))
    }
}

impl GroupsAccumulator for AnyValues {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        _opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.add(values, group_indices, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.emit(emit_to)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.emit(emit_to)?])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.add(values, group_indices, total_num_groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        _opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        Ok(values.to_vec())
    }

    fn size(&self) -> usize {
        let bytes = |part: &ArrayRef| part.to_data().get_slice_memory_size().unwrap_or(0);
        size_of_val(self) + self.parts.iter().map(bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{AsArray, Float64Array};
    use datafusion::arrow::datatypes::Float64Type;

    use super::*;

    fn column(values: &[Option<f64>]) -> Vec<ArrayRef> {
        vec![Arc::new(values.iter().copied().collect::<Float64Array>())]
    }

    fn texts(array: &ArrayRef) -> Vec<String> {
        let values = array.as_primitive::<Float64Type>().iter();
        values.map(|value| format!("{value:?}")).collect()
    }

    #[test]
    fn each_group_has_the_value_of_its_first_row_whatever_order_groups_come_in() {
        let mut all = AnyValues {
            parts: vec![new_empty_array(&DataType::Float64)],
            groups: 0,
        };
        // The second row is of a group with a higher number than the third's.
        let first = column(&[Some(-0.0), None, Some(2.0), Some(0.0)]);
        all.update_batch(&first, &[0, 2, 1, 0], None, 3).unwrap();
        all.update_batch(&column(&[Some(9.0)]), &[1], None, 3)
            .unwrap();
        let emitted = all.evaluate(EmitTo::First(1)).unwrap();
        assert_eq!(texts(&emitted), ["Some(-0.0)"]);
        // What was group 1 is group 0 now.
        let more = column(&[Some(7.0), Some(8.0), Some(7.0)]);
        all.merge_batch(&more, &[0, 2, 1], 3).unwrap();
        assert_eq!(
            texts(&all.evaluate(EmitTo::All).unwrap()),
            ["Some(2.0)", "None", "Some(8.0)"]
        );
        assert_eq!(all.groups, 0);
        assert!(all.update_batch(&first, &[0, 0, 0, 0], None, 2).is_err());
    }
}
