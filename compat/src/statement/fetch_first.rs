//! The first rows of a query: `FETCH FIRST … ROWS ONLY` and `… WITH TIES`, and subqueries in LIMIT and OFFSET,
//! said with plain LIMIT and with ranks.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Distinct, Expr, Fetch, Ident, LimitClause, OrderBy,
    OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, Spanned, Value, WindowSpec,
    WindowType, visit_expressions,
};
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::Location;

use crate::statement::desugar::select_from;
use crate::statement::function_calls::{call, called, differs_each_time};
use crate::statement::names::fold;

/// Says which rows of `query` are its first in words that DataFusion knows:
///
/// * `FETCH FIRST 3 ROWS ONLY` is `LIMIT 3`.
/// * `ORDER BY k FETCH FIRST 3 ROWS WITH TIES` is `QUALIFY rank() OVER (ORDER BY k) <= 3 ORDER BY k`; behind
///   `OFFSET 2` the rank is at most 5, and `row_number() OVER (ORDER BY k)` is more than 2.
/// * `ORDER BY k LIMIT (SELECT n FROM t)` is `QUALIFY row_number() OVER (ORDER BY k) <= (SELECT n FROM t)`.
///   Where the number is NULL there is no limit, as in PostgreSQL.
///
/// What has no room for QUALIFY, or sorts by what must not be computed twice, is put in parentheses:
/// `SELECT * FROM (…) QUALIFY …`.
///
/// # Errors
/// As in PostgreSQL, of LIMIT beside FETCH, of ties without ORDER BY and of an unknown number; of PERCENT; and
/// if ranks are by a column that the text does not name.
pub fn rewrite_limit(query: &mut Query) -> Result<(), ParserError> {
    let Some(fetch) = query.fetch.take() else {
        return say_limit(query);
    };
    let place = place_of(fetch.quantity.as_ref());
    let Fetch {
        with_ties,
        percent,
        quantity,
    } = fetch;
    if percent {
        return Err(error("FETCH takes a number of rows, not PERCENT", place));
    }
    let limit = quantity.unwrap_or_else(|| number(1));
    let offset = match query.limit_clause.take() {
        None => None,
        Some(LimitClause::LimitOffset {
            limit: None,
            offset,
            limit_by,
        }) if limit_by.is_empty() => offset,
        Some(_) => {
            let message = "LIMIT and FETCH say the same: one of them has to go";
            return Err(error(message, place));
        }
    };
    if !with_ties || literal(&limit) == Some(0) {
        query.limit_clause = Some(LimitClause::LimitOffset {
            limit: Some(limit),
            offset,
            limit_by: vec![],
        });
        return say_limit(query);
    }
    if query.order_by.is_none() {
        let message =
            "WITH TIES needs an ORDER BY: rows tie that have the same values in its columns";
        return Err(error(message, place));
    }
    if matches!(&limit, Expr::Value(value) if value.value == Value::Null) {
        let message = "FETCH … WITH TIES takes a number of rows, not NULL";
        return Err(error(message, place));
    }
    let keys = keys_within(query, place)?;
    let offset = offset.map(|offset| offset.value);
    keep(query, first_with_ties(keys, limit, offset));
    Ok(())
}

/// [`rewrite_limit`] of LIMIT and OFFSET.
fn say_limit(query: &mut Query) -> Result<(), ParserError> {
    let (limit, offset) = match &query.limit_clause {
        Some(LimitClause::LimitOffset {
            limit,
            offset,
            limit_by,
        }) if limit_by.is_empty() => {
            let offset = offset.as_ref().map(|offset| offset.value.clone());
            (limit.clone(), offset)
        }
        Some(LimitClause::OffsetCommaLimit { offset, limit }) => {
            (Some(limit.clone()), Some(offset.clone()))
        }
        _ => return Ok(()),
    };
    let asked = limit.iter().chain(&offset).find(|rows| has_subquery(rows));
    let Some(place) = asked.map(|rows| place_of(Some(rows))) else {
        return Ok(());
    };
    query.limit_clause = None;
    let keys = keys_within(query, place)?;
    keep(query, first(keys, limit, offset));
    Ok(())
}

