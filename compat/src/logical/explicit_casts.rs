//! Casts that mean to Arrow what they do not mean to PostgreSQL.
//!
//! * From a time without zone, or a text, to `TIMESTAMP WITH TIME ZONE`: the time is one of the session's zone,
//!   and may be one that the zone skips or repeats, which Arrow refuses.
//! * From `TIMESTAMP WITH TIME ZONE` to a time without: that of the session's zone. Arrow gives that of UTC.
//! * From a timestamp to a text: as PostgreSQL writes it. Arrow writes a `T` and, for an instant, its zone's offset
//!   with minutes.
//! * From a text to a list: an array literal. Arrow makes a list of the one text.
//!
//! They become calls of functions, which no later rule takes for casts: DataFusion 55.2 moves casts to the
//! other side of comparisons as if times with and without zone were the same numbers (apache/datafusion
//! issues 13212, 25095 and 25166).

use std::sync::Arc;

use crate::functions::read_array::ReadArray;
use crate::functions::read_array::dimensions;
use crate::functions::zones::UTC;
use crate::functions::zones::{AddInterval, ReadTime, ShowTime, Timezone};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF, ScalarUDFImpl,
    TryCast, lit,
};
use datafusion::optimizer::AnalyzerRule;

/// See the [module](self). It follows the coercion of types, whose casts it sees.
#[derive(Debug)]
pub struct ExplicitCasts;

impl AnalyzerRule for ExplicitCasts {
    fn name(&self) -> &'static str {
        "explicit_casts"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let session = config.execution.time_zone.as_deref().unwrap_or(UTC);
        let explicit = plan.transform_up_with_subqueries(|node| explicit(node, session))?;
        Ok(explicit.data)
    }
}

