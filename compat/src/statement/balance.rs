//! Long chains of AND, OR and UNION as flat trees.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Query, SetExpr, SetOperator, SetQuantifier, Spanned, TableFactor, Value,
    Values, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::Location;

use crate::statement::depth::{DEEPEST_CALLS, DEEPEST_SUBQUERIES};

/// Chains of so many are left as they are written.
const SHORT: usize = 64;

/// Makes `((a OR b) OR c) OR d` the equal `(a OR b) OR (c OR d)` where so many are chained that the tree would
/// be deep; the same with AND, UNION and UNION ALL. They are written the same.
///
/// # Errors
/// If more than `limit` expressions, queries and tables are within each other all the same, or more than
/// [`DEEPEST_CALLS`] calls of functions, or [`DEEPEST_SUBQUERIES`] subqueries of expressions.
pub fn balance(node: &mut impl VisitMut, limit: usize) -> Result<(), ParserError> {
    let mut balances = Balances {
        recursive: HashSet::new(),
        depth: 0,
        calls: 0,
        subqueries: 0,
        limit,
    };
    match node.visit(&mut balances) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Balances {
    /// In how many expressions, queries and tables the one is that is visited.
    depth: usize,
    /// In how many calls of functions, NOT and signs it is.
    calls: usize,
    /// In how many subqueries of expressions it is.
    subqueries: usize,
    limit: usize,
    /// Queries of `WITH RECURSIVE`, by where they are: their last UNION is none.
    recursive: HashSet<*const Query>,
}

impl VisitorMut for Balances {
    type Break = ParserError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<ParserError> {
        if let Some(with) = query.with.as_ref().filter(|with| with.recursive) {
            let queries = with.cte_tables.iter();
            let queries = queries.map(|cte| std::ptr::from_ref(cte.query.as_ref()));
            self.recursive.extend(queries);
        }
        let is_recursive = self.recursive.contains(&std::ptr::from_ref(query));
        match query.body.as_mut() {
            SetExpr::SetOperation { left, .. } if is_recursive => balance_unions(left),
            body => balance_unions(body),
        }
        self.enter(levels(&query.body))
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<ParserError> {
        self.leave(levels(&query.body))
    }

    fn pre_visit_table_factor(&mut self, _: &mut TableFactor) -> ControlFlow<ParserError> {
        self.enter(1)
    }

    fn post_visit_table_factor(&mut self, _: &mut TableFactor) -> ControlFlow<ParserError> {
        self.leave(1)
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<ParserError> {
        if let Some(operator) = chained(expr) {
            balance_operands(expr, &operator);
        }
        match expr {
            Expr::Function(_) | Expr::UnaryOp { .. } => {
                self.calls += 1;
                if self.calls > DEEPEST_CALLS {
                    return refused(DEEPEST_CALLS, "calls of functions, NOT and signs", expr);
                }
            }
            Expr::Subquery(_) | Expr::InSubquery { .. } | Expr::Exists { .. } => {
                self.subqueries += 1;
                if self.subqueries > DEEPEST_SUBQUERIES {
                    return refused(DEEPEST_SUBQUERIES, "subqueries of expressions", expr);
                }
            }
            _ => {}
        }
        self.enter(1)
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<ParserError> {
        match expr {
            Expr::Function(_) | Expr::UnaryOp { .. } => self.calls -= 1,
            Expr::Subquery(_) | Expr::InSubquery { .. } | Expr::Exists { .. } => {
                self.subqueries -= 1;
            }
            _ => {}
        }
        self.leave(1)
    }
}

fn refused(most: usize, what: &str, expr: &Expr) -> ControlFlow<ParserError> {
    let place = place_of(expr).unwrap_or(Location { line: 0, column: 0 });
    ControlFlow::Break(ParserError::ParserError(format!(
        "more than {most} {what} are within each other, and no more are planned{place}"
    )))
}

/// A place in an expression, which may be so deep that what is in it must not be walked over.
fn place_of(expr: &Expr) -> Option<Location> {
    let mut at = expr;
    loop {
        at = match at {
            Expr::UnaryOp { expr, .. } | Expr::Nested(expr) => expr,
            Expr::BinaryOp { left, .. } => left,
            Expr::Function(function) => return Some(function.name.span().start),
            Expr::Identifier(ident) => return Some(ident.span.start),
            Expr::Value(value) => return Some(value.span.start),
            Expr::Subquery(query)
            | Expr::InSubquery {
                subquery: query, ..
            }
            | Expr::Exists {
                subquery: query, ..
            } => {
                let select = query.body.as_select()?;
                return Some(select.select_token.0.span.start);
            }
            _ => return None,
        };
    }
}

impl Balances {
    fn enter(&mut self, levels: usize) -> ControlFlow<ParserError> {
        self.depth += levels;
        match self.depth > self.limit {
            true => ControlFlow::Break(ParserError::RecursionLimitExceeded),
            false => ControlFlow::Continue(()),
        }
    }

    fn leave(&mut self, levels: usize) -> ControlFlow<ParserError> {
        self.depth -= levels;
        ControlFlow::Continue(())
    }
}

/// How many set operations are within each other in a body without its subqueries, and the query itself.
fn levels(body: &SetExpr) -> usize {
    let mut deepest = 1;
    let mut rest = vec![(body, 1)];
    while let Some((body, level)) = rest.pop() {
        deepest = deepest.max(level);
        if let SetExpr::SetOperation { left, right, .. } = body {
            rest.push((left, level + 1));
            rest.push((right, level + 1));
        }
    }
    deepest
}

fn chained(expr: &Expr) -> Option<BinaryOperator> {
    match expr {
        Expr::BinaryOp { op, .. } if matches!(op, BinaryOperator::And | BinaryOperator::Or) => {
            Some(op.clone())
        }
        _ => None,
    }
}

fn balance_operands(expr: &mut Expr, operator: &BinaryOperator) {
    let mut length = 1;
    let mut first = &*expr;
    while let Expr::BinaryOp { left, op, .. } = first
        && op == operator
    {
        length += 1;
        first = left;
    }
    if length <= SHORT {
        return;
    }
    let mut operands = Vec::with_capacity(length);
    let mut rest = std::mem::replace(expr, Expr::Value(Value::Null.into()));
    rest = loop {
        match rest {
            Expr::BinaryOp { left, op, right } if op == *operator => {
                operands.push(*right);
                rest = *left;
            }
            first => break first,
        }
    };
    operands.push(rest);
    operands.reverse();
    let joined = halved(operands, |left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: operator.clone(),
        right: Box::new(right),
    });
    if let Some(joined) = joined {
        *expr = joined;
    }
}

/// Balances the chains of UNION in `body` that nothing but set operations is around.
fn balance_unions(body: &mut SetExpr) {
    let mut at = body;
    while let SetExpr::SetOperation {
        op, set_quantifier, ..
    } = at
    {
        if *op == SetOperator::Union {
            let quantifier = *set_quantifier;
            if balance_terms(at, quantifier) {
                // Its terms are within few others now, and what is below them has been looked at.
                return;
            }
        }
        let SetExpr::SetOperation { left, .. } = at else {
            return;
        };
        at = left;
    }
}

/// Balances the chain that ends with `body`; tells whether it was long.
fn balance_terms(body: &mut SetExpr, quantifier: SetQuantifier) -> bool {
    let belongs =
        |op: &SetOperator, other: &SetQuantifier| *op == SetOperator::Union && *other == quantifier;
    let mut length = 1;
    let mut first = &*body;
    while let SetExpr::SetOperation {
        left,
        op,
        set_quantifier,
        ..
    } = first
        && belongs(op, set_quantifier)
    {
        length += 1;
        first = left;
    }
    if length <= SHORT {
        return false;
    }
    let mut terms = Vec::with_capacity(length);
    let nothing = SetExpr::Values(Values {
        explicit_row: false,
        value_keyword: false,
        rows: Vec::new(),
    });
    let mut rest = std::mem::replace(body, nothing);
    rest = loop {
        match rest {
            SetExpr::SetOperation {
                left,
                op,
                set_quantifier,
                right,
            } if belongs(&op, &set_quantifier) => {
                terms.push(*right);
                rest = *left;
            }
            first => break first,
        }
    };
    balance_unions(&mut rest);
    terms.push(rest);
    terms.reverse();
    let joined = halved(terms, |left, right| SetExpr::SetOperation {
        left: Box::new(left),
        op: SetOperator::Union,
        set_quantifier: quantifier,
        right: Box::new(right),
    });
    if let Some(joined) = joined {
        *body = joined;
    }
    true
}

/// Joins neighbours until one is left.
fn halved<T>(mut parts: Vec<T>, join: impl Fn(T, T) -> T) -> Option<T> {
    while parts.len() > 1 {
        let mut fewer = Vec::with_capacity(parts.len().div_ceil(2));
        let mut rest = parts.into_iter();
        while let Some(left) = rest.next() {
            fewer.push(match rest.next() {
                Some(right) => join(left, right),
                None => left,
            });
        }
        parts = fewer;
    }
    parts.pop()
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::Statement;
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    /// How a statement is written once it is balanced, or nothing if it is deeper than `limit`.
    fn balanced(sql: &str, limit: usize) -> Option<String> {
        let mut statements: Vec<Statement> = Parser::parse_sql(&GenericDialect {}, sql).unwrap();
        balance(&mut statements, limit).ok()?;
        Some(statements[0].to_string())
    }

    #[test]
    fn long_chains_are_flat_and_written_the_same() {
        let chain = |one: &str, with: &str| vec![one; 1_000].join(with);
        for sql in [
            format!("SELECT {}", chain("a", " OR ")),
            format!("SELECT {}", chain("a", " AND ")),
            format!("SELECT {}", chain("a AND b", " OR ")),
            format!("SELECT f({})", chain("a", " OR ")),
            chain("SELECT 1", " UNION ALL "),
            chain("SELECT 1", " UNION "),
            format!("SELECT * FROM ({}) AS u", chain("SELECT 1", " UNION ALL ")),
            format!(
                "SELECT 2 EXCEPT SELECT 3 UNION ALL {}",
                chain("SELECT 1", " UNION ALL ")
            ),
            format!("{} EXCEPT SELECT 3", chain("SELECT 1", " UNION ALL ")),
            format!("{0} UNION {0}", chain("SELECT 1", " UNION ALL ")),
            format!(
                "WITH RECURSIVE r AS ({} UNION ALL SELECT 2 FROM r) SELECT * FROM r",
                chain("SELECT 1", " UNION ALL ")
            ),
        ] {
            assert_eq!(balanced(&sql, 50), Some(sql.clone()), "{}…", &sql[..40]);
        }
        for sql in [
            format!("SELECT {}", chain("a", " + ")),
            format!("SELECT {}", chain("a", " || ")),
            format!("SELECT a{}", "::INT".repeat(1_000)),
            format!("SELECT a {}", "IS NULL ".repeat(1_000)),
            chain("SELECT 1", " EXCEPT "),
            chain("SELECT 1 UNION SELECT 2", " UNION ALL "),
            format!("SELECT {}1{}", "(SELECT ".repeat(17), ")".repeat(17)),
        ] {
            assert_eq!(balanced(&sql, 500), None, "{}…", &sql[..40]);
        }
    }

    #[test]
    fn the_term_that_a_recursive_query_repeats_stays_the_last() {
        let terms = vec!["SELECT 1"; 100].join(" UNION ALL ");
        let sql =
            format!("WITH RECURSIVE r AS ({terms} UNION ALL SELECT 2 FROM r) SELECT * FROM r");
        let mut statements = Parser::parse_sql(&GenericDialect {}, &sql).unwrap();
        balance(&mut statements, 100).unwrap();
        let Statement::Query(query) = &statements[0] else {
            panic!("{sql}");
        };
        let recursive = &query.with.as_ref().unwrap().cte_tables[0].query;
        let SetExpr::SetOperation { right, .. } = recursive.body.as_ref() else {
            panic!("{recursive}");
        };
        assert_eq!(right.to_string(), "SELECT 2 FROM r");
    }
}