/// Whether there is a subquery in it; one without FROM may only compute.
fn has_subquery(expr: &Expr) -> bool {
    let found = visit_expressions(expr, |expr| match expr {
        Expr::Subquery(query) if !names_without_from(query) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Whether it is `SELECT n` without FROM, which would be a column of the query around it.
fn names_without_from(query: &Query) -> bool {
    let is_name = |expr: &Expr| matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
    let names = |expr: &Expr| match is_name(expr) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    match query.body.as_ref() {
        SetExpr::Select(select) => {
            select.from.is_empty() && visit_expressions(&select.projection, names).is_break()
        }
        _ => false,
    }
}

/// Keeps the rows of a SELECT of which a condition over their ranks is true.
fn keep(query: &mut Query, condition: Expr) {
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.qualify = Some(condition);
    }
}

fn place_of(expr: Option<&Expr>) -> Option<Location> {
    let place = expr.map(|expr| expr.span().start);
    place.filter(|place| place.line > 0)
}

/// What the rows of `query` are sorted by, as its QUALIFY can say it: `query` is one with room for QUALIFY
/// then.
fn keys_within(
    query: &mut Query,
    place: Option<Location>,
) -> Result<Vec<OrderByExpr>, ParserError> {
    let mut keys = match &query.order_by {
        None => vec![],
        Some(order_by) => match &order_by.kind {
            OrderByKind::Expressions(keys) => keys.clone(),
            OrderByKind::All(_) => return Err(unnamed("ALL columns", place)),
        },
    };
    if needs_parentheses(query, &keys) {
        return parenthesize(query, keys, place);
    }
    if let SetExpr::Select(select) = query.body.as_ref() {
        // What QUALIFY takes for columns of tables may be names and places of the result.
        for key in &mut keys {
            let item = item_of(select, &key.expr);
            match item.and_then(|index| expression(&select.projection[index])) {
                Some(item) => key.expr = item.clone(),
                None if literal(&key.expr).is_some() => return Err(unknown_column(key, place)),
                None => {}
            }
        }
    }
    Ok(keys)
}

fn error(message: &str, place: Option<Location>) -> ParserError {
    let place = place.map(|place| place.to_string()).unwrap_or_default();
    ParserError::ParserError(format!("{message}{place}"))
}

fn unnamed(columns: &str, place: Option<Location>) -> ParserError {
    let message = format!(
        "rows are ranked by {columns}, which the text does not name: ORDER BY has to say the name"
    );
    error(&message, place)
}

fn unknown_column(key: &OrderByExpr, place: Option<Location>) -> ParserError {
    unnamed(&format!("column {}", key.expr), place)
}

/// Whether a condition over the ranks of the rows can only stand around the query.
fn needs_parentheses(query: &Query, keys: &[OrderByExpr]) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return true;
    };
    let unnests = call(&select.projection, |call| call.name == "unnest").is_some();
    if select.distinct.is_some() || select.qualify.is_some() || unnests {
        return true;
    }
    keys.iter().any(|key| {
        let key = &key.expr;
        match item_of(select, key).and_then(|index| expression(&select.projection[index])) {
            Some(item) => is_made_once(item) || differs_each_time(std::slice::from_ref(item)),
            None => is_made_once(key) || mentions_alias(select, key),
        }
    })
}

