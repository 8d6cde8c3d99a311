//! Output columns of one name.
//!
//! PostgreSQL takes several output columns of one name wherever nothing refers to that name. DataFusion 55.2 does
//! not: `SELECT a, a`, `SELECT a, b AS a`, `SELECT id, t.*` and `SELECT 82, +82` are errors, and so is a subquery
//! `(SELECT * FROM a, b) AS t` if both tables have an `id`. So each column of a repeated name gets a name of its
//! own, which no statement can mention, and is shown by the name that it had: [`shown`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, OrderBy, OrderByKind, Query, RenameSelectItem, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Statement, TableFactor, UnaryOperator, Visit,
    VisitMut, Visitor, VisitorMut, WildcardAdditionalOptions,
};

use crate::statement::names::fold;
use crate::statement::using_join::{Names, factors, name_of, renamed, without};

/// Stands between the name of a column and the number that tells it apart.
const APART: char = '\u{1}';

/// The name that a column is shown by.
pub fn shown(name: &str) -> &str {
    name.split(APART).next().unwrap_or(name)
}

/// Whether columns of a statement may have one name.
pub fn may_repeat(statement: &Statement) -> bool {
    struct Looks;
    impl Visitor for Looks {
        type Break = ();
        fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
            let is_single = |item: &SelectItem| {
                matches!(
                    item,
                    SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }
                )
            };
            match select.projection.as_slice() {
                [one] if is_single(one) => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        }
    }
    statement.visit(&mut Looks).is_break()
}

/// The tables in FROM of a statement, which may be those of a `WITH`.
pub fn tables(statement: &Statement) -> Vec<ObjectName> {
    struct Tables(Vec<ObjectName>);
    impl Visitor for Tables {
        type Break = ();
        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
            if let TableFactor::Table {
                name, args: None, ..
            } = factor
            {
                self.0.push(name.clone());
            }
            ControlFlow::Continue(())
        }
    }
    let mut tables = Tables(Vec::new());
    let _: ControlFlow<()> = statement.visit(&mut tables);
    tables.0
}

/// A statement no two columns of which have one name.
#[derive(Debug)]
pub struct Apart {
    /// The statement.
    pub statement: Statement,
    /// The names that several columns of a SELECT had. Nothing has them now: a reference to one is ambiguous.
    pub repeated: BTreeSet<String>,
}

/// Which expressions without a name may be one to DataFusion, which calls them by what they mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nameless {
    /// Those with one text.
    Alike,
    /// All of a SELECT.
    All,
}

/// `statement` with a name of its own for each column that has the name of another in its SELECT; `None` if there
/// is none. `columns` gives the columns of a table, view or file, as the catalog names them, if it has it.
///
/// # Errors
/// In words, of ORDER BY a name that columns have which are not the same.
pub fn tell_apart(
    statement: &Statement,
    columns: &dyn Fn(&ObjectName) -> Option<Vec<String>>,
    nameless: Nameless,
) -> Result<Option<Apart>, String> {
    let mut statement = statement.clone();
    let mut teller = Teller {
        names: Names::new(columns),
        nameless,
        repeated: BTreeSet::new(),
        next: 0,
    };
    match VisitMut::visit(&mut statement, &mut teller) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) if teller.next == 0 => Ok(None),
        ControlFlow::Continue(()) => Ok(Some(Apart {
            statement,
            repeated: teller.repeated,
        })),
    }
}

struct Teller<'a> {
    names: Names<'a>,
    nameless: Nameless,
    repeated: BTreeSet<String>,
    /// How many columns have got a name.
    next: usize,
}

/// An output column.
struct Column {
    /// `None` of an expression that has none.
    name: Option<String>,
    expr: Expr,
    /// Whether the statement calls it so with AS.
    is_alias: bool,
}