fn explicit(node: LogicalPlan, session: &str) -> Result<Transformed<LogicalPlan>> {
    let mut concerned = false;
    node.apply_expressions(|expression| {
        concerned = concerned || expression.exists(|part| Ok(may_concern(part)))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !concerned {
        return Ok(Transformed::no(node));
    }
    let mut scope = merge_schema(&node.inputs());
    if let LogicalPlan::TableScan(scan) = &node {
        let columns = scan.source.schema();
        let name = scan.table_name.clone();
        scope.merge(&DFSchema::try_from_qualified_schema(name, &columns)?);
    }
    let names = NamePreserver::new(&node);
    let rewritten = node.map_expressions(|expression| {
        let name = names.save(&expression);
        let rewritten = expression.transform_up(|part| said(part, &scope, session))?;
        Ok(rewritten.update_data(|expression| name.restore(expression)))
    })?;
    match rewritten.transformed {
        true => rewritten.map_data(LogicalPlan::recompute_schema),
        false => Ok(rewritten),
    }
}

/// A sum, a number as a timestamp, or a cast from or to a type that matters.
fn may_concern(part: &Expr) -> bool {
    match part {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => {
            return matches!(op, Operator::Plus | Operator::Minus);
        }
        Expr::ScalarFunction(function) => {
            return number_unit(function.func.name()).is_some() || is_epoch(function);
        }
        _ => {}
    }
    let (Expr::Cast(Cast { field, .. }) | Expr::TryCast(TryCast { field, .. })) = part else {
        return false;
    };
    matches!(
        field.data_type(),
        DataType::Timestamp(..)
            | DataType::Date32
            | DataType::Date64
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
    ) || dimensions(field.data_type()) > 0
}

/// Of times with and without zone Arrow subtracts the numbers that they are. What is added to an instant it refuses
/// if the zone's clocks skip or repeat what comes of it.
fn sum(operation: BinaryExpr, scope: &DFSchema, session: &str) -> Result<Transformed<Expr>> {
    // Parameters of lambda functions are not in scope.
    let types = operation.left.get_type(scope).ok();
    let types = types.zip(operation.right.get_type(scope).ok());
    let Some(types) = types else {
        return Ok(Transformed::no(Expr::BinaryExpr(operation)));
    };
    let BinaryExpr { left, op, right } = operation;
    let later = |time: Expr, interval: Expr| -> Result<Transformed<Expr>> {
        let args = vec![time, interval, lit(session)];
        Ok(Transformed::yes(called(AddInterval::default(), args)))
    };
    let (left, right, is_mixed) = match types {
        (DataType::Timestamp(_, Some(_)), DataType::Interval(_)) if !is_utc(session) => {
            return match op {
                Operator::Plus => later(*left, *right),
                _ => later(*left, Expr::Negative(right)),
            };
        }
        (DataType::Interval(_), DataType::Timestamp(_, Some(_)))
            if !is_utc(session) && op == Operator::Plus =>
        {
            return later(*right, *left);
        }
        (DataType::Timestamp(unit, None), DataType::Timestamp(_, Some(_))) => {
            let from = DataType::Timestamp(unit, None);
            (Box::new(instants(*left, &from, unit, session)), right, true)
        }
        (DataType::Timestamp(_, Some(_)), DataType::Timestamp(unit, None)) => {
            let from = DataType::Timestamp(unit, None);
            (left, Box::new(instants(*right, &from, unit, session)), true)
        }
        _ => (left, right, false),
    };
    let operation = Expr::BinaryExpr(BinaryExpr::new(left, op, right));
    Ok(Transformed::new_transformed(operation, is_mixed))
}

/// `to_timestamp` and its like take a whole number for seconds, or less, since 1970 in UTC; DataFusion 55.2 takes it
/// for a local time.
fn to_instant(
    function: ScalarFunction,
    scope: &DFSchema,
    session: &str,
) -> Result<Transformed<Expr>> {
    let unit = number_unit(function.func.name());
    let (Some(unit), [number]) = (unit, function.args.as_slice()) else {
        return Ok(Transformed::no(Expr::ScalarFunction(function)));
    };
    if is_utc(session) || !number.get_type(scope)?.is_integer() {
        return Ok(Transformed::no(Expr::ScalarFunction(function)));
    }
    let from = DataType::Timestamp(unit, Some(UTC.into()));
    let number = cast_to(number.clone(), &DataType::Null, from.clone());
    let to = Expr::ScalarFunction(function).get_type(scope)?;
    Ok(Transformed::yes(cast_to(number, &from, to)))
}

/// Whether it is `extract(epoch FROM …)`.
fn is_epoch(function: &ScalarFunction) -> bool {
    let part = function.args.first().and_then(|part| match part {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    });
    function.func.name() == "date_part" && part.is_some_and(|p| p.eq_ignore_ascii_case("epoch"))
}

/// The seconds of a difference of times. DataFusion 55.2 counts them in 32 bits, which gives NULL
/// beyond 68 years.
fn seconds(function: ScalarFunction, scope: &DFSchema) -> Result<Transformed<Expr>> {
    let difference = match function.args.as_slice() {
        [_, difference] => difference.get_type(scope).ok().zip(Some(difference)),
        _ => None,
    };
    let Some((DataType::Duration(unit), difference)) = difference else {
        return Ok(Transformed::no(Expr::ScalarFunction(function)));
    };
    let per_second = match unit {
        TimeUnit::Second => 1.0,
        TimeUnit::Millisecond => 1e3,
        TimeUnit::Microsecond => 1e6,
        TimeUnit::Nanosecond => 1e9,
    };
    let count = cast_to(difference.clone(), &DataType::Null, DataType::Int64);
    let count = cast_to(count, &DataType::Null, DataType::Float64);
    let seconds = BinaryExpr::new(Box::new(count), Operator::Divide, Box::new(lit(per_second)));
    Ok(Transformed::yes(Expr::BinaryExpr(seconds)))
}

/// What a function that makes timestamps takes numbers for.
fn number_unit(function: &str) -> Option<TimeUnit> {
    match function {
        "to_timestamp" | "to_timestamp_seconds" => Some(TimeUnit::Second),
        "to_timestamp_millis" => Some(TimeUnit::Millisecond),
        "to_timestamp_micros" => Some(TimeUnit::Microsecond),
        "to_timestamp_nanos" => Some(TimeUnit::Nanosecond),
        _ => None,
    }
}

/// What a cast means, or a sum, or a number as a timestamp.
fn said(part: Expr, scope: &DFSchema, session: &str) -> Result<Transformed<Expr>> {
    if !may_concern(&part) {
        return Ok(Transformed::no(part));
    }
    let part = match part {
        Expr::BinaryExpr(operation) => return sum(operation, scope, session),
        Expr::ScalarFunction(function) if is_epoch(&function) => return seconds(function, scope),
        Expr::ScalarFunction(function) => return to_instant(function, scope, session),
        cast => cast,
    };
    let (value, to, is_try) = match part {
        Expr::Cast(Cast { expr, field }) => (*expr, field, false),
        Expr::TryCast(TryCast { expr, field }) => (*expr, field, true),
        other => return Ok(Transformed::no(other)),
    };
    let cast = |value: Expr| match is_try {
        true => Expr::TryCast(TryCast::new_from_field(Box::new(value), Arc::clone(&to))),
        false => Expr::Cast(Cast::new_from_field(Box::new(value), Arc::clone(&to))),
    };
    let Ok(from) = value.get_type(scope) else {
        return Ok(Transformed::no(cast(value)));
    };
    let utc = is_utc(session);
    let said = match (&from, to.data_type()) {
        (text, list) if is_text(text) && dimensions(list) > 0 => {
            let read = ReadArray::new(dimensions(list));
            cast(called(read, vec![value, lit(is_try)]))
        }
        (text, DataType::Timestamp(..)) if is_text(text) => {
            // A text that is no time is an error of the function, not NULL.
            if is_try {
                return Ok(Transformed::no(cast(value)));
            }
            let read = ReadTime::new(to.data_type().clone());
            called(read, vec![value, lit(session)])
        }
        (from, DataType::Timestamp(unit, Some(_))) if is_local(from) => {
            if utc && is_of(to.data_type(), session) {
                return Ok(Transformed::no(cast(value)));
            }
            let value = instants(value, from, *unit, session);
            match is_of(to.data_type(), session) {
                true => value,
                false => cast(value),
            }
        }
        (DataType::Timestamp(unit, Some(zone)), to) if is_local(to) => {
            if utc && is_utc(zone) {
                return Ok(Transformed::no(cast(value)));
            }
            let local = DataType::Timestamp(*unit, None);
            let value = match utc {
                true => cast_to(value, &from, local.clone()),
                false => called(Timezone::new(session), vec![lit(session), value]),
            };
            match &local == to {
                true => value,
                false => cast(value),
            }
        }
        (DataType::Timestamp(..), text) if is_text(text) => {
            let shown = called(ShowTime::default(), vec![value, lit(session)]);
            match text == &DataType::Utf8 {
                true => shown,
                false => cast(shown),
            }
        }
        _ => return Ok(Transformed::no(cast(value))),
    };
    Ok(Transformed::yes(said))
}

/// Local times of the session's zone as instants, with so many of `unit`.
fn instants(value: Expr, from: &DataType, unit: TimeUnit, session: &str) -> Expr {
    let local = DataType::Timestamp(unit, None);
    let value = cast_to(value, from, local.clone());
    if is_utc(session) {
        let instants = DataType::Timestamp(unit, Some(session.into()));
        return cast_to(value, &local, instants);
    }
    called(Timezone::new(session), vec![lit(session), value])
}

fn cast_to(value: Expr, from: &DataType, to: DataType) -> Expr {
    match from == &to {
        true => value,
        false => Expr::Cast(Cast::new(Box::new(value), to)),
    }
}

fn called(function: impl ScalarUDFImpl + 'static, args: Vec<Expr>) -> Expr {
    let function = Arc::new(ScalarUDF::from(function));
    Expr::ScalarFunction(ScalarFunction::new_udf(function, args))
}

/// Whether it is a time without zone.
fn is_local(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Timestamp(_, None)
            | DataType::Date32
            | DataType::Date64
            | DataType::Time32(TimeUnit::Second | TimeUnit::Millisecond)
            | DataType::Time64(TimeUnit::Microsecond | TimeUnit::Nanosecond)
    )
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => is_text(value),
        other => other.is_string(),
    }
}

/// Whether instants of a type are shown in `zone`.
fn is_of(data_type: &DataType, zone: &str) -> bool {
    matches!(data_type, DataType::Timestamp(_, Some(own)) if own.as_ref() == zone)
}

/// Whether Arrow's casts are right for a zone.
fn is_utc(zone: &str) -> bool {
    matches!(zone, "UTC" | "+00:00" | "+00" | "Etc/UTC" | "Z")
}