/// Whether there are windows or subqueries in it, which cannot be within windows.
fn is_made_once(expr: &Expr) -> bool {
    let expr = std::slice::from_ref(expr);
    let subquery = |expr: &Expr| match expr {
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    call(expr, |call| call.windowed).is_some() || visit_expressions(&expr[0], subquery).is_break()
}

/// Whether a part of a sort key has the name of an item.
fn mentions_alias(select: &Select, key: &Expr) -> bool {
    let is_alias = |name: &Ident| {
        select.projection.iter().any(|item| match item {
            SelectItem::ExprWithAlias { alias, .. } => fold(alias) == fold(name),
            _ => false,
        })
    };
    let found = visit_expressions(key, |part| match part {
        Expr::Identifier(name) if is_alias(name) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Which item a sort key is: by its place, its name, or as it is written.
fn item_of(select: &Select, key: &Expr) -> Option<usize> {
    let items = &select.projection;
    if let Some(position) = literal(key) {
        let index = usize::try_from(position).ok()?.checked_sub(1)?;
        let before = items.get(..=index)?;
        // Nobody knows how many columns a `*` is.
        let known = before.iter().all(|item| expression(item).is_some());
        return known.then_some(index);
    }
    let is_called = |item: &SelectItem| match key {
        Expr::Identifier(name) => name_of(item).is_some_and(|known| fold(known) == fold(name)),
        _ => false,
    };
    let is_written = |item: &SelectItem| expression(item) == Some(key);
    let place_of = |is: &dyn Fn(&SelectItem) -> bool| items.iter().position(is);
    place_of(&is_called).or_else(|| place_of(&is_written))
}

/// What an item is called, if it has a name.
fn name_of(item: &SelectItem) -> Option<&Ident> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(name),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names)) => names.last(),
        _ => None,
    }
}

fn expression(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

/// Makes `query` one over what it has been, but for its `WITH` and its order. Returns what its rows are
/// sorted by, as columns of what it has been: it gets those that it does not select.
fn parenthesize(
    query: &mut Query,
    mut keys: Vec<OrderByExpr>,
    place: Option<Location>,
) -> Result<Vec<OrderByExpr>, ParserError> {
    let by_order = query
        .order_by
        .clone()
        .filter(|_| chooses_by_order(&query.body));
    let mut hidden = Vec::new();
    for key in &mut keys {
        if let Some(name) = column_of(&mut query.body, &key.expr, place)? {
            key.expr = Expr::Identifier(name);
        } else if literal(&key.expr).is_some() {
            return Err(unknown_column(key, place));
        } else if let Some(items) = items_beside(&mut query.body, &key.expr) {
            let alias = Ident::with_quote('"', format!("__key_{}", hidden.len() + 1));
            hidden.push(alias.to_string());
            let expr = std::mem::replace(&mut key.expr, Expr::Identifier(alias.clone()));
            items.push(SelectItem::ExprWithAlias { expr, alias });
        } else if let Expr::CompoundIdentifier(names) = &key.expr
            && let Some(name) = names.last()
        {
            // `SELECT DISTINCT a … ORDER BY t.a`
            key.expr = Expr::Identifier(name.clone());
        }
    }
    let exclude = match hidden.is_empty() {
        true => String::new(),
        false => format!(" EXCLUDE ({})", hidden.join(", ")),
    };
    let with = query.with.take();
    let order_by = std::mem::replace(&mut query.order_by, by_order);
    select_from(query, &format!("*{exclude}"))?;
    query.with = with;
    query.order_by = order_by.map(|order_by| OrderBy {
        kind: OrderByKind::Expressions(keys.clone()),
        ..order_by
    });
    Ok(keys)
}

/// Whether it depends on the order which rows there are.
fn chooses_by_order(body: &SetExpr) -> bool {
    match body {
        SetExpr::Select(select) => matches!(select.distinct, Some(Distinct::On(_))),
        _ => false,
    }
}

/// The items of a SELECT that a sort key can stand beside: more columns make no more rows distinct, and there
/// it means the same.
fn items_beside<'a>(body: &'a mut SetExpr, key: &Expr) -> Option<&'a mut Vec<SelectItem>> {
    match body {
        SetExpr::Select(select)
            if matches!(select.distinct, None | Some(Distinct::On(_)))
                && !mentions_alias(select, key) =>
        {
            Some(&mut select.projection)
        }
        _ => None,
    }
}

