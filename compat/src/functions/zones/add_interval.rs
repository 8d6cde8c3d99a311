//! Instants some months, days and hours later.

use std::sync::Arc;

use chrono::{DateTime, Months, NaiveDateTime, TimeDelta};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::utils::take_function_args;
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use super::{UTC, instant, local_time, per_second, zone};

/// The scalar function `add_interval(instant, interval, zone TEXT)`: as in PostgreSQL, months and days are added to
/// what the clocks of the constant zone show, hours and what is less to the instant. (Arrow refuses a time of the
/// result that the zone skips or repeats.)
///
/// # Errors
/// When it runs: for a zone that there is not, and times beyond those of the type.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct AddInterval {
    signature: Signature,
}

impl Default for AddInterval {
    fn default() -> Self {
        Self {
            signature: Signature::any(3, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for AddInterval {
    fn name(&self) -> &'static str {
        "add_interval"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [
                instants @ DataType::Timestamp(_, Some(_)),
                DataType::Interval(_),
                _,
            ] => Ok(instants.clone()),
            other => plan_err!("add_interval() of {other:?}"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [instants, intervals, name] = take_function_args(self.name(), &args.args)?;
        let ColumnarValue::Scalar(name) = name else {
            return exec_err!("add_interval() takes a constant zone");
        };
        let zone = zone(name.try_as_str().flatten().unwrap_or(UTC))?;
        let data_type = instants.data_type();
        let DataType::Timestamp(unit, _) = data_type else {
            return exec_err!("add_interval() of {data_type}");
        };
        let is_scalar = matches!(
            (instants, intervals),
            (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_))
        );
        let rows = if is_scalar { 1 } else { args.number_rows };
        let instants = cast(&instants.to_array(rows)?, &DataType::Int64)?;
        let intervals = cast(
            &intervals.to_array(rows)?,
            &DataType::Interval(IntervalUnit::MonthDayNano),
        )?;
        let instants = instants.as_primitive::<Int64Type>().iter();
        let both = instants.zip(intervals.as_primitive::<IntervalMonthDayNanoType>());
        let later = both.map(|both| match both {
            (Some(time), Some(interval)) => match later(&zone, time, interval, unit) {
                Some(time) => Ok(Some(time)),
                None => exec_err!("timestamp out of range"),
            },
            _ => Ok(None),
        });
        let later: Int64Array = later.collect::<Result<_>>()?;
        let later = cast(&later, &data_type)?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&later, 0)?),
            false => ColumnarValue::Array(Arc::clone(&later)),
        })
    }
}

/// `None` beyond the times that there are.
fn later(zone: &Tz, time: i64, interval: IntervalMonthDayNano, unit: TimeUnit) -> Option<i64> {
    let scale = per_second(unit);
    let mut time = time;
    if interval.months != 0 {
        let months = Months::new(interval.months.unsigned_abs());
        time = on_clock(zone, time, scale, |clock| match interval.months > 0 {
            true => clock.checked_add_months(months),
            false => clock.checked_sub_months(months),
        })?;
    }
    if interval.days != 0 {
        let days = TimeDelta::try_days(interval.days.into())?;
        time = on_clock(zone, time, scale, |clock| clock.checked_add_signed(days))?;
    }
    time.checked_add(interval.nanoseconds / (1_000_000_000 / scale))
}

/// Changes what the clocks of a zone show at an instant; fractions of seconds stay.
fn on_clock(
    zone: &Tz,
    time: i64,
    scale: i64,
    change: impl Fn(NaiveDateTime) -> Option<NaiveDateTime>,
) -> Option<i64> {
    let local = local_time(zone, time, scale)?;
    let clock = DateTime::from_timestamp(local.div_euclid(scale), 0)?.naive_utc();
    let changed = change(clock)?.and_utc().timestamp().checked_mul(scale)?;
    instant(zone, changed.checked_add(local.rem_euclid(scale))?, scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_days_of_the_clock() {
        let zone = zone("America/New_York").unwrap();
        let seconds = |text: &str| {
            DateTime::parse_from_rfc3339(text)
                .unwrap()
                .timestamp_millis()
        };
        for (time, months, days, hours, expected) in [
            // Times that are skipped, or shown twice.
            (
                "2024-03-09T02:30:00-05:00",
                0,
                1,
                0,
                "2024-03-10T03:30:00-04:00",
            ),
            (
                "2024-11-02T01:30:00-04:00",
                0,
                1,
                0,
                "2024-11-03T01:30:00-05:00",
            ),
            (
                "2024-03-09T12:00:00.5-05:00",
                0,
                1,
                0,
                "2024-03-10T12:00:00.5-04:00",
            ),
            (
                "2024-03-09T12:00:00-05:00",
                0,
                0,
                24,
                "2024-03-10T13:00:00-04:00",
            ),
            (
                "2024-01-31T12:00:00-05:00",
                1,
                -1,
                1,
                "2024-02-28T13:00:00-05:00",
            ),
            (
                "2024-03-31T12:00:00-04:00",
                -1,
                0,
                0,
                "2024-02-29T12:00:00-05:00",
            ),
        ] {
            let interval = IntervalMonthDayNano::new(months, days, hours * 3_600_000_000_000);
            let found = later(&zone, seconds(time), interval, TimeUnit::Millisecond);
            assert_eq!(found, Some(seconds(expected)), "{time}");
        }
    }
}
