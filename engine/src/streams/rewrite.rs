//! A continuous query → the ordinary query that a micro-batch runs.
//!
//! The stream's place in FROM gets a subquery with the rows of the micro-batch, and windows become
//! `date_bin`. The result is SQL that anybody can run.

use std::ops::ControlFlow;

use datafusion::arrow::datatypes::Schema;
use datafusion::sql::sqlparser::ast::{
    self, Expr, Ident, ObjectNamePart, Query, SetExpr, TableAlias, TableFactor,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use skewer_sql::Statement;
use skewer_sql::quote::identifier;
use skewer_sql::row_ids::ROW_ID;
use skewer_sql::stream_text::interval_text;

use super::window::{Closing, Edge, Windows, timestamp, window_call};
use crate::error::Error;

/// The column of the subquery that has the begin of a sliding window.
const WINDOW: &str = "_window";

/// Row ids from the first to the second, which is not included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowRange {
    pub(crate) from: i64,
    pub(crate) to: i64,
}

impl RowRange {
    /// The condition that a row is in the range.
    pub(crate) fn condition(self) -> String {
        format!("{ROW_ID} >= {} AND {ROW_ID} < {}", self.from, self.to)
    }
}

/// The stream as a query reads it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamTable<'a> {
    /// As SQL writes it.
    pub(crate) name: &'a str,
    pub(crate) columns: &'a Schema,
    /// The column with the time of the event.
    pub(crate) time: Option<&'a str>,
}

/// Which rows of a stream a micro-batch reads.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rows {
    /// Each row by itself.
    Each(RowRange),
    /// The rows of windows that are complete.
    Windows(RowRange, Windows, Closing),
}

/// The query that a micro-batch runs.
pub(crate) fn batch_query(
    query: &Query,
    stream: StreamTable<'_>,
    rows: Rows,
) -> Result<Box<Query>, Error> {
    let mut query = Box::new(query.clone());
    let subquery = subquery(&rows_of(stream, rows)?)?;
    let SetExpr::Select(select) = &mut *query.body else {
        return Err(Error::Internal(
            "a continuous query is no SELECT".to_owned(),
        ));
    };
    let Some(TableFactor::Table { name, alias, .. }) =
        select.from.first_mut().map(|from| &mut from.relation)
    else {
        return Err(Error::Internal("the stream is not in FROM".to_owned()));
    };
    let last = name.0.last().and_then(ObjectNamePart::as_ident).cloned();
    let alias = alias.take().or_else(|| {
        last.map(|name| TableAlias {
            explicit: true,
            name,
            columns: Vec::new(),
            at: None,
        })
    });
    let qualifier = alias.as_ref().map(|alias| alias.name.clone());
    select.from[0].relation = TableFactor::Derived {
        lateral: false,
        subquery,
        alias,
        sample: None,
    };
    if let (Rows::Windows(..), Some(time), Some(qualifier)) = (rows, stream.time, qualifier) {
        replace_windows(&mut query, &qualifier, time)?;
    }
    Ok(query)
}

/// The SQL of the stream's rows that a micro-batch reads.
fn rows_of(stream: StreamTable<'_>, rows: Rows) -> Result<String, Error> {
    let columns = stream.columns.fields().iter();
    let columns: Vec<String> = columns.map(|field| identifier(field.name())).collect();
    let (columns, name) = (columns.join(", "), stream.name);
    let (range, windows, closing) = match rows {
        Rows::Each(range) => {
            let condition = range.condition();
            return Ok(format!("SELECT {columns} FROM {name} WHERE {condition}"));
        }
        Rows::Windows(range, windows, closing) => (range, windows, closing),
    };
    let Some(time) = stream.time.map(identifier) else {
        return Err(Error::Internal("windows without a time".to_owned()));
    };
    let mut condition = format!(
        "{} AND {time} < {}",
        range.condition(),
        timestamp(closing.end(windows))
    );
    if let Some(first) = closing.first_row(windows) {
        condition = format!("{condition} AND {time} >= {}", timestamp(first));
    }
    if !windows.is_sliding() {
        return Ok(format!("SELECT {columns} FROM {name} WHERE {condition}"));
    }
    let slide = interval_text(windows.slide);
    let begins: Vec<String> = (0..windows.of_a_row())
        .map(|n| match n {
            0 => format!("date_bin({slide}, {time})"),
            n => format!(
                "date_bin({slide}, {time}) - {}",
                interval_text(n * windows.slide)
            ),
        })
        .collect();
    let mut is_in = format!(
        "{WINDOW} > {time} - {} AND {WINDOW} <= {}",
        interval_text(windows.size),
        timestamp(closing.last)
    );
    if let Some(after) = closing.after {
        is_in = format!("{is_in} AND {WINDOW} > {}", timestamp(after));
    }
    Ok(format!(
        "SELECT * FROM (SELECT {columns}, unnest([{}]) AS {WINDOW} FROM {name} WHERE {condition}) WHERE {is_in}",
        begins.join(", ")
    ))
}

