//! Comparisons of rows, `(a, b) = (c, d)`, said with comparisons of their columns.
//!
//! DataFusion compares rows as structs, in which NULL equals NULL, and looks for none of several columns in a
//! subquery. In PostgreSQL (["Row and Array Comparisons"]), SQLite and the standard a comparison of rows is one
//! of columns: what cannot be told for a NULL is NULL.
//!
//! ["Row and Array Comparisons"]: https://www.postgresql.org/docs/current/functions-comparisons.html

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, Ident, JoinConstraint, JoinOperator, Query, Select, SelectItem,
    Spanned, Statement, TableFactor, TableWithJoins, UnaryOperator, Value, VisitMut, VisitorMut,
    visit_expressions,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

use crate::statement::desugar::columns_of;
use crate::statement::function_calls::{Call, call, differs_each_time, size};
use crate::statement::using_join::constraint_mut;

/// Within `node`, for rows of as many columns:
///
/// * `(a, b) = (c, d)` is `a = c AND b = d`, and `<>` the opposite.
/// * `(a, b) < (c, d)` is `a < c OR (a = c AND b < d)`, and so on.
/// * `(a, b) IN ((c, d), (e, f))` is true if one of the comparisons is, `BETWEEN` if both are.
/// * `(a, b) IN (SELECT …)` asks whether the subquery has a row of which that is true; where it matters
///   whether the answer is NULL or false, also whether it has one of which it is NULL.
///
/// Rows with a volatile function remain structs, since their columns stand more than once, and so do rows of
/// hundreds of parts.
///
/// # Errors
/// If what is looked for in a subquery has aggregates, or another number of columns, or if something would be
/// evaluated again and again that is not the same each time.
pub fn expand_row_comparisons(node: &mut impl VisitMut) -> Result<(), ParserError> {
    match node.visit(&mut Rows) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// What has more parts is not said twice: rows of rows of rows would grow without end.
const TWICE: usize = 300;

struct Rows;

impl VisitorMut for Rows {
    type Break = ParserError;

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<ParserError> {
        match statement {
            Statement::Delete(delete) => keeps(delete.selection.as_mut()),
            Statement::Update(update) => keeps(update.selection.as_mut()),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<ParserError> {
        select.from.iter_mut().try_for_each(keeps_joined)?;
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) = item
                && let Expr::InSubquery { expr: row, .. } = &*expr
                && row_of(row).is_some()
            {
                // As written, not as said here.
                let alias = Ident::with_quote('"', expr.to_string());
                let expr = expr.clone();
                *item = SelectItem::ExprWithAlias { expr, alias };
            }
        }
        keeps(select.selection.as_mut())?;
        keeps(select.having.as_mut())?;
        keeps(select.qualify.as_mut())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<ParserError> {
        match table {
            TableFactor::NestedJoin {
                table_with_joins, ..
            } => keeps_joined(table_with_joins),
            _ => ControlFlow::Continue(()),
        }
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<ParserError> {
        match compared(expr) {
            Ok(Some(columns)) => *expr = columns,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

fn keeps_joined(table: &mut TableWithJoins) -> ControlFlow<ParserError> {
    let mut joins = table.joins.iter_mut();
    joins.try_for_each(|join| keeps(on(&mut join.join_operator)))
}

/// The condition of a join.
fn on(join: &mut JoinOperator) -> Option<&mut Expr> {
    match constraint_mut(join)? {
        JoinConstraint::On(condition) => Some(condition),
        _ => None,
    }
}

/// Subqueries in a condition that keeps the rows of which it is true.
fn keeps(condition: Option<&mut Expr>) -> ControlFlow<ParserError> {
    match condition.map(|condition| look_up(condition, true)) {
        Some(Err(error)) => ControlFlow::Break(error),
        _ => ControlFlow::Continue(()),
    }
}

/// Subqueries in `condition`, of which it matters only whether it is `asked`: what else they are may be NULL
/// or the opposite.
fn look_up(condition: &mut Expr, asked: bool) -> Result<(), ParserError> {
    let mut rest = vec![(condition, asked)];
    while let Some((condition, asked)) = rest.pop() {
        match condition {
            Expr::Nested(inner) => rest.push((inner, asked)),
            Expr::UnaryOp {
                op: UnaryOperator::Not,
                expr,
            } => rest.push((expr, !asked)),
            Expr::BinaryOp {
                left,
                op: BinaryOperator::And | BinaryOperator::Or,
                right,
            } => rest.extend([(left.as_mut(), asked), (right.as_mut(), asked)]),
            _ => {
                if let Some(lookup) = Lookup::of_expr(condition)? {
                    // NOT IN is false where IN is true.
                    *condition = match asked != lookup.negated {
                        true => lookup.exists(Answer::True)?,
                        false => lookup.exists_unless_false()?,
                    };
                }
            }
        }
    }
    Ok(())
}

/// What compares columns in place of rows.
fn compared(expr: &Expr) -> Result<Option<Expr>, ParserError> {
    if let Some(lookup) = Lookup::of_expr(expr)? {
        return lookup.value().map(Some);
    }
    Ok(match expr {
        Expr::BinaryOp { left, op, right } => expand_comparison(left, op, right),
        Expr::InList {
            expr,
            list,
            negated,
        } => {
            let rows = list
                .iter()
                .map(|other| expand_comparison(expr, &BinaryOperator::Eq, other));
            let found = rows.collect::<Option<Vec<_>>>().and_then(any).map(nested);
            found.map(|found| negated_if(*negated, found))
        }
        Expr::Between {
            expr,
            negated,
            low,
            high,
        } => {
            let least = expand_comparison(expr, &BinaryOperator::GtEq, low);
            let most = expand_comparison(expr, &BinaryOperator::LtEq, high);
            let both = least
                .zip(most)
                .and_then(|(least, most)| all(vec![least, most]));
            both.map(|both| negated_if(*negated, nested(both)))
        }
        _ => None,
    })
}

fn negated_if(negated: bool, condition: Expr) -> Expr {
    match negated {
        true => nested(Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr: Box::new(condition),
        }),
        false => condition,
    }
}

/// A comparison of two expressions, if both are rows that are compared by columns.
fn expand_comparison(left: &Expr, operator: &BinaryOperator, right: &Expr) -> Option<Expr> {
    of_rows(row_of(left)?, operator, row_of(right)?)
}

/// A comparison of two rows; `None` if it is none of columns.
fn of_rows(left: &[Expr], operator: &BinaryOperator, right: &[Expr]) -> Option<Expr> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    if left.len() != right.len() || [left, right].iter().any(|row| differs_each_time(row)) {
        return None;
    }
    // Nearly all columns stand twice in the one, the left row as often as there are others in IN.
    if size(left) + size(right) > TWICE {
        return None;
    }
    let pairs = || left.iter().zip(right);
    let each = |operator: &BinaryOperator| {
        let pairs = pairs().map(|(left, right)| comparison(left, operator, right));
        pairs.collect::<Vec<_>>()
    };
    let strictly = match operator {
        Eq => return all(each(&Eq)).map(nested),
        NotEq => return any(each(&NotEq)).map(nested),
        Lt | LtEq => Lt,
        Gt | GtEq => Gt,
        _ => return None,
    };
    let mut pairs = pairs().rev();
    let (left, right) = pairs.next()?;
    let mut row = comparison(left, operator, right);
    for (left, right) in pairs {
        let rest = all(vec![comparison(left, &Eq, right), nested(row)])?;
        row = any(vec![comparison(left, &strictly, right), nested(rest)])?;
    }
    Some(nested(row))
}

/// `row [NOT] IN (subquery)`.
struct Lookup<'a> {
    row: &'a [Expr],
    subquery: &'a Query,
    negated: bool,
}

impl<'a> Lookup<'a> {
    fn of_expr(expr: &'a Expr) -> Result<Option<Self>, ParserError> {
        let Expr::InSubquery {
            expr,
            subquery,
            negated,
        } = expr
        else {
            return Ok(None);
        };
        let Some(row) = row_of(expr) else {
            return Ok(None);
        };
        let lookup = Self {
            row,
            subquery,
            negated: *negated,
        };
        let refused = |why: String| {
            let place = expr.span().start;
            Err(ParserError::ParserError(format!("{why}{place}")))
        };
        if let Some(columns) = columns_of(&subquery.body)
            && columns != row.len()
        {
            let looked_for = row.len();
            return refused(format!(
                "a row of {looked_for} columns is looked for in a subquery of {columns}"
            ));
        }
        if let Some(call) = call(row, Call::is_of_rows) {
            return refused(format!(
                "{} cannot be in a row that is looked for in a subquery: \
                 have a query of its own compute it, and look for its column",
                call.name
            ));
        }
        if differs_each_time(row) {
            return refused(
                "a row that is not the same each time cannot be looked for in a subquery"
                    .to_owned(),
            );
        }
        Ok(Some(lookup))
    }

    /// Whether the subquery has a row to which the comparison has that `answer`; or has none, if negated.
    fn exists(&self, answer: Answer) -> Result<Expr, ParserError> {
        let names: Vec<_> = (1..=self.row.len())
            .map(|column| format!("__row_{column}"))
            .collect();
        let others: Vec<_> = names
            .iter()
            .map(|name| Expr::Identifier(Ident::new(name)))
            .collect();
        let pairs = self.row.iter().zip(&others);
        let same = pairs.map(|(column, other)| comparison(column, &BinaryOperator::Eq, other));
        let same = all(same.collect()).map(nested);
        let condition = match answer {
            Answer::True => same,
            Answer::NotFalse => same.map(|same| Expr::IsNotFalse(Box::new(same))),
            Answer::Null => {
                // Of columns that are never NULL the planner then knows that there is none.
                let columns = self.row.iter().chain(&others).cloned();
                let nulls = columns.map(|column| Expr::IsNull(Box::new(operand(column))));
                let unknown = same.map(|same| Expr::IsNull(Box::new(same)));
                let both = any(nulls.collect()).map(nested).into_iter().chain(unknown);
                all(both.collect())
            }
        };
        let not = if self.negated { "NOT " } else { "" };
        let names = names.join(", ");
        let template = format!("{not}EXISTS (SELECT 1 FROM (SELECT 1) AS __row ({names}) WHERE x)");
        let mut exists = parser(&template)?.parse_expr()?;
        let mut fills = Fills {
            condition,
            from: Some(self.subquery.clone()),
        };
        let _: ControlFlow<()> = VisitMut::visit(&mut exists, &mut fills);
        Ok(exists)
    }

    /// Whether the subquery has a row to which the comparison is true or NULL; or has none, if negated. Asked
    /// for apart, for the first a join has keys.
    fn exists_unless_false(&self) -> Result<Expr, ParserError> {
        // Of rows that are looked for within rows that are looked for there would be ever more.
        if self.looks_for_rows() || !self.stands_twice() {
            return self.exists(Answer::NotFalse);
        }
        let [found, unknown] = [Answer::True, Answer::Null].map(|answer| self.exists(answer));
        Ok(nested(Expr::BinaryOp {
            left: Box::new(found?),
            op: match self.negated {
                true => BinaryOperator::And,
                false => BinaryOperator::Or,
            },
            right: Box::new(unknown?),
        }))
    }

    /// Whether rows are looked for within the subquery, too.
    fn looks_for_rows(&self) -> bool {
        let found = visit_expressions(self.subquery, |expr| match expr {
            Expr::InSubquery { expr: row, .. } if row_of(row).is_some() => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        found.is_break()
    }

    /// Whether the subquery may be read twice.
    fn stands_twice(&self) -> bool {
        let subquery = std::slice::from_ref(self.subquery);
        !differs_each_time(subquery) && size(subquery) + size(self.row) <= TWICE
    }

    /// True, false or NULL.
    fn value(&self) -> Result<Expr, ParserError> {
        if !self.stands_twice() {
            let place = self.subquery.span().start;
            return Err(ParserError::ParserError(format!(
                "whether a subquery has a row is a condition of WHERE, HAVING, QUALIFY and ON alone if it is not \
                 the same each time, or as long as this one{place}"
            )));
        }
        let found = Lookup {
            negated: false,
            ..*self
        };
        let when = |answer, result| {
            Ok::<_, ParserError>(CaseWhen {
                condition: found.exists(answer)?,
                result: Expr::value(result),
            })
        };
        Ok(Expr::Case {
            case_token: AttachedToken::empty(),
            end_token: AttachedToken::empty(),
            operand: None,
            conditions: vec![
                when(Answer::True, Value::Boolean(!self.negated))?,
                when(Answer::Null, Value::Null)?,
            ],
            else_result: Some(Box::new(Expr::value(Value::Boolean(self.negated)))),
        })
    }
}

/// What a comparison with a row of a subquery comes to.
#[derive(Clone, Copy)]
enum Answer {
    True,
    Null,
    NotFalse,
}

fn parser(sql: &str) -> Result<Parser<'static>, ParserError> {
    Parser::new(&GenericDialect {}).try_with_sql(sql)
}

/// Puts a condition and a subquery into the places that a template has for them.
struct Fills {
    condition: Option<Expr>,
    from: Option<Query>,
}

impl VisitorMut for Fills {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        select.selection = self.condition.take();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { subquery, .. } = table
            && let Some(from) = self.from.take()
        {
            **subquery = from;
        }
        ControlFlow::Break(())
    }
}

/// The columns of a row.
fn row_of(expr: &Expr) -> Option<&[Expr]> {
    match expr {
        Expr::Tuple(columns) => Some(columns),
        Expr::Nested(inner) => row_of(inner),
        _ => None,
    }
}

/// A comparison of columns, which may be rows themselves.
fn comparison(left: &Expr, operator: &BinaryOperator, right: &Expr) -> Expr {
    if let Some(columns) = expand_comparison(left, operator, right) {
        return columns;
    }
    Expr::BinaryOp {
        left: Box::new(operand(left.clone())),
        op: operator.clone(),
        right: Box::new(operand(right.clone())),
    }
}

fn operand(expr: Expr) -> Expr {
    match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) => expr,
        _ => nested(expr),
    }
}

fn nested(expr: Expr) -> Expr {
    match expr {
        Expr::Nested(_) => expr,
        _ => Expr::Nested(Box::new(expr)),
    }
}

fn all(conditions: Vec<Expr>) -> Option<Expr> {
    joined(conditions, &BinaryOperator::And)
}

fn any(conditions: Vec<Expr>) -> Option<Expr> {
    joined(conditions, &BinaryOperator::Or)
}

/// The conditions with `operator` between them, of which none is within many others.
fn joined(mut conditions: Vec<Expr>, operator: &BinaryOperator) -> Option<Expr> {
    while conditions.len() > 1 {
        let mut pairs = Vec::with_capacity(conditions.len().div_ceil(2));
        let mut rest = conditions.into_iter();
        while let Some(left) = rest.next() {
            pairs.push(match rest.next() {
                Some(right) => Expr::BinaryOp {
                    left: Box::new(left),
                    op: operator.clone(),
                    right: Box::new(right),
                },
                None => left,
            });
        }
        conditions = pairs;
    }
    conditions.pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(sql: &str) -> Result<String, String> {
        let mut expr = parser(sql).unwrap().parse_expr().unwrap();
        match expand_row_comparisons(&mut expr) {
            Ok(()) => Ok(expr.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn kept(sql: &str) -> String {
        let mut query = parser(sql).unwrap().parse_query().unwrap();
        expand_row_comparisons(&mut query).unwrap();
        query.to_string()
    }

    #[test]
    fn rows_are_compared_column_by_column() {
        for (sql, columns) in [
            ("(a, b) = (c, 1)", "(a = c AND b = 1)"),
            ("(a, b) <> (c, d)", "(a <> c OR b <> d)"),
            ("(a, b) < (c, d)", "(a < c OR (a = c AND (b < d)))"),
            (
                "(a, b, c) >= (1, 2, 3)",
                "(a > 1 OR (a = 1 AND (b > 2 OR (b = 2 AND (c >= 3)))))",
            ),
            ("(a + 1, b) = (c, d)", "((a + 1) = c AND b = d)"),
            ("(a, (b, c)) = (1, (2, 3))", "(a = 1 AND (b = 2 AND c = 3))"),
            ("(a, b) IN ((1, 2))", "(a = 1 AND b = 2)"),
            (
                "(a, b) NOT IN ((1, 2), (c, d))",
                "(NOT ((a = 1 AND b = 2) OR (a = c AND b = d)))",
            ),
            ("((a, b)) = (((c, d)))", "(a = c AND b = d)"),
            (
                "(a, b) BETWEEN (1, 2) AND (3, 4)",
                "((a > 1 OR (a = 1 AND (b >= 2))) AND (a < 3 OR (a = 3 AND (b <= 4))))",
            ),
            (
                "(a, b) NOT BETWEEN (1, 2) AND (3, 4)",
                "(NOT ((a > 1 OR (a = 1 AND (b >= 2))) AND (a < 3 OR (a = 3 AND (b <= 4)))))",
            ),
            ("(a, b) = (c, d, e)", "(a, b) = (c, d, e)"),
            ("(a, random()) = (c, d)", "(a, random()) = (c, d)"),
            (
                "(a, b) IS DISTINCT FROM (c, d)",
                "(a, b) IS DISTINCT FROM (c, d)",
            ),
        ] {
            assert_eq!(said(sql).as_deref(), Ok(columns), "{sql}");
        }
    }

    #[test]
    fn a_long_list_of_rows_is_no_deep_expression() {
        let rows: Vec<_> = (0..100_000).map(|row| format!("({row}, b)")).collect();
        let said = said(&format!("(a, b) IN ({})", rows.join(", "))).unwrap();
        assert_eq!(said.matches(" OR ").count(), rows.len() - 1);
    }

    #[test]
    fn rows_of_rows_do_not_grow_without_end() {
        for step in ["((@, 1) < (b, 2))", "((@, 1) IN ((true, 1), (b, c)))"] {
            let deep = (0..20).fold("a".to_owned(), |deep, _| step.replace('@', &deep));
            assert!(said(&deep).unwrap().len() < 100_000, "{step}");
        }
        let condition = "(a, b) NOT IN (SELECT x, y FROM q WHERE @)";
        let deep = (0..15).fold("c".to_owned(), |deep, _| condition.replace('@', &deep));
        let kept = kept(&format!("SELECT 1 FROM t WHERE {deep}"));
        assert!(kept.len() < 10_000, "{}", kept.len());
        let lookup = "((@, b) IN (SELECT x, y FROM q))";
        let deep = (0..20).fold("a".to_owned(), |deep, _| lookup.replace('@', &deep));
        let error = said(&deep).unwrap_err();
        assert!(error.contains("as long as this one"), "{error}");
    }

    /// Has the comparison that is meant where the text of a condition begins.
    const LOOKUP: &str =
        "EXISTS (SELECT 1 FROM (SELECT x, y FROM q) AS __row (__row_1, __row_2) WHERE ";
    const SAME: &str = "(a = __row_1 AND b = __row_2)";
    const UNKNOWN: &str = "(a IS NULL OR b IS NULL OR __row_1 IS NULL OR __row_2 IS NULL) AND \
                           (a = __row_1 AND b = __row_2) IS NULL";

    #[test]
    fn a_condition_looks_only_for_what_it_keeps() {
        let same = format!("{LOOKUP}{SAME})");
        let unknown = format!("{LOOKUP}{UNKNOWN})");
        let lookup = "(a, b) IN (SELECT x, y FROM q)";
        let not_in = "((a, b)) NOT IN (SELECT x, y FROM q)";
        for (lookup, condition, said) in [
            (lookup, "WHERE @", "WHERE #"),
            (lookup, "WHERE c AND (d OR @)", "WHERE c AND (d OR #)"),
            (lookup, "WHERE NOT (@ OR c)", "WHERE NOT ((# OR ?) OR c)"),
            (lookup, "WHERE NOT (NOT @)", "WHERE NOT (NOT #)"),
            (not_in, "JOIN u ON @", "JOIN u ON (NOT # AND NOT ?)"),
            (
                not_in,
                "JOIN (u JOIN w ON @) ON c",
                "JOIN (u JOIN w ON (NOT # AND NOT ?)) ON c",
            ),
            (not_in, "HAVING @", "HAVING (NOT # AND NOT ?)"),
            (not_in, "WHERE NOT @", "WHERE NOT NOT #"),
        ] {
            let said = said.replace('#', &same).replace('?', &unknown);
            let kept = kept(&format!(
                "SELECT 1 FROM t {}",
                condition.replace('@', lookup)
            ));
            assert_eq!(kept, format!("SELECT 1 FROM t {said}"));
        }
        let random = kept("SELECT 1 FROM t WHERE (a, b) NOT IN (SELECT x, random() FROM q)");
        let once = "WHERE (a = __row_1 AND b = __row_2) IS NOT FALSE)";
        assert!(random.ends_with(once), "{random}");
    }

    #[test]
    fn a_value_is_null_where_it_cannot_be_told() {
        for (not, found, missing) in [("", "true", "false"), ("NOT ", "false", "true")] {
            let said = said(&format!("(a, b) {not}IN (SELECT x, y FROM q)"));
            let expected = format!(
                "CASE WHEN {LOOKUP}{SAME}) THEN {found} WHEN {LOOKUP}{UNKNOWN}) THEN NULL ELSE {missing} END"
            );
            assert_eq!(said.as_deref(), Ok(expected.as_str()));
        }
    }

    #[test]
    fn a_column_has_the_name_that_it_is_written_with() {
        let kept = kept("SELECT (a, b) IN (SELECT x, y FROM q), a FROM t");
        let named = "END AS \"(a, b) IN (SELECT x, y FROM q)\", a FROM t";
        assert!(kept.ends_with(named), "{kept}");
    }

    #[test]
    fn what_cannot_be_looked_up_is_refused() {
        for (sql, why) in [
            (
                "(a, b) IN (SELECT x FROM q)",
                "row of 2 columns is looked for in a subquery of 1",
            ),
            ("(a, b) IN (VALUES (1, 2, 3))", "in a subquery of 3"),
            (
                "(a, Count(*)) IN (SELECT x, y FROM q)",
                "count cannot be in a row",
            ),
            (
                "(a, b) IN (SELECT x, random() FROM q)",
                "not the same each time",
            ),
            (
                "(a, random()) IN (SELECT x, y FROM q)",
                "not the same each time",
            ),
        ] {
            let error = said(sql).unwrap_err();
            assert!(error.contains(why), "{sql}: {error}");
        }
        // It is the subquery's own.
        assert!(said("(a, (SELECT max(x) FROM q)) IN (SELECT x, y FROM q)").is_ok());
    }
}