impl VisitorMut for Teller<'_> {
    type Break = String;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<String> {
        let Some(with) = &mut query.with else {
            return ControlFlow::Continue(());
        };
        if with.recursive {
            // A table may be read in its own definition.
            for cte in &with.cte_tables {
                let columns = renamed(None, Some(&cte.alias));
                self.names.ctes.push((fold(&cte.alias.name), columns));
            }
        }
        for cte in &mut with.cte_tables {
            VisitMut::visit(&mut cte.query, self)?;
            let columns = renamed(self.names.of_query(&cte.query), Some(&cte.alias));
            self.names.ctes.push((fold(&cte.alias.name), columns));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<String> {
        let mut groups = BTreeMap::new();
        self.body(&mut query.body, &mut groups);
        if let Some(with) = &query.with {
            let times = if with.recursive { 2 } else { 1 };
            let ctes = self.names.ctes.len() - times * with.cte_tables.len();
            self.names.ctes.truncate(ctes);
        }
        match &mut query.order_by {
            Some(order_by) => sort_by_one(order_by, &groups),
            None => ControlFlow::Continue(()),
        }
    }
}

/// By name, the columns that had it: what they are, and what they are called now.
type Groups = BTreeMap<String, Vec<(Expr, Ident)>>;

impl Teller<'_> {
    /// Tells the columns of the SELECTs of a query apart; `groups` gets those of the first.
    fn body(&mut self, body: &mut SetExpr, groups: &mut Groups) {
        match body {
            SetExpr::Select(select) => *groups = self.select(select),
            SetExpr::SetOperation { left, right, .. } => {
                self.body(left, groups);
                self.body(right, &mut BTreeMap::new());
            }
            _ => {}
        }
    }

    fn select(&mut self, select: &mut Select) -> Groups {
        let items: Vec<Option<Vec<Column>>> = select
            .projection
            .iter()
            .map(|item| self.columns(item, select))
            .collect();
        let all_known = items.iter().all(Option::is_some);
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let mut texts: BTreeMap<String, usize> = BTreeMap::new();
        for column in items.iter().flatten().flatten() {
            match &column.name {
                Some(name) => *counts.entry(name.clone()).or_default() += 1,
                None => *texts.entry(text(&column.expr)).or_default() += 1,
            }
        }
        let nameless: usize = texts.values().sum();
        let is_repeated = |column: &Column| match &column.name {
            Some(name) => counts[name] > 1 || (!all_known && !column.is_alias),
            None => match self.nameless {
                Nameless::All => nameless > 1,
                Nameless::Alike => texts[&text(&column.expr)] > 1,
            },
        };
        let mut groups = Groups::new();
        let mut projection = Vec::with_capacity(select.projection.len());
        for (item, columns) in std::mem::take(&mut select.projection)
            .into_iter()
            .zip(items)
        {
            let Some(columns) = columns.filter(|columns| columns.iter().any(is_repeated)) else {
                projection.push(item);
                continue;
            };
            for column in columns {
                if !is_repeated(&column) {
                    projection.push(match (column.name, column.is_alias) {
                        (Some(name), true) => SelectItem::ExprWithAlias {
                            expr: column.expr,
                            alias: Ident::with_quote('"', name),
                        },
                        _ => SelectItem::UnnamedExpr(column.expr),
                    });
                    continue;
                }
                self.next += 1;
                let name = column.name.clone().unwrap_or_else(|| text(&column.expr));
                let alias = Ident::with_quote('"', format!("{name}{APART}{}", self.next));
                if column.name.is_some() {
                    let group = groups.entry(name.clone()).or_default();
                    group.push((column.expr.clone(), alias.clone()));
                }
                projection.push(SelectItem::ExprWithAlias {
                    expr: column.expr,
                    alias,
                });
            }
        }
        select.projection = projection;
        let repeated = groups.iter().filter(|(_, columns)| columns.len() > 1);
        self.repeated.extend(repeated.map(|(name, _)| name.clone()));
        groups
    }

    /// The columns of an item; `None` where only the planner knows them.
    fn columns(&self, item: &SelectItem, select: &Select) -> Option<Vec<Column>> {
        let one = |name, expr: &Expr, is_alias| {
            let expr = expr.clone();
            Some(vec![Column {
                name,
                expr,
                is_alias,
            }])
        };
        match item {
            SelectItem::UnnamedExpr(expr) => one(name_of_expr(expr), expr, false),
            SelectItem::ExprWithAlias { expr, alias } => one(Some(fold(alias)), expr, true),
            SelectItem::ExprWithAliases { .. } => None,
            SelectItem::Wildcard(options) => {
                let tables = factors(&select.from).into_iter();
                let columns = tables.map(|table| self.of_table(table, options));
                let columns = columns.collect::<Option<Vec<_>>>()?;
                Some(columns.into_iter().flatten().collect())
            }
            SelectItem::QualifiedWildcard(kind, options) => {
                let SelectItemQualifiedWildcardKind::ObjectName(name) = kind else {
                    return None;
                };
                let name = fold(name.0.last()?.as_ident()?);
                let table = factors(&select.from)
                    .into_iter()
                    .find(|table| name_of(table).is_some_and(|own| fold(own) == name))?;
                self.of_table(table, options)
            }
        }
    }

    /// What a wildcard shows of a table.
    fn of_table(
        &self,
        table: &TableFactor,
        options: &WildcardAdditionalOptions,
    ) -> Option<Vec<Column>> {
        let columns = without(self.names.of_factor(table)?, options)?;
        let columns = columns.into_iter().map(|column| {
            let ident = Ident::with_quote('"', &column);
            let replaced = options
                .opt_replace
                .iter()
                .flat_map(|replace| &replace.items);
            let mut replaced = replaced.filter(|item| fold(&item.column_name) == column);
            if let Some(item) = replaced.next() {
                return Column {
                    name: Some(column),
                    expr: item.expr.clone(),
                    is_alias: true,
                };
            }
            let expr = match name_of(table) {
                Some(table) => Expr::CompoundIdentifier(vec![table.clone(), ident]),
                None => Expr::Identifier(ident),
            };
            let renames = match &options.opt_rename {
                Some(RenameSelectItem::Single(one)) => std::slice::from_ref(one),
                Some(RenameSelectItem::Multiple(all)) => all.as_slice(),
                None => &[],
            };
            let new = renames.iter().find(|one| fold(&one.ident) == column);
            Column {
                is_alias: new.is_some(),
                name: Some(new.map_or(column, |new| fold(&new.alias))),
                expr,
            }
        });
        Some(columns.collect())
    }
}

