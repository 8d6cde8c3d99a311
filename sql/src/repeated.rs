//! Columns of a SELECT that have the name of one before them.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Select, SelectItem, SetExpr, Statement, Visit, VisitMut, Visitor, VisitorMut,
};

use crate::row_ids::fold;

/// `statement` with other names for columns that have, or may have, the name of one before them, as DuckDB
/// names them in tables. For statements that DataFusion refuses, which takes no two columns of one name:
///
/// ```sql
/// SELECT a, a        FROM t
/// SELECT a, a AS a_1 FROM t
/// ```
///
/// The first one is to be tried first: none of its new names is one that the statement mentions, which may
/// be that of another column. The second one may mean the new name by it. There is none if no column is
/// repeated. What `*` stands for is not known here, and `t.a, u.a` are two that DataFusion tells apart.
pub fn with_repeated_renamed(statement: &Statement) -> Vec<Statement> {
    let mut finder = Finder::default();
    let _: ControlFlow<()> = statement.visit(&mut finder);
    if !finder.has_repeated {
        return Vec::new();
    }
    let renamed = [finder.mentioned, HashSet::new()].map(|taken| {
        let mut statement = statement.clone();
        let mut renamer = Renamer { taken };
        let _: ControlFlow<()> = VisitMut::visit(&mut statement, &mut renamer);
        statement
    });
    renamed.into()
}

/// Looks for repeated columns, and for the names that a statement has.
#[derive(Default)]
struct Finder {
    has_repeated: bool,
    mentioned: HashSet<String>,
}

impl Visitor for Finder {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.has_repeated |= !repeated(select).is_empty();
        let names = select.projection.iter().filter_map(Name::of);
        self.mentioned.extend(names.map(|name| name.last));
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(ident) => {
                self.mentioned.insert(fold(ident));
            }
            Expr::CompoundIdentifier(parts) => self.mentioned.extend(parts.iter().map(fold)),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

struct Renamer {
    /// Names that are not free, and those given.
    taken: HashSet<String>,
}

impl VisitorMut for Renamer {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let own = select.projection.iter().filter_map(Name::of);
        let own: HashSet<String> = own.map(|name| name.last).collect();
        for (place, name) in repeated(select) {
            let mut free = (1..).map(|number| format!("{name}_{number}"));
            let is_free = |free: &String| !own.contains(free) && self.taken.insert(free.clone());
            let Some(free) = free.find(is_free) else {
                continue;
            };
            let item = &mut select.projection[place];
            if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                *item = SelectItem::ExprWithAlias {
                    expr: expr.clone(),
                    alias: Ident::with_quote('"', free),
                };
            }
        }
        ControlFlow::Continue(())
    }
}

/// The places of columns that have, or may have, the name of one before them, and that name.
fn repeated(select: &Select) -> Vec<(usize, String)> {
    let mut before: Vec<Name> = Vec::new();
    let mut repeated = Vec::new();
    for (place, item) in select.projection.iter().enumerate() {
        let Some(name) = Name::of(item) else {
            continue;
        };
        if before.iter().any(|other| name.may_be(other)) {
            repeated.push((place, name.last.clone()));
        }
        before.push(name);
    }
    repeated
}

/// What DataFusion calls a column, or little less.
struct Name {
    /// The table of `t.a`.
    of: Option<Vec<String>>,
    last: String,
}

impl Name {
    /// Of what has one name.
    fn of(item: &SelectItem) -> Option<Self> {
        match item {
            SelectItem::ExprWithAlias { alias, .. } => Some(Self::bare(fold(alias))),
            SelectItem::UnnamedExpr(expr) => Self::of_expr(expr),
            SelectItem::ExprWithAliases { .. }
            | SelectItem::Wildcard(_)
            | SelectItem::QualifiedWildcard(..) => None,
        }
    }

    fn bare(last: String) -> Self {
        Self { of: None, last }
    }

    /// A cast has the name of what it casts, a subquery that of its column; all IN, and all EXISTS, have one.
    fn of_expr(expr: &Expr) -> Option<Self> {
        let not = |negated: bool| if negated { "not " } else { "" };
        match expr {
            Expr::Identifier(ident) => Some(Self::bare(fold(ident))),
            Expr::CompoundIdentifier(parts) => {
                let (last, of) = parts.split_last()?;
                Some(Self {
                    of: Some(of.iter().map(fold).collect()),
                    last: fold(last),
                })
            }
            Expr::Nested(expr) | Expr::Cast { expr, .. } => Self::of_expr(expr),
            Expr::Subquery(query) => Self::of_first(&query.body),
            Expr::Exists { negated, .. } => Some(Self::bare(format!("{}exists", not(*negated)))),
            Expr::InSubquery { negated, .. } => Some(Self::bare(format!("{}in", not(*negated)))),
            other => Some(Self::bare(other.to_string().to_lowercase())),
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

    /// Whether it is that of `other`, as far as is known where one of them has no table.
    fn may_be(&self, other: &Self) -> bool {
        let may_be = match (&self.of, &other.of) {
            (Some(of), Some(other)) => of == other,
            _ => true,
        };
        may_be && self.last == other.last
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn renamed(sql: &str) -> Vec<String> {
        let statements = Parser::parse_sql(&GenericDialect {}, sql).unwrap();
        let renamed = with_repeated_renamed(&statements[0]);
        renamed.iter().map(Statement::to_string).collect()
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
                "SELECT a, b AS a FROM t ORDER BY a_1",
                r#"SELECT a, b AS "a_2" FROM t ORDER BY a_1"#,
            ),
            (
                "SELECT 0, 1, 0 UNION ALL SELECT 0, 0, 1",
                r#"SELECT 0, 1, 0 AS "0_1" UNION ALL SELECT 0, 0 AS "0_2", 1"#,
            ),
            (
                "SELECT count(*), COUNT(*) FROM (SELECT b, CAST(b AS TEXT), (b) FROM t)",
                r#"SELECT count(*), COUNT(*) AS "count(*)_1" FROM (SELECT b, CAST(b AS TEXT) AS "b_1", (b) AS "b_2" FROM t)"#,
            ),
            (
                "SELECT EXISTS (SELECT 1), NOT EXISTS (SELECT 1), EXISTS (SELECT 2), a IN (SELECT 1), b IN (SELECT 2)",
                r#"SELECT EXISTS (SELECT 1), NOT EXISTS (SELECT 1), EXISTS (SELECT 2) AS "exists_1", a IN (SELECT 1), b IN (SELECT 2) AS "in_1""#,
            ),
            (
                "SELECT a, (SELECT a FROM u), (SELECT count(*) FROM t), (SELECT count(*) FROM u)",
                r#"SELECT a, (SELECT a FROM u) AS "a_1", (SELECT count(*) FROM t), (SELECT count(*) FROM u) AS "count(*)_1""#,
            ),
        ] {
            assert_eq!(renamed(sql)[0], expected);
        }
    }

    #[test]
    fn a_name_that_is_mentioned_may_be_the_new_one() {
        let second = r#"SELECT a, b AS "a_1" FROM t ORDER BY a_1"#;
        assert_eq!(renamed("SELECT a, b AS a FROM t ORDER BY a_1")[1], second);
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
            assert!(renamed(sql).is_empty(), "{sql}");
        }
    }
}
