//! Which columns tables have, as far as that can be told without the planner.

use std::collections::BTreeSet;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor, TableWithJoins,
    WildcardAdditionalOptions,
};

use crate::statement::names::{excluded, fold};

/// Which columns tables have, as far as that can be told without the planner.
pub(crate) struct Names<'a> {
    columns: &'a dyn Fn(&ObjectName) -> Option<Vec<String>>,
    /// The CTEs in scope and their columns, innermost last.
    pub(crate) ctes: Vec<(String, Option<Vec<String>>)>,
}

impl<'a> Names<'a> {
    pub(crate) fn new(columns: &'a dyn Fn(&ObjectName) -> Option<Vec<String>>) -> Self {
        Self {
            columns,
            ctes: Vec::new(),
        }
    }

    /// The columns of what a query returns.
    pub(crate) fn of_query(&self, query: &Query) -> Option<Vec<String>> {
        // Its own CTEs are not in scope here.
        if query.with.is_some() && has_wildcard(&query.body) {
            return None;
        }
        self.of_body(&query.body)
    }

    fn of_body(&self, body: &SetExpr) -> Option<Vec<String>> {
        match body {
            SetExpr::Select(select) => self.of_select(select),
            SetExpr::Query(query) => self.of_query(query),
            SetExpr::SetOperation { left, .. } => self.of_body(left),
            SetExpr::Values(values) => {
                let width = values.rows.first()?.len();
                Some((1..=width).map(|n| format!("column{n}")).collect())
            }
            _ => None,
        }
    }

    fn of_select(&self, select: &Select) -> Option<Vec<String>> {
        let mut columns = Vec::new();
        for item in &select.projection {
            match item {
                SelectItem::UnnamedExpr(expr) => columns.push(match expr {
                    Expr::Identifier(ident) => fold(ident),
                    Expr::CompoundIdentifier(parts) => fold(parts.last()?),
                    other => other.to_string(),
                }),
                SelectItem::ExprWithAlias { alias, .. } => columns.push(fold(alias)),
                SelectItem::ExprWithAliases { aliases, .. } => {
                    columns.extend(aliases.iter().map(fold));
                }
                SelectItem::Wildcard(options) => {
                    for factor in factors(&select.from) {
                        columns.extend(without(self.of_factor(factor)?, options)?);
                    }
                }
                SelectItem::QualifiedWildcard(kind, options) => {
                    let SelectItemQualifiedWildcardKind::ObjectName(name) = kind else {
                        return None;
                    };
                    let table = fold(name.0.last()?.as_ident()?);
                    let factor = factors(&select.from)
                        .into_iter()
                        .find(|f| name_of(f).is_some_and(|n| fold(n) == table))?;
                    columns.extend(without(self.of_factor(factor)?, options)?);
                }
            }
        }
        Some(columns)
    }

    pub(crate) fn of_factor(&self, factor: &TableFactor) -> Option<Vec<String>> {
        match factor {
            TableFactor::Table {
                name,
                alias,
                args: None,
                ..
            } => {
                let cte = match name.0.as_slice() {
                    [ObjectNamePart::Identifier(only)] => {
                        let only = fold(only);
                        self.ctes.iter().rev().find(|(name, _)| *name == only)
                    }
                    _ => None,
                };
                let columns = match cte {
                    Some((_, columns)) => columns.clone(),
                    None => (self.columns)(name),
                };
                renamed(columns, alias.as_ref())
            }
            TableFactor::Derived {
                subquery, alias, ..
            } => renamed(self.of_query(subquery), alias.as_ref()),
            TableFactor::Table { alias, .. }
            | TableFactor::TableFunction { alias, .. }
            | TableFactor::Function { alias, .. }
            | TableFactor::UNNEST { alias, .. } => renamed(None, alias.as_ref()),
            _ => None,
        }
    }
}

fn has_wildcard(body: &SetExpr) -> bool {
    match body {
        SetExpr::Select(select) => select.projection.iter().any(|item| {
            matches!(
                item,
                SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)
            )
        }),
        SetExpr::SetOperation { left, .. } => has_wildcard(left),
        _ => false,
    }
}

/// The columns as an alias `t (a, b)` renames them; those are all where no others are known.
pub(crate) fn renamed(
    columns: Option<Vec<String>>,
    alias: Option<&TableAlias>,
) -> Option<Vec<String>> {
    let names = alias.map_or(&[][..], |alias| &alias.columns);
    if names.is_empty() {
        return columns;
    }
    let mut columns = columns.unwrap_or_default();
    columns.splice(
        ..names.len().min(columns.len()),
        names.iter().map(|column| fold(&column.name)),
    );
    Some(columns)
}

/// What a wildcard leaves of `columns`; `None` if that is for the planner to say.
pub(crate) fn without(
    columns: Vec<String>,
    options: &WildcardAdditionalOptions,
) -> Option<Vec<String>> {
    if options.opt_ilike.is_some() {
        return None;
    }
    let hidden: BTreeSet<String> = excluded(options).iter().map(fold).collect();
    let shown = columns.into_iter().filter(|c| !hidden.contains(c));
    Some(shown.collect())
}

/// The tables of FROM, those of nested joins one by one.
pub(crate) fn factors(from: &[TableWithJoins]) -> Vec<&TableFactor> {
    fn add<'f>(factor: &'f TableFactor, all: &mut Vec<&'f TableFactor>) {
        match factor {
            TableFactor::NestedJoin {
                table_with_joins,
                alias: None,
            } => add_all(table_with_joins, all),
            other => all.push(other),
        }
    }
    fn add_all<'f>(table: &'f TableWithJoins, all: &mut Vec<&'f TableFactor>) {
        add(&table.relation, all);
        for join in &table.joins {
            add(&join.relation, all);
        }
    }
    let mut all = Vec::new();
    for table in from {
        add_all(table, &mut all);
    }
    all
}

/// What a block calls a table.
pub(crate) fn name_of(factor: &TableFactor) -> Option<&Ident> {
    match factor {
        TableFactor::Table { name, alias, .. } => match alias {
            Some(alias) => Some(&alias.name),
            None => name.0.last()?.as_ident(),
        },
        TableFactor::Derived { alias, .. }
        | TableFactor::TableFunction { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::NestedJoin { alias, .. } => alias.as_ref().map(|alias| &alias.name),
        _ => None,
    }
}
