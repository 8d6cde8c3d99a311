//! Comparisons of rows, `(a, b) = (c, d)`, said with comparisons of their columns.
//!
//! DataFusion compares rows as structs, in which NULL equals NULL, and looks for none in a subquery. In
//! PostgreSQL (["Row and Array Comparisons"]), SQLite and the standard a comparison of rows is one of
//! columns: what cannot be told for a NULL is NULL.
//!
//! ["Row and Array Comparisons"]: https://www.postgresql.org/docs/current/functions-comparisons.html

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion::functions::all_default_functions;
use datafusion::functions_aggregate::all_default_aggregate_functions;
use datafusion::logical_expr::Volatility;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, Ident, JoinConstraint, JoinOperator, Parens, Query, Select,
    SelectItem, SetExpr, Spanned, Statement, TableFactor, UnaryOperator, Value, Visit, VisitMut,
    Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

use crate::spell_out::columns_of;

/// Within `node`, for rows of as many columns:
///
/// * `(a, b) = (c, d)` is `a = c AND b = d`, and `<>` the opposite.
/// * `(a, b) < (c, d)` is `a < c OR (a = c AND b < d)`, and so on.
/// * `(a, b) IN ((c, d), (e, f))` is true if one of the comparisons is.
/// * `(a, b) IN (SELECT …)` asks whether the subquery has a row of which that is true; where it matters
///   whether the answer is NULL or false, also whether it has one of which it is NULL.
///
/// Rows with a volatile function remain structs, since their columns stand more than once.
///
/// # Errors
/// If what is looked for in a subquery has aggregates, or another number of columns, or if something would be
/// evaluated again and again that is not the same each time.
pub(crate) fn compare_columns(node: &mut impl VisitMut) -> Result<(), ParserError> {
    match node.visit(&mut Rows) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Of so many rows a list is looked up like a subquery.
const LONG: usize = 32;

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
        for joined in select.from.iter_mut().flat_map(|table| &mut table.joins) {
            keeps(on(&mut joined.join_operator))?;
        }
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) = item
                && let Expr::InSubquery { expr: row, .. } = &*expr
                && matches!(row.as_ref(), Expr::Tuple(_))
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

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<ParserError> {
        match compared(expr) {
            Ok(Some(columns)) => *expr = columns,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

/// The condition of a join.
fn on(join: &mut JoinOperator) -> Option<&mut Expr> {
    match join {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)
        | JoinOperator::Semi(constraint)
        | JoinOperator::LeftSemi(constraint)
        | JoinOperator::RightSemi(constraint)
        | JoinOperator::Anti(constraint)
        | JoinOperator::LeftAnti(constraint)
        | JoinOperator::RightAnti(constraint) => match constraint {
            JoinConstraint::On(condition) => Some(condition),
            _ => None,
        },
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
                let lookup = match Lookup::of(condition)? {
                    None => Lookup::of_long_list(condition)?,
                    lookup => lookup,
                };
                let Some(lookup) = lookup else {
                    continue;
                };
                // NOT IN is false where IN is true.
                *condition = match asked != lookup.negated {
                    true => lookup.exists(|same| same)?,
                    false => lookup.exists(|same| Expr::IsNotFalse(Box::new(same)))?,
                };
            }
        }
    }
    Ok(())
}

/// What compares columns in place of rows.
fn compared(expr: &Expr) -> Result<Option<Expr>, ParserError> {
    if let Some(lookup) = Lookup::of(expr)? {
        return lookup.value().map(Some);
    }
    Ok(match expr {
        Expr::BinaryOp { left, op, right } => match (left.as_ref(), right.as_ref()) {
            (Expr::Tuple(left), Expr::Tuple(right)) => of_rows(left, op, right),
            _ => None,
        },
        Expr::InList {
            expr,
            list,
            negated,
        } => match expr.as_ref() {
            Expr::Tuple(row) => {
                let rows = list.iter().map(|other| match other {
                    Expr::Tuple(other) => of_rows(row, &BinaryOperator::Eq, other),
                    _ => None,
                });
                let rows = rows.collect::<Option<Vec<_>>>();
                let found = rows.and_then(|rows| any(rows).map(nested));
                match (found, negated) {
                    (Some(found), true) => Some(nested(Expr::UnaryOp {
                        op: UnaryOperator::Not,
                        expr: Box::new(found),
                    })),
                    (found, _) => found,
                }
            }
            _ => None,
        },
        _ => None,
    })
}

/// A comparison of two rows; `None` if it is none of columns.
fn of_rows(left: &[Expr], operator: &BinaryOperator, right: &[Expr]) -> Option<Expr> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    if left.len() != right.len() || [left, right].iter().any(|row| differs_each_time(row)) {
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
    subquery: Cow<'a, Query>,
    negated: bool,
}

