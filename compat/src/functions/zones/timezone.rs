//! `timezone(zone, time)`: `time AT TIME ZONE zone`.

use std::sync::Arc;

use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{ArrayRef, ArrowPrimitiveType, AsArray, Int64Array, PrimitiveArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::utils::take_function_args;
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{UTC, instant, local_time, per_second, zone};

/// The scalar function `timezone(zone TEXT, time)`, as in PostgreSQL:
///
/// * of an instant (`TIMESTAMP WITH TIME ZONE`), the local time of that zone then (`TIMESTAMP`);
/// * of a local time, the instant at which that zone has it. It is shown in the session's zone.
///
/// # Errors
/// When it runs: for a zone that there is not, and for times beyond those of the type.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Timezone {
    signature: Signature,
    session: Arc<str>,
}

impl Timezone {
    /// The function in a session of a zone.
    pub fn new(session: &str) -> Self {
        Self {
            signature: Signature::user_defined(Volatility::Immutable),
            session: session.into(),
        }
    }
}

impl Default for Timezone {
    fn default() -> Self {
        Self::new(UTC)
    }
}

impl ScalarUDFImpl for Timezone {
    fn name(&self) -> &'static str {
        "timezone"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let zone = config.execution.time_zone.as_deref();
        Some(Self::new(zone.unwrap_or(UTC)).into())
    }

    /// A date, or a text, is an instant, as PostgreSQL prefers it.
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [zone, time] = take_function_args(self.name(), types)?;
        if !zone.is_string() && !zone.is_null() {
            return plan_err!("timezone() takes the zone as text, not as {zone}");
        }
        let time = match time {
            DataType::Timestamp(..) => time.clone(),
            DataType::Date32 | DataType::Date64 | DataType::Null => self.instants(),
            text if text.is_string() => self.instants(),
            other => return plan_err!("timezone() takes a timestamp, not {other}"),
        };
        Ok(vec![DataType::Utf8, time])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [_, DataType::Timestamp(unit, Some(_))] => Ok(DataType::Timestamp(*unit, None)),
            [_, DataType::Timestamp(unit, None)] => {
                Ok(DataType::Timestamp(*unit, Some(Arc::clone(&self.session))))
            }
            other => plan_err!("timezone() takes a zone and a timestamp, not {other:?}"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [zones, times] = take_function_args(self.name(), &args.args)?;
        let DataType::Timestamp(unit, from) = times.data_type() else {
            return exec_err!("timezone() of {}", times.data_type());
        };
        let convert = match from {
            Some(_) => local_time,
            None => instant,
        };
        let scale = per_second(unit);
        let convert = |zone: &Tz, time: i64| match convert(zone, time, scale) {
            Some(time) => Ok(time),
            None => exec_err!("a time that is converted between zones is out of range"),
        };
        let rows = match (zones, times) {
            (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)) => 1,
            _ => args.number_rows,
        };
        let times = numbers(&times.to_array(rows)?, unit);
        let converted: Int64Array = match zones {
            ColumnarValue::Scalar(name) => match name.try_as_str().flatten() {
                Some(name) => {
                    let zone = zone(name)?;
                    times.try_unary(|time| convert(&zone, time))?
                }
                None => Int64Array::new_null(rows),
            },
            ColumnarValue::Array(names) => {
                let names = names.as_string::<i32>();
                let pairs = times.iter().zip(names);
                pairs
                    .map(|(time, name)| match (time, name) {
                        (Some(time), Some(name)) => convert(&zone(name)?, time).map(Some),
                        _ => Ok(None),
                    })
                    .collect::<Result<_>>()?
            }
        };
        let converted = cast(&converted, args.return_field.data_type())?;
        Ok(match (zones, args.args[1].clone()) {
            (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)) => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&converted, 0)?)
            }
            _ => ColumnarValue::Array(converted),
        })
    }
}

impl Timezone {
    fn instants(&self) -> DataType {
        DataType::Timestamp(TimeUnit::Nanosecond, Some(Arc::clone(&self.session)))
    }
}

/// Times as the numbers that they are stored as.
fn numbers(times: &ArrayRef, unit: TimeUnit) -> PrimitiveArray<Int64Type> {
    use datafusion::arrow::datatypes::{
        TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
        TimestampSecondType,
    };
    fn ticks_of<T: ArrowPrimitiveType<Native = i64>>(
        times: &ArrayRef,
    ) -> PrimitiveArray<Int64Type> {
        times.as_primitive::<T>().reinterpret_cast()
    }
    match unit {
        TimeUnit::Second => ticks_of::<TimestampSecondType>(times),
        TimeUnit::Millisecond => ticks_of::<TimestampMillisecondType>(times),
        TimeUnit::Microsecond => ticks_of::<TimestampMicrosecondType>(times),
        TimeUnit::Nanosecond => ticks_of::<TimestampNanosecondType>(times),
    }
}
