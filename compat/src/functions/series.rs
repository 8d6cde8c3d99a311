//! `generate_series` and `range` in FROM, of integers of any size.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::catalog::{TableFunction, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_table::all_default_table_functions;
use datafusion::logical_expr::Expr;
use datafusion::prelude::SessionContext;

/// Has a session's series take what PostgreSQL's take: DataFusion's take BIGINT alone, and timestamps to the
/// nanosecond.
pub fn register(context: &SessionContext) {
    for function in all_default_table_functions() {
        let name = function.name().to_owned();
        context.register_udtf(&name, Arc::new(Series(function)));
    }
}

#[derive(Debug)]
struct Series(Arc<TableFunction>);

impl TableFunctionImpl for Series {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let exprs = widened(args.exprs())?;
        let args = TableFunctionArgs::new(&exprs, args.session());
        self.0.create_table_provider_with_args(args)
    }
}

/// The constants as the types that DataFusion's series take.
fn widened(arguments: &[Expr]) -> Result<Vec<Expr>> {
    let of_times = matches!(arguments.first(), Some(Expr::Literal(first, _)) if is_time(first));
    let widened = arguments.iter().map(|argument| {
        let Expr::Literal(value, metadata) = argument else {
            return Ok(argument.clone());
        };
        let value = match value.data_type() {
            integer if integer.is_integer() && value.is_null() => ScalarValue::Null,
            integer if integer.is_integer() => value.cast_to(&DataType::Int64)?,
            DataType::Timestamp(_, zone) => {
                value.cast_to(&DataType::Timestamp(TimeUnit::Nanosecond, zone))?
            }
            text if of_times && text.is_string() => {
                value.cast_to(&DataType::Interval(IntervalUnit::MonthDayNano))?
            }
            _ => value.clone(),
        };
        Ok(Expr::Literal(value, metadata.clone()))
    });
    widened.collect()
}

fn is_time(value: &ScalarValue) -> bool {
    matches!(
        value.data_type(),
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64
    )
}