fn subquery(sql: &str) -> Result<Box<Query>, Error> {
    match skewer_sql::parse(sql)? {
        Statement::Query(query) => Ok(query),
        _ => Err(Error::Internal(format!("not a query: {sql}"))),
    }
}

/// Puts what they mean into the places of window functions.
fn replace_windows(query: &mut Query, qualifier: &Ident, time: &str) -> Result<(), Error> {
    let mut wrong = None;
    let _ = ast::visit_expressions_mut(query, |expr| {
        let call = match window_call(expr) {
            Ok(Some(call)) => call,
            Ok(None) => return ControlFlow::Continue(()),
            Err(error) => {
                wrong = Some(error);
                return ControlFlow::Break(());
            }
        };
        let begin = match call.windows.is_sliding() {
            true => format!("{qualifier}.{WINDOW}"),
            false => {
                let slide = interval_text(call.windows.slide);
                format!("date_bin({slide}, {qualifier}.{})", identifier(time))
            }
        };
        let sql = match call.edge {
            Edge::Begin => begin,
            Edge::End => format!("({begin} + {})", interval_text(call.windows.size)),
        };
        match expression(&sql) {
            Ok(new) => *expr = new,
            Err(error) => wrong = Some(error),
        }
        ControlFlow::Continue(())
    });
    wrong.map_or(Ok(()), Err)
}

fn expression(sql: &str) -> Result<Expr, Error> {
    Parser::new(&GenericDialect {})
        .try_with_sql(sql)
        .and_then(|mut parser| parser.parse_expr())
        .map_err(|error| Error::Internal(format!("{sql}: {error}")))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field};

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn rewritten(sql: &str, rows: Rows) -> String {
        let columns = Schema::new(vec![
            Field::new("ts", DataType::Int64, false),
            Field::new("A", DataType::Int64, true),
        ]);
        let stream = StreamTable {
            name: "main.s",
            columns: &columns,
            time: Some("ts"),
        };
        let query = subquery(sql).unwrap();
        batch_query(&query, stream, rows).unwrap().to_string()
    }

    #[test]
    fn the_stream_becomes_the_rows_of_the_batch() {
        let range = RowRange { from: 5, to: 9 };
        assert_eq!(
            rewritten(
                "SELECT s.ts FROM s JOIN t ON t.a = s.\"A\"",
                Rows::Each(range)
            ),
            "SELECT s.ts FROM (SELECT ts, \"A\" FROM main.s WHERE _row_id >= 5 AND _row_id < 9) AS s \
             JOIN t ON t.a = s.\"A\""
        );
    }

    #[test]
    fn windows_become_rows_of_windows_that_close() {
        let range = RowRange { from: 0, to: 9 };
        let windows = Windows {
            size: 60 * SECOND,
            slide: 60 * SECOND,
        };
        let closing = Closing {
            after: Some(0),
            last: 60 * SECOND,
        };
        assert_eq!(
            rewritten(
                "SELECT tumble(ts, INTERVAL '1 minute'), count(*) FROM main.s AS x GROUP BY 1",
                Rows::Windows(range, windows, closing)
            ),
            "SELECT date_bin(INTERVAL '60 seconds', x.ts), count(*) FROM (SELECT ts, \"A\" FROM main.s \
             WHERE _row_id >= 0 AND _row_id < 9 AND ts < TIMESTAMP '1970-01-01 00:02:00' \
             AND ts >= TIMESTAMP '1970-01-01 00:01:00') AS x GROUP BY 1"
        );
    }
}
