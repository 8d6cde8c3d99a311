//! Columns of a SELECT that have the name of one before them.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Select, SelectItem, SetExpr, UnaryOperator, VisitMut, VisitorMut,
};

use crate::row_ids::fold;

/// Gives columns in the SELECTs of `node` that have the name of one before them another one, as DuckDB does
/// in tables; DataFusion would refuse them:
///
/// ```sql
/// SELECT a, a        FROM t
/// SELECT a, a AS a_1 FROM t
/// ```
///
/// What `*` stands for is not known here, and `t.a, u.a` are two that DataFusion tells apart.
pub fn rename_repeated<N: VisitMut>(node: &mut N) {
    let _: ControlFlow<()> = node.visit(&mut Renamer);
}

struct Renamer;

impl VisitorMut for Renamer {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        rename_in(select);
        ControlFlow::Continue(())
    }
}

fn rename_in(select: &mut Select) {
    if select.projection.len() < 2 {
        return;
    }
    let all: Vec<Option<Name>> = select.projection.iter().map(Name::of).collect();
    let mut taken: HashSet<String> = all.iter().flatten().map(|name| name.last.clone()).collect();
    for (place, item) in select.projection.iter_mut().enumerate() {
        let Some(name) = &all[place] else {
            continue;
        };
        let mut before = all[..place].iter().flatten();
        if !before.any(|other| name.is_as(other)) {
            continue;
        }
        let mut free = (1..).map(|number| format!("{}_{number}", name.last));
        let Some(free) = free.find(|free| taken.insert(free.clone())) else {
            continue;
        };
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            *item = SelectItem::ExprWithAlias {
                expr: expr.clone(),
                alias: Ident::with_quote('"', free),
            };
        }
    }
}

/// What DataFusion calls a column.
#[derive(Debug, PartialEq)]
struct Name {
    /// The table of `t.a`.
    of: Option<Vec<String>>,
    last: String,
}

impl Name {
    /// Of what has one name.
    fn of(item: &SelectItem) -> Option<Self> {
        let bare = |last| Some(Self { of: None, last });
        match item {
            SelectItem::ExprWithAlias { alias, .. } => bare(fold(alias)),
            SelectItem::UnnamedExpr(Expr::Identifier(ident)) => bare(fold(ident)),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                let (last, of) = parts.split_last()?;
                Some(Self {
                    of: Some(of.iter().map(fold).collect()),
                    last: fold(last),
                })
            }
            SelectItem::UnnamedExpr(Expr::Subquery(query)) => {
                bare(Self::of_first(&query.body)?.last)
            }
            SelectItem::UnnamedExpr(expr) => bare(text(expr)),
            SelectItem::ExprWithAliases { .. }
            | SelectItem::Wildcard(_)
            | SelectItem::QualifiedWildcard(..) => None,
        }
    }

    /// Of the first column of a query.
    fn of_first(body: &SetExpr) -> Option<Self> {
        match body {
            SetExpr::Select(select) => Self::of(select.projection.first()?),
            SetExpr::Query(query) => Self::of_first(&query.body),
            SetExpr::SetOperation { left, .. } => Self::of_first(left),
            _ => None,
        }
    }

    /// Whether it is that of `other`, or may be where one of them has no table.
    fn is_as(&self, other: &Self) -> bool {
        let may_be = match (&self.of, &other.of) {
            (Some(of), Some(other)) => of == other,
            _ => true,
        };
        may_be && self.last == other.last
    }
}

/// An expression, of which DataFusion names all subqueries alike that are conditions.
fn text(expr: &Expr) -> String {
    let not = |negated: bool| if negated { "NOT " } else { "" };
    match expr {
        Expr::Exists { negated, .. } => format!("{}EXISTS", not(*negated)),
        Expr::InSubquery { expr, negated, .. } => format!("{expr} {}IN", not(*negated)),
        Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr,
        } => format!("NOT {}", text(expr)),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn renamed(sql: &str) -> String {
        let mut statements = Parser::parse_sql(&GenericDialect {}, sql).unwrap();
        rename_repeated(&mut statements);
        statements[0].to_string()
    }

    #[test]
    fn a_column_with_the_name_of_one_before_it_gets_another() {
        for (sql, expected) in [
            (
                "SELECT a, A, a FROM t",
                r#"SELECT a, A AS "a_1", a AS "a_2" FROM t"#,
            ),
            (
                "SELECT a, b AS a, a_1, t.a FROM t",
                r#"SELECT a, b AS "a_2", a_1, t.a AS "a_3" FROM t"#,
            ),
            (
                "SELECT 1, 1 UNION ALL SELECT count(*), count(*) FROM (SELECT b, b FROM t)",
                r#"SELECT 1, 1 AS "1_1" UNION ALL SELECT count(*), count(*) AS "count(*)_1" FROM (SELECT b, b AS "b_1" FROM t)"#,
            ),
            (
                "SELECT EXISTS (SELECT 1), NOT EXISTS (SELECT 1), EXISTS (SELECT 2), a IN (SELECT 1), a IN (SELECT 2)",
                r#"SELECT EXISTS (SELECT 1), NOT EXISTS (SELECT 1), EXISTS (SELECT 2) AS "EXISTS_1", a IN (SELECT 1), a IN (SELECT 2) AS "a IN_1""#,
            ),
            (
                "SELECT a, (SELECT a FROM u), (SELECT count(*) FROM t), (SELECT count(*) FROM u)",
                r#"SELECT a, (SELECT a FROM u) AS "a_1", (SELECT count(*) FROM t), (SELECT count(*) FROM u) AS "count(*)_1""#,
            ),
        ] {
            assert_eq!(renamed(sql), expected);
        }
    }

    #[test]
    fn other_columns_keep_their_names() {
        for sql in [
            "SELECT a, b, a + 1, a + 2 FROM t",
            r#"SELECT a, "A" FROM t"#,
            "SELECT t.a, u.a FROM t, u",
            "SELECT *, a FROM t",
            "SELECT (SELECT 1), (SELECT 2)",
        ] {
            assert_eq!(renamed(sql), sql);
        }
    }
}