impl<'a> Lookup<'a> {
    fn of(expr: &'a Expr) -> Result<Option<Self>, ParserError> {
        let Expr::InSubquery {
            expr,
            subquery,
            negated,
        } = expr
        else {
            return Ok(None);
        };
        let Expr::Tuple(row) = expr.as_ref() else {
            return Ok(None);
        };
        let lookup = Self {
            row,
            subquery: Cow::Borrowed(subquery.as_ref()),
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

    /// `row [NOT] IN (rows)` of so many rows that a join finds them faster than comparisons.
    fn of_long_list(expr: &'a Expr) -> Result<Option<Self>, ParserError> {
        let Expr::InList {
            expr,
            list,
            negated,
        } = expr
        else {
            return Ok(None);
        };
        let Expr::Tuple(row) = expr.as_ref() else {
            return Ok(None);
        };
        let rows = list.iter().map(|other| match other {
            Expr::Tuple(other) => (other.len() == row.len() && other.iter().all(is_constant))
                .then(|| Parens::with_empty_span(other.clone())),
            _ => None,
        });
        let Some(rows) = rows.collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        if rows.len() < LONG || call(row, Call::is_of_rows).is_some() || differs_each_time(row) {
            return Ok(None);
        }
        let mut subquery = parser("VALUES (1)")?.parse_query()?;
        if let SetExpr::Values(values) = subquery.body.as_mut() {
            values.rows = rows;
        }
        Ok(Some(Self {
            row,
            subquery: Cow::Owned(*subquery),
            negated: *negated,
        }))
    }

    /// Whether the subquery has a row of which `matches` is true, which is given the comparison with it; or
    /// has none, if negated.
    fn exists(&self, matches: impl FnOnce(Expr) -> Expr) -> Result<Expr, ParserError> {
        let names = (1..=self.row.len()).map(|column| format!("_row_{column}"));
        let names: Vec<_> = names.collect();
        let same = self.row.iter().zip(&names).map(|(column, name)| {
            comparison(
                column,
                &BinaryOperator::Eq,
                &Expr::Identifier(Ident::new(name)),
            )
        });
        let not = if self.negated { "NOT " } else { "" };
        let names = names.join(", ");
        let template = format!("{not}EXISTS (SELECT 1 FROM (SELECT 1) AS _row ({names}) WHERE x)");
        let mut exists = parser(&template)?.parse_expr()?;
        let mut fills = Fills {
            condition: all(same.collect()).map(nested).map(matches),
            from: Some(self.subquery.as_ref().clone()),
        };
        let _: ControlFlow<()> = VisitMut::visit(&mut exists, &mut fills);
        Ok(exists)
    }

    /// True, false or NULL.
    fn value(&self) -> Result<Expr, ParserError> {
        if differs_each_time(std::slice::from_ref(self.subquery.as_ref())) {
            let place = self.subquery.span().start;
            return Err(ParserError::ParserError(format!(
                "whether a subquery that is not the same each time has a row can be asked in WHERE, HAVING and \
                 ON alone{place}"
            )));
        }
        let found = Lookup {
            negated: false,
            subquery: Cow::Borrowed(self.subquery.as_ref()),
            ..*self
        };
        let when = |condition, result| CaseWhen {
            condition,
            result: Expr::value(result),
        };
        Ok(Expr::Case {
            case_token: AttachedToken::empty(),
            end_token: AttachedToken::empty(),
            operand: None,
            conditions: vec![
                when(found.exists(|same| same)?, Value::Boolean(!self.negated)),
                when(
                    found.exists(|same| Expr::IsNull(Box::new(same)))?,
                    Value::Null,
                ),
            ],
            else_result: Some(Box::new(Expr::value(Value::Boolean(self.negated)))),
        })
    }
}

fn parser(sql: &str) -> Result<Parser<'static>, ParserError> {
    Parser::new(&GenericDialect {}).try_with_sql(sql)
}

fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Value(_) | Expr::TypedString(_) => true,
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => is_constant(inner),
        Expr::Cast { expr: inner, .. } => is_constant(inner),
        _ => false,
    }
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

/// A comparison of columns, which may be rows themselves.
fn comparison(left: &Expr, operator: &BinaryOperator, right: &Expr) -> Expr {
    if let (Expr::Tuple(left), Expr::Tuple(right)) = (left, right)
        && let Some(columns) = of_rows(left, operator, right)
    {
        return columns;
    }
    let operand = |operand: &Expr| {
        let operand = operand.clone();
        Box::new(match operand {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) => operand,
            _ => nested(operand),
        })
    };
    Expr::BinaryOp {
        left: operand(left),
        op: operator.clone(),
        right: operand(right),
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

/// A call.
struct Call {
    /// As DataFusion knows it.
    name: String,
    windowed: bool,
    in_subquery: bool,
}

impl Call {
    /// Whether it is of other rows of the query around it than one.
    fn is_of_rows(&self) -> bool {
        static AGGREGATES: LazyLock<HashSet<String>> = LazyLock::new(|| {
            let functions = all_default_aggregate_functions();
            let names = functions
                .iter()
                .map(|function| (function.name(), function.aliases()));
            names_and_aliases(names)
        });
        !self.in_subquery && (self.windowed || AGGREGATES.contains(&self.name))
    }

    fn is_volatile(&self) -> bool {
        static VOLATILE: LazyLock<HashSet<String>> = LazyLock::new(|| {
            let functions = all_default_functions();
            let volatile = functions
                .iter()
                .filter(|function| function.signature().volatility == Volatility::Volatile);
            names_and_aliases(volatile.map(|function| (function.name(), function.aliases())))
        });
        VOLATILE.contains(&self.name)
    }
}

fn names_and_aliases<'a>(
    functions: impl Iterator<Item = (&'a str, &'a [String])>,
) -> HashSet<String> {
    let names = functions.flat_map(|(name, aliases)| {
        let aliases = aliases.iter().cloned();
        aliases.chain([name.to_owned()])
    });
    names.collect()
}