/// ORDER BY a name that several columns had is by the first of them if they are the same.
fn sort_by_one(order_by: &mut OrderBy, groups: &Groups) -> ControlFlow<String> {
    let OrderByKind::Expressions(keys) = &mut order_by.kind else {
        return ControlFlow::Continue(());
    };
    for key in keys {
        let Expr::Identifier(ident) = &key.expr else {
            continue;
        };
        let Some([(first, alias), others @ ..]) = groups.get(&fold(ident)).map(Vec::as_slice)
        else {
            continue;
        };
        if !others.iter().all(|(other, _)| is_same(first, other)) {
            return ControlFlow::Break(ambiguous(&fold(ident)));
        }
        key.expr = Expr::Identifier(alias.clone());
    }
    ControlFlow::Continue(())
}

/// What is wrong with a reference to a name that several columns have.
pub fn ambiguous(name: &str) -> String {
    format!("column reference {name} is ambiguous: give the columns of that name others with AS")
}

/// Whether two expressions are the same column, or read alike.
fn is_same(one: &Expr, other: &Expr) -> bool {
    fn last(expr: &Expr) -> Option<(&Ident, bool)> {
        match expr {
            Expr::Identifier(ident) => Some((ident, false)),
            Expr::CompoundIdentifier(parts) => Some((parts.last()?, true)),
            _ => None,
        }
    }
    if let (Some((one, a)), Some((other, b))) = (last(one), last(other))
        && a != b
    {
        return fold(one) == fold(other);
    }
    text(one) == text(other)
}

fn text(expr: &Expr) -> String {
    expr.to_string().to_lowercase()
}

/// The name that an expression without alias has: a cast has that of what it casts, a subquery that of its
/// column.
fn name_of_expr(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(ident) => Some(fold(ident)),
        Expr::CompoundIdentifier(parts) => Some(fold(parts.last()?)),
        Expr::Nested(expr)
        | Expr::Cast { expr, .. }
        | Expr::UnaryOp {
            op: UnaryOperator::Plus,
            expr,
        } => name_of_expr(expr),
        Expr::Subquery(query) => name_of_first(&query.body),
        _ => None,
    }
}

