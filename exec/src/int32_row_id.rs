//! Row ids that fit into 32 bits.
//!
//! Operators copy the columns of their rows, exchanges twice and joins once more, and what they copy empties
//! the caches. Below joins the ids of tables that have no larger ones take half of the bytes.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int32Type, Int64Type};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use multiversion::multiversion;

/// `narrow_id(BIGINT) → INTEGER`: a row id that is known to fit.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Int32RowId {
    signature: Signature,
}

impl Default for Int32RowId {
    fn default() -> Self {
        Self {
            signature: Signature::exact(vec![DataType::Int64], Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for Int32RowId {
    fn name(&self) -> &str {
        "narrow_id"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int32)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), DataType::Int32, nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [ids] = arrays.as_slice() else {
            return internal_err!("narrow_id takes one argument");
        };
        Ok(ColumnarValue::Array(Arc::new(narrowed(
            ids.as_primitive(),
        )?)))
    }
}

fn narrowed(ids: &Int64Array) -> Result<Int32Array> {
    let mut narrow = vec![0; ids.len()];
    let lost = truncate(ids.values(), &mut narrow);
    if lost && ids.iter().flatten().any(|id| i32::try_from(id).is_err()) {
        return internal_err!("narrow_id: a row id has more than 32 bits");
    }
    Ok(Int32Array::new(narrow.into(), ids.nulls().cloned()))
}

/// Keeps 32 bits of each id, and says whether one has more.
#[multiversion(targets("x86_64+avx2"))]
fn truncate(ids: &[i64], narrow: &mut [i32]) -> bool {
    let mut lost = 0;
    for (id, narrow) in ids.iter().zip(narrow) {
        // Those that fit are from 0 to 2³² - 1 then.
        lost |= id.wrapping_sub(i64::from(i32::MIN)) as u64 >> 32;
        *narrow = *id as i32;
    }
    lost != 0
}

/// Ids of records as they are logged, whether or not [`Int32RowId`] has made them shorter.
pub(crate) fn widened(ids: &ArrayRef) -> ArrayRef {
    match ids.as_primitive_opt::<Int32Type>() {
        Some(narrow) => {
            let wide: Int64Array = narrow.unary(i64::from);
            Arc::new(wide)
        }
        None => Arc::clone(ids),
    }
}

/// The same of a column that has ids alone.
pub(crate) fn wide_ids(column: &ArrayRef) -> Result<Int64Array> {
    match widened(column).as_primitive_opt::<Int64Type>() {
        Some(ids) => Ok(ids.clone()),
        None => internal_err!("record level: {} is no record", column.data_type()),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::StringArray;

    use super::*;

    #[test]
    fn ids_come_back_as_they_were() {
        let ids = Int64Array::from(vec![Some(0), None, Some(i64::from(i32::MAX)), Some(7)]);
        let narrow: ArrayRef = Arc::new(narrowed(&ids).unwrap());
        assert_eq!(narrow.data_type(), &DataType::Int32);
        assert_eq!(wide_ids(&narrow).unwrap(), ids);
        let wide: ArrayRef = Arc::new(ids.clone());
        assert_eq!(wide_ids(&wide).unwrap(), ids);
        let text: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
        assert!(wide_ids(&text).is_err());
    }

    #[test]
    fn an_id_that_does_not_fit_is_an_error() {
        let large = i64::from(i32::MAX) + 1;
        assert!(narrowed(&Int64Array::from(vec![1, large])).is_err());
        let small = i64::from(i32::MIN);
        assert!(narrowed(&Int64Array::from(vec![1, small - 1])).is_err());
        assert!(narrowed(&Int64Array::from(vec![small, large - 1])).is_ok());
        // What is behind a NULL is no id.
        let nulls = vec![true, false].into();
        let ids = Int64Array::new(vec![1, large].into(), Some(nulls));
        assert_eq!(narrowed(&ids).unwrap().null_count(), 1);
    }
}
