//! What users of PostgreSQL and DuckDB write, as DataFusion understands it.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, OrderByExpr, OrderByKind, Query, Select, SelectFlavor, SelectItem,
    SetExpr, TableFactor, Value, ValueWithSpan, VisitMut, VisitorMut, WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

use crate::statement::balance::balance;
use crate::statement::cte_shadowing::rename_shadowing;
use crate::statement::depth::DEEPEST;
use crate::statement::fetch_first::rewrite_limit;
use crate::statement::function_calls::called;
use crate::statement::recursive_cte_tail::parenthesize;
use crate::statement::row_comparison::expand_row_comparisons;
use crate::statement::table_functions::{is_function, refers, rewrite_table_functions};

/// [`desugar`] of a statement.
///
/// # Errors
/// Its.
pub fn desugar_statement(statement: &mut DFStatement) -> Result<(), ParserError> {
    match statement {
        DFStatement::Statement(statement) => desugar(statement.as_mut()),
        DFStatement::Explain(explain) => desugar_statement(&mut explain.statement),
        _ => Ok(()),
    }
}

/// Within `node`:
///
/// * `FROM t` is `SELECT * FROM t`: DataFusion would select no column.
/// * `sys.blame(7)` is `blame(7)`: DataFusion's table functions have no schema.
/// * `a IN (VALUES (1))` is `a IN (SELECT column1 FROM (VALUES (1)))`: DataFusion finds no column of the former.
/// * `ORDER BY ALL` is `ORDER BY 1, 2, …`: DataFusion does not plan the former.
/// * `[a, b]` is `make_array(a, b)`: DataFusion finds no columns of queries around it in the former.
/// * `a AT TIME ZONE b` is `timezone(b, a)`: DataFusion casts `a` to a time with that zone, whatever it is.
/// * `a = ANY (b)` is `any_of(a, '=', b)`, if `b` is no subquery: DataFusion makes nothing of NULLs in it. So are
///   ALL and LIKE ANY.
/// * `a LIKE b ESCAPE '/'` is `a LIKE like_escape(b, '/')`: DataFusion knows no escape but the backslash.
/// * `a SIMILAR TO b` is `a ~ similar_to_escape(b, '\\')`: DataFusion takes `b` for a regular expression.
/// * `(a, b) = (c, d)` is `a = c AND b = d`, also in IN: see [`expand_row_comparisons`].
/// * `FETCH FIRST 3 ROWS ONLY` is `LIMIT 3`, also with ties, and LIMIT may have subqueries: see [`rewrite_limit`].
/// * `FROM t, generate_series(1, t.n) AS g` is `FROM t, unnest(generate_series(1, t.n)) AS g(g)`, among others:
///   see [`rewrite_table_functions`].
/// * A query of a `WITH` may have the name of one further out, which DataFusion refuses.
/// * A union of `WITH RECURSIVE` may have ORDER BY, LIMIT and OFFSET, which DataFusion leaves out.
/// * Long chains of AND, OR and UNION are flat trees: see [`balance`].
///
/// # Errors
/// That it is too deep, those of [`expand_row_comparisons`], [`rewrite_limit`] and [`rewrite_table_functions`], and the last if the query is recursive.
pub fn desugar(node: &mut impl VisitMut) -> Result<(), ParserError> {
    balance(node, DEEPEST)?;
    let mut desugar = Desugar::default();
    if let ControlFlow::Break(error) = node.visit(&mut desugar) {
        return Err(error);
    }
    if desugar.reads_functions {
        rewrite_table_functions(node)?;
    }
    expand_row_comparisons(node)?;
    rename_shadowing(node);
    Ok(())
}

#[derive(Default)]
struct Desugar {
    /// Whether a function stands in FROM.
    reads_functions: bool,
}

