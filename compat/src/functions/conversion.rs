//! Conversions of numbers that lose something.

use std::sync::Arc;

use datafusion::arrow::compute::CastOptions;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::arrow::util::display::FormatOptions;
use datafusion::common::utils::take_function_args;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

/// The scalar function that `CAST(value AS type)` and `TRY_CAST(value AS type)` are, where several numbers become one
/// or some do not fit.
///
/// DataFusion 55.2 compares the number itself with a constant, in plans and in scans: `CAST(1.23 AS DECIMAL(5, 1)) =
/// 1.2` was false (apache/datafusion issue 23095), and `CAST(1000000 AS SMALLINT) > 1` true (issue 14303). It does not
/// look into functions.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Conversion {
    to: DataType,
    tries: bool,
    signature: Signature,
}

impl Conversion {
    /// The conversion to `to`, which makes NULL of what does not fit if it only `tries`.
    pub fn new(to: DataType, tries: bool) -> Self {
        Self {
            to,
            tries,
            signature: Signature::any(1, Volatility::Immutable),
        }
    }

    /// The type that it converts to.
    pub fn to(&self) -> &DataType {
        &self.to
    }

    /// Whether it makes NULL of what does not fit.
    pub fn tries(&self) -> bool {
        self.tries
    }

    /// Whether a conversion from one of these types to the other loses something: digits after the point, or numbers
    /// that do not fit.
    pub fn loses(from: &DataType, to: &DataType) -> bool {
        match Digits::of_type(from).zip(Digits::of_type(to)) {
            Some((from, to)) => !from.fits_into(to),
            None => false,
        }
    }

    fn as_cast(&self, value: &Expr) -> Expr {
        let value = Box::new(value.clone());
        match self.tries {
            true => Expr::TryCast(TryCast::new(value, self.to.clone())),
            false => Expr::Cast(Cast::new(value, self.to.clone())),
        }
    }
}

/// The numbers of a type.
#[derive(Clone, Copy)]
struct Digits {
    /// Whether they may be negative.
    signed: bool,
    /// Decimal digits before the point that each of them has at most.
    most: i16,
    /// Decimal digits before the point with which all numbers are of this type.
    all: i16,
    /// Digits after the point.
    after: i16,
    /// Bits of whole numbers.
    bits: Option<usize>,
}

impl Digits {
    fn of_type(data_type: &DataType) -> Option<Self> {
        let whole = |signed, bits, most| Self {
            signed,
            most,
            all: most - 1,
            after: 0,
            bits: Some(bits),
        };
        Some(match data_type {
            DataType::Int8 => whole(true, 8, 3),
            DataType::Int16 => whole(true, 16, 5),
            DataType::Int32 => whole(true, 32, 10),
            DataType::Int64 => whole(true, 64, 19),
            DataType::UInt8 => whole(false, 8, 3),
            DataType::UInt16 => whole(false, 16, 5),
            DataType::UInt32 => whole(false, 32, 10),
            DataType::UInt64 => whole(false, 64, 20),
            DataType::Decimal128(precision, scale) => {
                let before = i16::from(*precision) - i16::from(*scale);
                Self {
                    signed: true,
                    most: before,
                    all: before,
                    after: i16::from(*scale),
                    bits: None,
                }
            }
            _ => return None,
        })
    }

    /// Whether all numbers of this type are some of the other.
    fn fits_into(self, other: Self) -> bool {
        match (self.bits, other.bits) {
            (Some(own), Some(others)) => match (self.signed, other.signed) {
                (true, false) => false,
                (false, true) => own < others,
                _ => own <= others,
            },
            _ => {
                let sign = other.signed || !self.signed;
                sign && self.after <= other.after && self.most <= other.all
            }
        }
    }
}

impl ScalarUDFImpl for Conversion {
    fn name(&self) -> &str {
        match self.tries {
            true => "try_cast",
            false => "cast",
        }
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        match args {
            [value] => Ok(self.as_cast(value).to_string()),
            _ => internal_err!("{} takes one value", self.name()),
        }
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        match args {
            [value] => Ok(self.as_cast(value).schema_name().to_string()),
            _ => internal_err!("{} takes one value", self.name()),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let nullable = self.tries || args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.to.clone(), nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = take_function_args(self.name(), args.args)?;
        let options = CastOptions {
            safe: self.tries,
            format_options: FormatOptions::default(),
        };
        value.cast_to(&self.to, Some(&options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_narrower_types_are_not_lost() {
        let decimal = |precision, scale| DataType::Decimal128(precision, scale);
        for (from, to) in [
            (DataType::Int32, DataType::Int64),
            (DataType::UInt32, DataType::Int64),
            (DataType::Int64, decimal(19, 0)),
            (decimal(10, 2), decimal(12, 4)),
            (decimal(18, 0), DataType::Int64),
            (DataType::Int64, DataType::Int64),
            (DataType::Utf8, DataType::Int64),
        ] {
            assert!(!Conversion::loses(&from, &to), "{from} to {to}");
        }
        for (from, to) in [
            (DataType::Int64, DataType::Int32),
            (DataType::UInt64, DataType::Int64),
            (DataType::Int8, DataType::UInt64),
            (DataType::Int64, decimal(20, 2)),
            (decimal(10, 2), decimal(12, 1)),
            (decimal(10, 2), decimal(11, 4)),
            (decimal(19, 0), DataType::Int64),
        ] {
            assert!(Conversion::loses(&from, &to), "{from} to {to}");
        }
    }
}
