//! The table functions `backward_trace` and `forward_trace`.

use std::sync::Arc;

use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::Expr;
use datafusion::prelude::SessionContext;

use crate::isolation::expanded::{ExpandedTable, Expansion};
use crate::sampling::is_sampled;
use crate::store::Store;

/// Adds the functions to a session.
pub(crate) fn register(store: &Arc<Store>, context: &SessionContext) {
    for direction in [Direction::Backward, Direction::Forward] {
        let store = Arc::clone(store);
        let name = direction.name();
        context.register_udtf(name, Arc::new(Trace { store, direction }));
    }
    context.register_udf(is_sampled());
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    Backward,
    Forward,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Direction::Backward => "backward_trace",
            Direction::Forward => "forward_trace",
        }
    }
}

#[derive(Debug)]
struct Trace {
    store: Arc<Store>,
    direction: Direction,
}

impl TableFunctionImpl for Trace {
    fn call_with_args(
        &self,
        arguments: TableFunctionArgs<'_, '_>,
    ) -> Result<Arc<dyn TableProvider>> {
        let arguments = arguments.exprs();
        let expansion = match self.direction {
            Direction::Backward => match arguments {
                [query_id, output_row] => {
                    integer(query_id)
                        .zip(integer(output_row))
                        .map(|(query_id, output_row)| Expansion::BackwardTrace {
                            query_id,
                            output_row,
                        })
                }
                _ => None,
            },
            Direction::Forward => match arguments {
                [query_id, table, row_id] => {
                    match (integer(query_id), text(table), integer(row_id)) {
                        (Some(query_id), Some(table), Some(row_id)) => {
                            Some(Expansion::ForwardTrace {
                                query_id,
                                table,
                                row_id,
                            })
                        }
                        _ => None,
                    }
                }
                _ => None,
            },
        };
        match (expansion, self.direction) {
            (Some(expansion), _) => Ok(Arc::new(ExpandedTable::new(
                Arc::clone(&self.store),
                expansion,
            ))),
            (None, Direction::Backward) => plan_err!(
                "backward_trace takes a query id and the number of a result row, from 0, \
                 as constants: backward_trace(7, 0); last_query_id() is NULL before the \
                 session's first query"
            ),
            (None, Direction::Forward) => plan_err!(
                "forward_trace takes a query id, the name of a table and a row id, \
                 as constants: forward_trace(7, 'main.t', 129707)"
            ),
        }
    }
}

fn constant(expression: &Expr) -> Option<&ScalarValue> {
    match expression {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}

fn integer(expression: &Expr) -> Option<i64> {
    match constant(expression)?.cast_to(&datafusion::arrow::datatypes::DataType::Int64) {
        Ok(ScalarValue::Int64(value)) => value,
        _ => None,
    }
}

fn text(expression: &Expr) -> Option<String> {
    match constant(expression)? {
        ScalarValue::Utf8(text) | ScalarValue::LargeUtf8(text) | ScalarValue::Utf8View(text) => {
            text.clone()
        }
        _ => None,
    }
}
