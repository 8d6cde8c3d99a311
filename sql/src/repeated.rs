//! Columns of a SELECT that have the name of one before them.

use std::collections::{HashMap, HashSet};
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
    let repeats = statement.visit(&mut LooksForRepeated);
    if repeats.is_continue() {
        return Vec::new();
    }
    let mut mentioned = Mentioned::default();
    let _: ControlFlow<()> = statement.visit(&mut mentioned);
    let renamed = [mentioned.0, HashSet::new()].map(|taken| {
        let mut statement = statement.clone();
        let mut renamer = Renamer { taken };
        let _: ControlFlow<()> = VisitMut::visit(&mut statement, &mut renamer);
        statement
    });
    renamed.into()
}

/// Breaks at a SELECT with repeated columns.
struct LooksForRepeated;

impl Visitor for LooksForRepeated {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        if repeated(select).is_empty() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

/// The names that a statement has.
#[derive(Default)]
struct Mentioned(HashSet<String>);

impl Visitor for Mentioned {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        let names = select.projection.iter().filter_map(Name::of);
        self.0.extend(names.map(|name| name.last));
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(ident) => {
                self.0.insert(fold(ident));
            }
            Expr::CompoundIdentifier(parts) => self.0.extend(parts.iter().map(fold)),
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
    let mut before: HashMap<String, Tables> = HashMap::new();
    let mut repeated = Vec::new();
    for (place, item) in select.projection.iter().enumerate() {
        let Some(name) = Name::of(item) else {
            continue;
        };
        let tables = before.entry(name.last.clone()).or_default();
        if tables.has_or_adds(name.of) {
            repeated.push((place, name.last));
        }
    }
    repeated
}

/// Whose columns have a name.
#[derive(Default)]
struct Tables {
    /// It is not known of some: they may be those of any table.
    some_unknown: bool,
    known: HashSet<Vec<String>>,
}

impl Tables {
    /// Whether one of them is, or may be, `table`, which is one of them from now on.
    fn has_or_adds(&mut self, table: Option<Vec<String>>) -> bool {
        let had_unknown = self.some_unknown;
        match table {
            Some(table) => !self.known.insert(table) || had_unknown,
            None => {
                self.some_unknown = true;
                had_unknown || !self.known.is_empty()
            }
        }
    }
}

/// What DataFusion calls a column, or little less.
struct Name {
    /// The table of `t.a`; it is not known of others.
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

    /// A cast has the name of what it casts, a subquery that of its column without its table; all IN, and all
    /// EXISTS, have one.
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
            Expr::Subquery(query) => Some(Self::bare(Self::of_first(&query.body)?.last)),
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
                "SELECT t.a, u.a, t.a, b AS a FROM t, u",
                r#"SELECT t.a, u.a, t.a AS "a_1", b AS "a_2" FROM t, u"#,
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
            (
                "SELECT t.a, (SELECT u.a FROM u) FROM t",
                r#"SELECT t.a, (SELECT u.a FROM u) AS "a_1" FROM t"#,
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
            "SELECT t.a, u.a, v.a FROM t, u, v",
            "SELECT *, a FROM t",
            "SELECT (SELECT 1), (SELECT 2)",
        ] {
            assert!(renamed(sql).is_empty(), "{sql}");
        }
    }
}