/// The name of the column that a sort key is, which is given one if it has none.
fn column_of(
    body: &mut SetExpr,
    key: &Expr,
    place: Option<Location>,
) -> Result<Option<Ident>, ParserError> {
    match body {
        SetExpr::Select(select) => {
            let Some(index) = item_of(select, key) else {
                return Ok(None);
            };
            if let Some(name) = name_of(&select.projection[index]) {
                let items = select.projection.iter();
                let same = |known: &&Ident| fold(known) == fold(name);
                if items.filter_map(name_of).filter(same).count() > 1 {
                    let several = format!("column {name}, which is ambiguous");
                    return Err(unnamed(&several, place));
                }
                return Ok(Some(name.clone()));
            }
            let item = &mut select.projection[index];
            let SelectItem::UnnamedExpr(expr) = item else {
                return Ok(None);
            };
            let alias = Ident::with_quote('"', expr.to_string());
            *item = SelectItem::ExprWithAlias {
                expr: expr.clone(),
                alias: alias.clone(),
            };
            Ok(Some(alias))
        }
        SetExpr::Query(query) => column_of(&mut query.body, key, place),
        SetExpr::SetOperation { left, .. } => column_of(left, key, place),
        SetExpr::Values(_) => {
            Ok(literal(key).map(|position| Ident::new(format!("column{position}"))))
        }
        _ => Ok(None),
    }
}

/// Whether a row is one of the first `limit` behind the first `offset`, or ties with the last of them.
fn first_with_ties(keys: Vec<OrderByExpr>, limit: Expr, offset: Option<Expr>) -> Expr {
    let last = sum(&limit, offset.as_ref());
    let mut condition = compared(ranked("rank", keys.clone()), BinaryOperator::LtEq, last);
    if let Some(offset) = &offset {
        condition = all(behind(keys, offset), condition);
    }
    if literal(&limit).is_none() {
        let any = compared(count(&limit), BinaryOperator::Gt, number(0));
        condition = all(condition, any);
    }
    condition
}

/// Whether a row is one of the first `limit`, or of all, behind the first `offset`.
fn first(keys: Vec<OrderByExpr>, limit: Option<Expr>, offset: Option<Expr>) -> Expr {
    let within = limit.map(|limit| {
        let last = sum(&limit, offset.as_ref());
        let within = compared(
            ranked("row_number", keys.clone()),
            BinaryOperator::LtEq,
            last,
        );
        Expr::IsNotFalse(Box::new(Expr::Nested(Box::new(within))))
    });
    let behind = offset.map(|offset| behind(keys, &offset));
    let conditions = [behind, within].into_iter().flatten();
    conditions
        .reduce(all)
        .unwrap_or_else(|| Expr::value(Value::Boolean(true)))
}

fn behind(keys: Vec<OrderByExpr>, offset: &Expr) -> Expr {
    compared(
        ranked("row_number", keys),
        BinaryOperator::Gt,
        count_or_none(offset),
    )
}

/// How many rows there are up to the last of `limit` behind `offset`.
fn sum(limit: &Expr, offset: Option<&Expr>) -> Expr {
    match (literal(limit), offset, offset.and_then(literal)) {
        (_, None, _) => count(limit),
        (Some(limit), _, Some(offset)) => number(limit.saturating_add(offset)),
        (_, Some(offset), _) => compared(count(limit), BinaryOperator::Plus, count_or_none(offset)),
    }
}

fn all(left: Expr, right: Expr) -> Expr {
    compared(left, BinaryOperator::And, right)
}

/// A window function over all rows in an order.
fn ranked(function: &str, order_by: Vec<OrderByExpr>) -> Expr {
    let over = WindowSpec {
        window_name: None,
        partition_by: vec![],
        order_by,
        window_frame: None,
    };
    called(function, vec![], Some(WindowType::WindowSpec(over)))
}

fn compared(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }
}

/// A number of rows; of a parameter, this says its type.
fn count(rows: &Expr) -> Expr {
    match literal(rows) {
        Some(_) => rows.clone(),
        None => Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(rows.clone()),
            data_type: DataType::BigInt(None),
            array: false,
            format: None,
        },
    }
}

/// The same, and 0 for NULL.
fn count_or_none(rows: &Expr) -> Expr {
    match literal(rows) {
        Some(_) => rows.clone(),
        None => called("coalesce", vec![count(rows), number(0)], None),
    }
}