impl VisitorMut for Desugar {
    type Break = ParserError;

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<ParserError> {
        self.reads_functions |= is_function(table);
        if let TableFactor::Table {
            name,
            args: Some(_),
            ..
        } = table
            && let [schema, _] = name.0.as_slice()
            && schema
                .as_ident()
                .is_some_and(|i| i.value.eq_ignore_ascii_case("sys"))
        {
            name.0.remove(0);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<ParserError> {
        if select.flavor == SelectFlavor::FromFirstNoSelect {
            select.flavor = SelectFlavor::Standard;
            let star = SelectItem::Wildcard(WildcardAdditionalOptions::default());
            select.projection.push(star);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<ParserError> {
        if let Some(with) = &mut query.with
            && with.recursive
        {
            for cte in &mut with.cte_tables {
                parenthesize(cte)?;
            }
        }
        if let Some(order_by) = &mut query.order_by
            && let OrderByKind::All(options) = &order_by.kind
            && let Some(columns) = columns_of(&query.body)
        {
            let key = |position: usize| OrderByExpr {
                expr: number(position),
                options: *options,
                with_fill: None,
            };
            order_by.kind = OrderByKind::Expressions((1..=columns).map(key).collect());
        }
        match rewrite_limit(query) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<ParserError> {
        if let Expr::Array(list) = expr
            && refers(&list.elem)
        {
            *expr = called("make_array", std::mem::take(&mut list.elem), None);
        }
        quantify(expr);
        escape(expr);
        if let Expr::AtTimeZone {
            timestamp,
            time_zone,
        } = expr
        {
            let args = [time_zone, timestamp].map(|arg| std::mem::replace(&mut **arg, number(0)));
            *expr = called("timezone", args.into(), None);
        }
        if let Expr::InSubquery { subquery, .. } | Expr::Subquery(subquery) = expr
            && let SetExpr::Values(_) = *subquery.body
            && let Some(columns) = columns_of(&subquery.body)
        {
            let columns: Vec<String> = (1..=columns)
                .map(|place| format!("column{place}"))
                .collect();
            if let Err(error) = select_from(subquery, &columns.join(", ")) {
                return ControlFlow::Break(error);
            }
        }
        ControlFlow::Continue(())
    }
}

/// Says a comparison with the elements of a list as a function of the list.
fn quantify(expr: &mut Expr) {
    let taken = |expr: &mut Box<Expr>| std::mem::replace(&mut **expr, number(0));
    let is_query = |list: &Expr| matches!(list, Expr::Subquery(_));
    let text = |operator: &str| Expr::value(Value::SingleQuotedString(operator.to_owned()));
    match expr {
        Expr::AnyOp {
            left,
            compare_op,
            right,
            ..
        } if !is_query(right.as_ref()) => {
            let args = vec![taken(left), text(&compare_op.to_string()), taken(right)];
            *expr = called(ANY_OF, args, None);
        }
        Expr::AllOp {
            left,
            compare_op,
            right,
        } if !is_query(right.as_ref()) => {
            let args = vec![taken(left), text(&compare_op.to_string()), taken(right)];
            *expr = called(ALL_OF, args, None);
        }
        Expr::Like {
            any: true,
            negated,
            expr: value,
            pattern,
            escape_char: None,
        } if !is_query(pattern.as_ref()) => {
            let operator = if *negated { "!~~" } else { "~~" };
            let args = vec![taken(value), text(operator), taken(pattern)];
            *expr = called(ANY_OF, args, None);
        }
        Expr::ILike {
            any: true,
            negated,
            expr: value,
            pattern,
            escape_char: None,
        } if !is_query(pattern.as_ref()) => {
            let operator = if *negated { "!~~*" } else { "~~*" };
            let args = vec![taken(value), text(operator), taken(pattern)];
            *expr = called(ANY_OF, args, None);
        }
        _ => {}
    }
}

/// The function that compares a value with any element of a list.
pub const ANY_OF: &str = "any_of";
/// The same for ALL.
pub const ALL_OF: &str = "all_of";

/// Says a pattern with an escape character, or of SIMILAR TO, as one that DataFusion understands.
fn escape(expr: &mut Expr) {
    let taken = |expr: &mut Box<Expr>| std::mem::replace(&mut **expr, number(0));
    match expr {
        Expr::Like {
            pattern,
            escape_char,
            ..
        }
        | Expr::ILike {
            pattern,
            escape_char,
            ..
        } => {
            let is_usual = |escape: &ValueWithSpan| matches!(&escape.value, Value::SingleQuotedString(text) if text == "\\");
            if let Some(escape) = escape_char.take()
                && !is_usual(&escape)
            {
                let args = vec![taken(pattern), Expr::Value(escape)];
                **pattern = called("like_escape", args, None);
            }
        }
        Expr::SimilarTo {
            negated,
            expr: text,
            pattern,
            escape_char,
        } => {
            let usual = || Value::SingleQuotedString("\\".to_owned()).into();
            let escape = escape_char.take().unwrap_or_else(usual);
            let args = vec![taken(pattern), Expr::Value(escape)];
            let text = match taken(text) {
                operation @ (Expr::BinaryOp { .. } | Expr::UnaryOp { .. }) => {
                    Expr::Nested(Box::new(operation))
                }
                other => other,
            };
            *expr = Expr::BinaryOp {
                left: Box::new(text),
                op: match negated {
                    true => BinaryOperator::PGRegexNotMatch,
                    false => BinaryOperator::PGRegexMatch,
                },
                right: Box::new(called("similar_to_escape", args, None)),
            };
        }
        _ => {}
    }
}

/// Makes `SELECT {items} FROM (query)` of `query`.
pub fn select_from(query: &mut Query, items: &str) -> Result<(), ParserError> {
    let template = format!("SELECT {items} FROM (SELECT 1) AS selected");
    let mut around = Parser::new(&GenericDialect {})
        .try_with_sql(&template)?
        .parse_query()?;
    std::mem::swap(around.as_mut(), query);
    if let SetExpr::Select(select) = query.body.as_mut()
        && let Some(table) = select.from.first_mut()
        && let TableFactor::Derived { subquery, .. } = &mut table.relation
    {
        *subquery = around;
    }
    Ok(())
}

/// How many columns a query has, if its text says it.
pub fn columns_of(body: &SetExpr) -> Option<usize> {
    match body {
        SetExpr::Select(select) => {
            let one = |item: &SelectItem| {
                matches!(
                    item,
                    SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }
                )
            };
            let items = &select.projection;
            items.iter().all(one).then_some(items.len())
        }
        SetExpr::Query(query) => columns_of(&query.body),
        SetExpr::SetOperation { left, .. } => columns_of(left),
        SetExpr::Values(values) => values.rows.first().map(|row| row.content.len()),
        _ => None,
    }
}

fn number(number: usize) -> Expr {
    Expr::value(Value::Number(number.to_string(), false))
}

#[cfg(test)]
mod tests {
    use crate::statement::testing::query;

    #[test]
    fn order_by_all_is_by_the_columns_from_left_to_right() {
        for (sql, expected) in [
            (
                "SELECT a + 1, b FROM t ORDER BY ALL DESC NULLS LAST",
                "SELECT a + 1, b FROM t ORDER BY 1 DESC NULLS LAST, 2 DESC NULLS LAST",
            ),
            (
                "SELECT a FROM t UNION SELECT b FROM u ORDER BY all",
                "SELECT a FROM t UNION SELECT b FROM u ORDER BY 1",
            ),
            (
                "SELECT * FROM t ORDER BY ALL",
                "SELECT * FROM t ORDER BY ALL",
            ),
            (
                "SELECT a FROM t ORDER BY \"all\"",
                "SELECT a FROM t ORDER BY \"all\"",
            ),
        ] {
            assert_eq!(query(sql).to_string(), expected);
        }
    }
}
