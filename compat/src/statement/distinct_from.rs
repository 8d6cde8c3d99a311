//! How strongly IS DISTINCT FROM binds.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, VisitMut, VisitorMut};

/// Lets `IS [NOT] DISTINCT FROM` bind more than NOT, AND and OR within `node`, as in PostgreSQL (["Operator
/// Precedence"]) and DuckDB.
///
/// sqlparser 0.62 takes all that follows for its right operand: `a IS DISTINCT FROM b AND c` for
/// `a IS DISTINCT FROM (b AND c)`.
///
/// ["Operator Precedence"]: https://www.postgresql.org/docs/current/sql-syntax-lexical.html
pub fn associate_distinct(node: &mut impl VisitMut) {
    if node.visit(&mut LooksForLoose).is_break() {
        let _: ControlFlow<()> = node.visit(&mut Associates);
    }
}

/// Breaks where the right operand is too long.
struct LooksForLoose;

impl VisitorMut for LooksForLoose {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::IsDistinctFrom(_, right) | Expr::IsNotDistinctFrom(_, right)
                if logical(right).is_some() =>
            {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

struct Associates;

impl VisitorMut for Associates {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let mut operands = written(expr.clone()).into_iter();
        if let Some(first) = operands.next() {
            *expr = read(first, operands);
        }
        ControlFlow::Continue(())
    }
}

/// What is between two operands that are joined without parentheses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Between {
    Distinct,
    NotDistinct,
    And,
    Or,
}

fn logical(expr: &Expr) -> Option<Between> {
    match expr {
        Expr::BinaryOp { op, .. } => match op {
            BinaryOperator::And => Some(Between::And),
            BinaryOperator::Or => Some(Between::Or),
            _ => None,
        },
        _ => None,
    }
}

/// An operand as it is written.
struct Operand {
    /// What is between it and the one before it; nothing before the first.
    between: Between,
    /// How many NOT are before it.
    nots: usize,
    expr: Expr,
}

/// The operands that `expr` joins without parentheses.
fn written(expr: Expr) -> Vec<Operand> {
    let mut operands = Vec::new();
    let mut rest = vec![Operand {
        between: Between::Or,
        nots: 0,
        expr,
    }];
    while let Some(Operand {
        between,
        nots,
        expr,
    }) = rest.pop()
    {
        let (left, own, right) = match (logical(&expr), expr) {
            (Some(own), Expr::BinaryOp { left, right, .. }) => (left, own, right),
            (_, Expr::IsDistinctFrom(left, right)) => (left, Between::Distinct, right),
            (_, Expr::IsNotDistinctFrom(left, right)) => (left, Between::NotDistinct, right),
            (
                _,
                Expr::UnaryOp {
                    op: UnaryOperator::Not,
                    expr,
                },
            ) => {
                let (nots, expr) = (nots + 1, *expr);
                rest.push(Operand {
                    between,
                    nots,
                    expr,
                });
                continue;
            }
            (_, expr) => {
                operands.push(Operand {
                    between,
                    nots,
                    expr,
                });
                continue;
            }
        };
        rest.push(Operand {
            between: own,
            nots: 0,
            expr: *right,
        });
        rest.push(Operand {
            between,
            nots,
            expr: *left,
        });
    }
    operands
}

/// The expression that these operands are.
fn read(first: Operand, others: impl Iterator<Item = Operand>) -> Expr {
    // What may still be the left side of OR, of AND, and of IS DISTINCT FROM, below so many NOT.
    let (mut any, mut all): (Option<Expr>, Option<Expr>) = (None, None);
    let (mut nots, mut one) = (first.nots, first.expr);
    for next in others {
        let right = next.expr;
        match next.between {
            Between::Distinct | Between::NotDistinct => {
                let (left, right) = (Box::new(one), Box::new(negated(right, next.nots)));
                one = match next.between {
                    Between::Distinct => Expr::IsDistinctFrom(left, right),
                    _ => Expr::IsNotDistinctFrom(left, right),
                };
                continue;
            }
            Between::And => all = Some(joined(all, BinaryOperator::And, negated(one, nots))),
            Between::Or => {
                let whole = joined(all.take(), BinaryOperator::And, negated(one, nots));
                any = Some(joined(any, BinaryOperator::Or, whole));
            }
        }
        (nots, one) = (next.nots, right);
    }
    let whole = joined(all, BinaryOperator::And, negated(one, nots));
    joined(any, BinaryOperator::Or, whole)
}

fn joined(left: Option<Expr>, op: BinaryOperator, right: Expr) -> Expr {
    match left {
        None => right,
        Some(left) => Expr::BinaryOp {
            left: Box::new(left),
            op,
            right: Box::new(right),
        },
    }
}

fn negated(expr: Expr, nots: usize) -> Expr {
    (0..nots).fold(expr, |expr, _| Expr::UnaryOp {
        op: UnaryOperator::Not,
        expr: Box::new(expr),
    })
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    struct WithoutParentheses;

    impl VisitorMut for WithoutParentheses {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            while let Expr::Nested(inner) = expr {
                *expr = inner.as_ref().clone();
            }
            ControlFlow::Continue(())
        }
    }

    fn parsed(sql: &str) -> Expr {
        let mut parser = Parser::new(&GenericDialect {}).try_with_sql(sql).unwrap();
        parser.parse_expr().unwrap()
    }

    #[test]
    fn it_binds_more_than_not_and_and_or() {
        for (sql, meant) in [
            ("a IS DISTINCT FROM b", "a IS DISTINCT FROM b"),
            ("a IS DISTINCT FROM b AND c", "(a IS DISTINCT FROM b) AND c"),
            (
                "a IS NOT DISTINCT FROM b OR c",
                "(a IS NOT DISTINCT FROM b) OR c",
            ),
            (
                "x OR a IS DISTINCT FROM b AND c OR d AND e",
                "(x OR ((a IS DISTINCT FROM b) AND c)) OR (d AND e)",
            ),
            (
                "a IS DISTINCT FROM b AND c IS NOT DISTINCT FROM d OR e",
                "((a IS DISTINCT FROM b) AND (c IS NOT DISTINCT FROM d)) OR e",
            ),
            (
                "NOT a IS DISTINCT FROM b AND NOT c",
                "(NOT (a IS DISTINCT FROM b)) AND (NOT c)",
            ),
            (
                "a IS DISTINCT FROM b = c AND d < 1",
                "(a IS DISTINCT FROM (b = c)) AND (d < 1)",
            ),
            (
                "a IS DISTINCT FROM (b AND c) AND d",
                "(a IS DISTINCT FROM (b AND c)) AND d",
            ),
            (
                "f(a IS DISTINCT FROM b AND c) + 1 > 2",
                "f((a IS DISTINCT FROM b) AND c) + 1 > 2",
            ),
        ] {
            let (mut expr, mut expected) = (parsed(sql), parsed(meant));
            associate_distinct(&mut expr);
            for expr in [&mut expr, &mut expected] {
                let _: ControlFlow<()> = VisitMut::visit(expr, &mut WithoutParentheses);
            }
            assert_eq!(expr, expected, "{sql}");
        }
    }
}