fn literal(expr: &Expr) -> Option<u64> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => number.parse().ok(),
            _ => None,
        },
        Expr::Nested(inner) => literal(inner),
        _ => None,
    }
}

fn number(number: u64) -> Expr {
    Expr::value(Value::Number(number.to_string(), false))
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn said(sql: &str) -> Result<String, String> {
        let parser = Parser::new(&GenericDialect {}).try_with_sql(sql);
        let mut query = parser.and_then(|mut parser| parser.parse_query()).unwrap();
        match rewrite_limit(&mut query) {
            Ok(()) => Ok(query.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_number_of_rows_is_a_limit_and_with_ties_a_rank() {
        for (sql, expected) in [
            (
                "SELECT a FROM t FETCH FIRST ROW ONLY",
                "SELECT a FROM t LIMIT 1",
            ),
            (
                "SELECT a FROM t ORDER BY a OFFSET 2 ROWS FETCH NEXT 3 ROWS ONLY",
                "SELECT a FROM t ORDER BY a LIMIT 3 OFFSET 2 ROWS",
            ),
            (
                "SELECT a FROM t ORDER BY b DESC FETCH FIRST 3 ROWS WITH TIES",
                "SELECT a FROM t QUALIFY rank() OVER (ORDER BY b DESC) <= 3 ORDER BY b DESC",
            ),
            (
                "SELECT a, b + 1 FROM t ORDER BY 2 OFFSET 1 FETCH FIRST 3 ROWS WITH TIES",
                "SELECT a, b + 1 FROM t QUALIFY row_number() OVER (ORDER BY b + 1) > 1 AND \
                 rank() OVER (ORDER BY b + 1) <= 4 ORDER BY 2",
            ),
            // A name is the result's before it is a table's.
            (
                "SELECT -a AS a FROM t ORDER BY a FETCH FIRST 3 ROWS WITH TIES",
                "SELECT -a AS a FROM t QUALIFY rank() OVER (ORDER BY -a) <= 3 ORDER BY a",
            ),
            (
                "SELECT a FROM t ORDER BY a FETCH FIRST 0 ROWS WITH TIES",
                "SELECT a FROM t ORDER BY a LIMIT 0",
            ),
            (
                "SELECT a FROM t ORDER BY a FETCH FIRST $1 ROWS WITH TIES",
                "SELECT a FROM t QUALIFY rank() OVER (ORDER BY a) <= CAST($1 AS BIGINT) AND \
                 CAST($1 AS BIGINT) > 0 ORDER BY a",
            ),
        ] {
            assert_eq!(said(sql).as_deref(), Ok(expected), "{sql}");
        }
    }

    #[test]
    fn what_has_no_room_for_a_condition_over_ranks_is_put_in_parentheses() {
        for (sql, expected) in [
            (
                "SELECT DISTINCT a + 1 FROM t ORDER BY a + 1 FETCH FIRST 3 ROWS WITH TIES",
                "SELECT * FROM (SELECT DISTINCT a + 1 AS \"a + 1\" FROM t) AS selected \
                 QUALIFY rank() OVER (ORDER BY \"a + 1\") <= 3 ORDER BY \"a + 1\"",
            ),
            (
                "SELECT a FROM t UNION SELECT b FROM u ORDER BY 1 FETCH FIRST 3 ROWS WITH TIES",
                "SELECT * FROM (SELECT a FROM t UNION SELECT b FROM u) AS selected \
                 QUALIFY rank() OVER (ORDER BY a) <= 3 ORDER BY a",
            ),
            (
                "WITH u AS (SELECT 1) VALUES (1), (2) ORDER BY 1 FETCH FIRST 3 ROWS WITH TIES",
                "WITH u AS (SELECT 1) SELECT * FROM (VALUES (1), (2)) AS selected \
                 QUALIFY rank() OVER (ORDER BY column1) <= 3 ORDER BY column1",
            ),
            // What is ranked is what is returned.
            (
                "SELECT random() AS r FROM t ORDER BY r FETCH FIRST 3 ROWS WITH TIES",
                "SELECT * FROM (SELECT random() AS r FROM t) AS selected \
                 QUALIFY rank() OVER (ORDER BY r) <= 3 ORDER BY r",
            ),
            // What is not selected is beside it.
            (
                "SELECT a, rank() OVER () AS r FROM t ORDER BY r, b FETCH FIRST 3 ROWS WITH TIES",
                "SELECT * EXCLUDE (\"__key_1\") FROM \
                 (SELECT a, rank() OVER () AS r, b AS \"__key_1\" FROM t) AS selected \
                 QUALIFY rank() OVER (ORDER BY r, \"__key_1\") <= 3 ORDER BY r, \"__key_1\"",
            ),
            (
                "SELECT DISTINCT a FROM t ORDER BY t.a FETCH FIRST 3 ROWS WITH TIES",
                "SELECT * FROM (SELECT DISTINCT a FROM t) AS selected \
                 QUALIFY rank() OVER (ORDER BY a) <= 3 ORDER BY a",
            ),
            // The order says which rows are there at all.
            (
                "SELECT DISTINCT ON (a) a, b FROM t ORDER BY a, b FETCH FIRST 3 ROWS WITH TIES",
                "SELECT * FROM (SELECT DISTINCT ON (a) a, b FROM t ORDER BY a, b) AS selected \
                 QUALIFY rank() OVER (ORDER BY a, b) <= 3 ORDER BY a, b",
            ),
        ] {
            assert_eq!(said(sql).as_deref(), Ok(expected), "{sql}");
        }
    }

    #[test]
    fn a_number_that_is_asked_for_is_compared_with_row_numbers() {
        for (sql, expected) in [
            (
                "SELECT a FROM t ORDER BY b LIMIT (SELECT n FROM u) OFFSET 2",
                "SELECT a FROM t QUALIFY row_number() OVER (ORDER BY b) > 2 AND \
                 (row_number() OVER (ORDER BY b) <= CAST((SELECT n FROM u) AS BIGINT) + 2) IS NOT FALSE \
                 ORDER BY b",
            ),
            (
                "SELECT DISTINCT a FROM t OFFSET (SELECT n FROM u)",
                "SELECT * FROM (SELECT DISTINCT a FROM t) AS selected \
                 QUALIFY row_number() OVER () > coalesce(CAST((SELECT n FROM u) AS BIGINT), 0)",
            ),
            (
                "SELECT a FROM t LIMIT 5, (SELECT n FROM u)",
                "SELECT a FROM t QUALIFY row_number() OVER () > 5 AND \
                 (row_number() OVER () <= CAST((SELECT n FROM u) AS BIGINT) + 5) IS NOT FALSE",
            ),
            ("SELECT a FROM t LIMIT 1 + 2", "SELECT a FROM t LIMIT 1 + 2"),
            // It would be a column of the query.
            (
                "SELECT a FROM t LIMIT (SELECT a)",
                "SELECT a FROM t LIMIT (SELECT a)",
            ),
        ] {
            assert_eq!(said(sql).as_deref(), Ok(expected), "{sql}");
        }
    }

    #[test]
    fn what_cannot_be_said_says_why() {
        for (sql, message) in [
            (
                "SELECT a FROM t LIMIT 2 FETCH FIRST 3 ROWS ONLY",
                "say the same",
            ),
            (
                "SELECT a FROM t ORDER BY a FETCH FIRST 5 PERCENT ROWS ONLY",
                "not PERCENT",
            ),
            (
                "SELECT a FROM t FETCH FIRST 3 ROWS WITH TIES",
                "needs an ORDER BY",
            ),
            (
                "SELECT * FROM t ORDER BY 1 FETCH FIRST 3 ROWS WITH TIES",
                "by column 1",
            ),
            (
                "SELECT * FROM t UNION SELECT * FROM u ORDER BY 2 FETCH FIRST 3 ROWS WITH TIES",
                "by column 2",
            ),
        ] {
            let said = said(sql).unwrap_err();
            assert!(said.contains(message), "{sql}: {said}");
        }
    }
}