/// The first call in `nodes` that `is` it.
fn call<N: Visit>(nodes: &[N], is: impl Fn(&Call) -> bool) -> Option<Call> {
    let mut looks = Looks { is, queries: 0 };
    nodes
        .iter()
        .find_map(|node| node.visit(&mut looks).break_value())
}

struct Looks<F> {
    is: F,
    /// In how many subqueries it looks.
    queries: usize,
}

impl<F: Fn(&Call) -> bool> Visitor for Looks<F> {
    type Break = Call;

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<Call> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<Call> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Call> {
        if let Expr::Function(function) = expr {
            let call = Call {
                name: function.name.to_string().to_ascii_lowercase(),
                windowed: function.over.is_some(),
                in_subquery: self.queries > 0,
            };
            if (self.is)(&call) {
                return ControlFlow::Break(call);
            }
        }
        ControlFlow::Continue(())
    }
}

fn differs_each_time<N: Visit>(nodes: &[N]) -> bool {
    call(nodes, Call::is_volatile).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(sql: &str) -> Result<String, String> {
        let mut expr = parser(sql).unwrap().parse_expr().unwrap();
        match compare_columns(&mut expr) {
            Ok(()) => Ok(expr.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn kept(sql: &str) -> String {
        let mut query = parser(sql).unwrap().parse_query().unwrap();
        compare_columns(&mut query).unwrap();
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

    const MATCHES: &str = "EXISTS (SELECT 1 FROM (SELECT x, y FROM q) AS _row (_row_1, _row_2) WHERE \
                           (a = _row_1 AND b = _row_2)";

    #[test]
    fn a_condition_looks_only_for_what_it_keeps() {
        let lookup = "(a, b) IN (SELECT x, y FROM q)";
        for (condition, said) in [
            ("@", "@)"),
            ("c AND (d OR @)", "c AND (d OR @))"),
            ("NOT (@ OR c)", "NOT (@ IS NOT FALSE) OR c)"),
            ("NOT (NOT @)", "NOT (NOT @))"),
        ] {
            let kept = kept(&format!(
                "SELECT 1 FROM t WHERE {}",
                condition.replace('@', lookup)
            ));
            assert_eq!(
                kept,
                format!("SELECT 1 FROM t WHERE {}", said.replace('@', MATCHES))
            );
        }
        let not_in = lookup.replace("IN", "NOT IN");
        for (clause, said) in [
            ("JOIN u ON @", "NOT # IS NOT FALSE)"),
            ("HAVING @", "NOT # IS NOT FALSE)"),
            ("WHERE NOT @", "NOT #)"),
        ] {
            let said = clause.replace('@', &said.replace('#', MATCHES));
            let kept = kept(&format!("SELECT 1 FROM t {}", clause.replace('@', &not_in)));
            assert_eq!(kept, format!("SELECT 1 FROM t {said}"));
        }
    }

    #[test]
    fn a_value_is_null_where_it_cannot_be_told() {
        for (not, found, missing) in [("", "true", "false"), ("NOT ", "false", "true")] {
            let said = said(&format!("(a, b) {not}IN (SELECT x, y FROM q)"));
            let expected = format!(
                "CASE WHEN {MATCHES}) THEN {found} WHEN {MATCHES} IS NULL) THEN NULL ELSE {missing} END"
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
    fn conditions_look_long_lists_up() {
        let list = |rows: usize, row: &str| vec![row; rows].join(", ");
        let short = kept(&format!(
            "SELECT 1 FROM t WHERE (a, b) IN ({})",
            list(31, "(1, -2)")
        ));
        assert!(!short.contains("VALUES"), "{short}");
        let long = kept(&format!(
            "SELECT 1 FROM t WHERE (a, b) IN ({})",
            list(32, "(1, -2)")
        ));
        let rows = list(32, "(1, -2)");
        assert_eq!(
            long,
            format!(
                "SELECT 1 FROM t WHERE EXISTS (SELECT 1 FROM (VALUES {rows}) AS _row (_row_1, _row_2) \
                 WHERE (a = _row_1 AND b = _row_2))"
            )
        );
        let columns = kept(&format!(
            "SELECT 1 FROM t WHERE (a, b) IN ({})",
            list(32, "(1, c)")
        ));
        assert!(!columns.contains("VALUES"), "{columns}");
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