fn name_of_first(body: &SetExpr) -> Option<String> {
    match body {
        SetExpr::Select(select) => match select.projection.first()? {
            SelectItem::UnnamedExpr(expr) => name_of_expr(expr),
            SelectItem::ExprWithAlias { alias, .. } => Some(fold(alias)),
            _ => None,
        },
        SetExpr::Query(query) => name_of_first(&query.body),
        SetExpr::SetOperation { left, .. } => name_of_first(left),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn apart(sql: &str, nameless: Nameless) -> Result<Option<String>, String> {
        let statements = Parser::parse_sql(&GenericDialect {}, sql).unwrap();
        let columns = |table: &ObjectName| match table.to_string().as_str() {
            "t" => Some(vec!["a".to_owned(), "b".to_owned()]),
            "u" => Some(vec!["a".to_owned(), "c".to_owned()]),
            _ => None,
        };
        let apart = tell_apart(&statements[0], &columns, nameless)?;
        Ok(apart.map(|apart| apart.statement.to_string().replace(APART, "#")))
    }

    #[test]
    fn each_column_of_a_repeated_name_gets_one_of_its_own() {
        for (sql, expected) in [
            (
                "SELECT a, A, b FROM t",
                r##"SELECT a AS "a#1", A AS "a#2", b FROM t"##,
            ),
            (
                "SELECT a, b AS a FROM t",
                r##"SELECT a AS "a#1", b AS "a#2" FROM t"##,
            ),
            (
                "SELECT t.a, u.a, b FROM t, u",
                r##"SELECT t.a AS "a#1", u.a AS "a#2", b FROM t, u"##,
            ),
            (
                "SELECT a, t.* FROM t",
                r##"SELECT a AS "a#1", t."a" AS "a#2", t."b" FROM t"##,
            ),
            (
                "SELECT * FROM t, u",
                r##"SELECT t."a" AS "a#1", t."b", u."a" AS "a#2", u."c" FROM t, u"##,
            ),
            (
                "SELECT *, upper(b) AS b FROM t",
                r##"SELECT t."a", t."b" AS "b#1", upper(b) AS "b#2" FROM t"##,
            ),
            (
                "SELECT * FROM (SELECT * FROM t, u) AS x",
                r##"SELECT * FROM (SELECT t."a" AS "a#1", t."b", u."a" AS "a#2", u."c" FROM t, u) AS x"##,
            ),
            (
                "SELECT a, CAST(a AS TEXT), (SELECT a FROM u) FROM t",
                r##"SELECT a AS "a#1", CAST(a AS TEXT) AS "a#2", (SELECT a FROM u) AS "a#3" FROM t"##,
            ),
            (
                "WITH q AS (SELECT a, a FROM t) SELECT * FROM q",
                r##"WITH q AS (SELECT a AS "a#1", a AS "a#2" FROM t) SELECT * FROM q"##,
            ),
            (
                "SELECT 1, 1 UNION ALL SELECT a, a FROM t",
                r##"SELECT 1 AS "1#1", 1 AS "1#2" UNION ALL SELECT a AS "a#3", a AS "a#4" FROM t"##,
            ),
            (
                "SELECT a, t.a FROM t ORDER BY a DESC",
                r##"SELECT a AS "a#1", t.a AS "a#2" FROM t ORDER BY "a#1" DESC"##,
            ),
            (
                "SELECT x, * FROM f(3)",
                r##"SELECT x AS "x#1", * FROM f(3)"##,
            ),
            (
                "SELECT a, * EXCLUDE (a) REPLACE (c + 1 AS c), c FROM u",
                r##"SELECT a, c + 1 AS "c#1", c AS "c#2" FROM u"##,
            ),
        ] {
            assert_eq!(
                apart(sql, Nameless::Alike).unwrap().as_deref(),
                Some(expected)
            );
        }
    }

    #[test]
    fn expressions_may_be_one_whatever_they_look_like() {
        let sql = "SELECT 82, +82, a FROM t";
        assert_eq!(apart(sql, Nameless::Alike), Ok(None));
        let expected = r##"SELECT 82 AS "82#1", +82 AS "+82#2", a FROM t"##;
        assert_eq!(
            apart(sql, Nameless::All).unwrap().as_deref(),
            Some(expected)
        );
    }

    #[test]
    fn other_columns_keep_their_names() {
        for sql in [
            "SELECT a, b, a + 1, a + 2 FROM t",
            r#"SELECT a, "A" FROM t"#,
            "SELECT * FROM t",
            "SELECT * EXCLUDE (a), a FROM t",
            "SELECT (SELECT 1), (SELECT 2)",
        ] {
            assert_eq!(apart(sql, Nameless::Alike), Ok(None), "{sql}");
        }
    }

    #[test]
    fn sorting_by_one_of_several_is_ambiguous() {
        for sql in [
            "SELECT a, b AS a FROM t ORDER BY a",
            "SELECT t.a, u.a FROM t, u ORDER BY a",
        ] {
            let error = apart(sql, Nameless::Alike).unwrap_err();
            assert!(
                error.starts_with("column reference a is ambiguous"),
                "{error}"
            );
        }
    }

    #[test]
    fn names_are_shown_without_what_tells_them_apart() {
        assert_eq!(shown("a\u{1}12"), "a");
        assert_eq!(shown("a"), "a");
    }
}
