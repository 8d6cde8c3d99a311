//! What stands behind the terms of a query of `WITH RECURSIVE`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Cte, ObjectNamePart, SetExpr, SetOperator, visit_relations};
use datafusion::sql::sqlparser::parser::ParserError;

use crate::statement::names::fold;

/// Puts a union of `WITH RECURSIVE` that has ORDER BY, LIMIT or OFFSET in parentheses, as DataFusion would
/// leave these out.
///
/// # Errors
/// That it is recursive: PostgreSQL has none of them there either.
pub fn parenthesize(cte: &mut Cte) -> ControlFlow<ParserError> {
    let query = cte.query.as_mut();
    let is_union = matches!(
        query.body.as_ref(),
        SetExpr::SetOperation {
            op: SetOperator::Union,
            ..
        }
    );
    let is_plain =
        query.order_by.is_none() && query.limit_clause.is_none() && query.fetch.is_none();
    if !is_union || is_plain {
        return ControlFlow::Continue(());
    }
    let name = fold(&cte.alias.name);
    let names_itself = visit_relations(&query.body, |relation| {
        let ident = match relation.0.as_slice() {
            [part] => ObjectNamePart::as_ident(part),
            _ => None,
        };
        match ident.is_some_and(|ident| fold(ident) == name) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    if names_itself.is_break() {
        let place = cte.alias.name.span.start;
        return ControlFlow::Break(ParserError::ParserError(format!(
            "{name} is recursive: ORDER BY, LIMIT and OFFSET stand in the query that reads it, or in parentheses \
             around one of its terms{place}"
        )));
    }
    let union = Box::new(query.clone());
    query.with = None;
    *query.body = SetExpr::Query(union);
    query.order_by = None;
    query.limit_clause = None;
    query.fetch = None;
    ControlFlow::Continue(())
}
