//! Joins with USING, and natural ones, said with ON.
//!
//! The planner takes a column of USING for that of one of the two tables, which it may not be: the
//! row of an outer join may have no such row. So a SELECT block over
//! `a FULL JOIN b USING (k)` reads `a FULL JOIN b ON a.k = b.k`, its `k` is `coalesce(a.k, b.k)`,
//! and its `*` is `a.* REPLACE (coalesce(a.k, b.k) AS k), b.* EXCLUDE (k)`. The value of the
//! merged column is that of ISO/IEC 9075-2 (joined table): of an inner or left join the left
//! table's, of a right join the right table's.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Distinct, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart, OrderBy,
    OrderByKind, Query, ReplaceSelectElement, ReplaceSelectItem, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor, TableWithJoins, Value,
    Visit, VisitMut, Visitor, VisitorMut, WildcardAdditionalOptions,
};

use crate::row_ids::{ROW_ID, exclude, excluded, fold};

/// The tables in FROM of a statement that joins with USING, or by nature; none of others.
pub fn tables_of_using<N: Visit>(node: &N) -> Vec<ObjectName> {
    #[derive(Default)]
    struct Tables {
        names: Vec<ObjectName>,
        merges: bool,
    }
    impl Visitor for Tables {
        type Break = ();
        fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
            self.merges |= select.from.iter().any(merges);
            ControlFlow::Continue(())
        }
        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
            if let TableFactor::Table {
                name, args: None, ..
            } = factor
            {
                self.names.push(name.clone());
            }
            ControlFlow::Continue(())
        }
    }
    let mut tables = Tables::default();
    let _: ControlFlow<()> = node.visit(&mut tables);
    if tables.merges {
        tables.names
    } else {
        Vec::new()
    }
}

/// Rewrites the blocks of `node` that join with USING, or by nature.
///
/// `columns` gives the columns of a table, view or file, as the catalog names them, if it has it.
///
/// # Errors
///
/// In words, for a column of USING that is in no table, or in several, of one side; and for a
/// natural join with something whose columns only the planner knows.
pub fn merge_columns<N: VisitMut>(
    node: &mut N,
    columns: &dyn Fn(&ObjectName) -> Option<Vec<String>>,
) -> Result<(), String> {
    let mut merger = Merger {
        names: Names {
            columns,
            ctes: Vec::new(),
        },
    };
    match node.visit(&mut merger) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

fn merges(table: &TableWithJoins) -> bool {
    let nested = |factor: &TableFactor| matches!(factor, TableFactor::NestedJoin { table_with_joins, alias: None } if merges(table_with_joins));
    nested(&table.relation)
        || table.joins.iter().any(|join| {
            nested(&join.relation)
                || matches!(
                    constraint(&join.join_operator),
                    Some(JoinConstraint::Using(_) | JoinConstraint::Natural)
                )
        })
}

struct Merger<'a> {
    names: Names<'a>,
}

impl VisitorMut for Merger<'_> {
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
            // Its wildcards must have been expanded for its columns to be known.
            VisitMut::visit(&mut cte.query, self)?;
            let columns = renamed(self.names.of_query(&cte.query), Some(&cte.alias));
            self.names.ctes.push((fold(&cte.alias.name), columns));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<String> {
        let mut order_by = query.order_by.take();
        let merged = self.merge(&mut query.body, order_by.as_mut());
        query.order_by = order_by;
        if let Some(with) = &query.with {
            let times = if with.recursive { 2 } else { 1 };
            let ctes = self.names.ctes.len() - times * with.cte_tables.len();
            self.names.ctes.truncate(ctes);
        }
        match merged {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

impl Merger<'_> {
    fn merge(&self, body: &mut SetExpr, order_by: Option<&mut OrderBy>) -> Result<(), String> {
        match body {
            SetExpr::Select(select) if select.from.iter().any(merges) => {
                self.merge_block(select, order_by)
            }
            SetExpr::SetOperation { left, right, .. } => {
                self.merge(left, None)?;
                self.merge(right, None)
            }
            _ => Ok(()),
        }
    }

    fn merge_block(
        &self,
        select: &mut Select,
        order_by: Option<&mut OrderBy>,
    ) -> Result<(), String> {
        let mut block = Block {
            names: &self.names,
            tables: Vec::new(),
        };
        let mut scope = Scope::default();
        for table in &mut select.from {
            let item = block.join_all(table)?;
            scope.extend(item);
        }
        let shown = block.shown(select);

        let mut replacer = block.replacer(&scope);
        if let Some(Distinct::On(expressions)) = &mut select.distinct {
            replacer.replace(expressions);
        }
        replacer.replace(&mut select.selection);
        replacer.replace(&mut select.group_by);
        replacer.replace(&mut select.having);
        replacer.replace(&mut select.named_window);
        replacer.replace(&mut select.qualify);
        let projection = std::mem::take(&mut select.projection);
        for item in projection {
            match item {
                SelectItem::Wildcard(mut options) => {
                    replacer.replace(&mut options.opt_replace);
                    select.projection.extend(block.wildcard(&scope, options)?);
                }
                SelectItem::UnnamedExpr(Expr::Identifier(ident)) => {
                    let mut expr = Expr::Identifier(ident.clone());
                    replacer.replace(&mut expr);
                    select.projection.push(match expr {
                        Expr::Function(_) => SelectItem::ExprWithAlias { expr, alias: ident },
                        _ => SelectItem::UnnamedExpr(expr),
                    });
                }
                mut other => {
                    replacer.replace(&mut other);
                    select.projection.push(other);
                }
            }
        }
        if let Some(OrderByKind::Expressions(expressions)) = order_by.map(|o| &mut o.kind) {
            // A column of the result comes before those of FROM.
            replacer.merged.retain(|name, _| !shown.contains(name));
            replacer.replace(expressions);
        }
        Ok(())
    }
}

/// Which columns tables have, as far as that can be told without the planner.
struct Names<'a> {
    columns: &'a dyn Fn(&ObjectName) -> Option<Vec<String>>,
    /// The CTEs in scope and their columns, innermost last.
    ctes: Vec<(String, Option<Vec<String>>)>,
}

impl Names<'_> {
    /// The columns of what a query returns.
    fn of_query(&self, query: &Query) -> Option<Vec<String>> {
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

    fn of_factor(&self, factor: &TableFactor) -> Option<Vec<String>> {
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
fn renamed(columns: Option<Vec<String>>, alias: Option<&TableAlias>) -> Option<Vec<String>> {
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
fn without(columns: Vec<String>, options: &WildcardAdditionalOptions) -> Option<Vec<String>> {
    if options.opt_ilike.is_some() {
        return None;
    }
    let hidden: BTreeSet<String> = excluded(options).iter().map(fold).collect();
    let shown = columns.into_iter().filter(|c| !hidden.contains(c));
    Some(shown.collect())
}

/// The tables of FROM, those of nested joins one by one.
fn factors(from: &[TableWithJoins]) -> Vec<&TableFactor> {
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
fn name_of(factor: &TableFactor) -> Option<&Ident> {
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

/// One table of a block's FROM.
struct Table {
    /// How its columns are qualified.
    name: Vec<Ident>,
    /// `None` where only the planner knows them.
    columns: Option<Vec<String>>,
}

impl Table {
    fn column(&self, column: &Ident) -> Expr {
        let mut parts = self.name.clone();
        parts.push(column.clone());
        Expr::CompoundIdentifier(parts)
    }

    fn has(&self, column: &str) -> bool {
        self.columns
            .as_ref()
            .is_some_and(|columns| columns.iter().any(|c| c == column))
    }
}

/// A column that joins made one.
#[derive(Clone)]
struct Merged {
    value: Expr,
    /// The tables that have it, the one that shows it first.
    tables: Vec<usize>,
}

/// What can be named behind a join.
#[derive(Default)]
struct Scope {
    /// Places in [`Block::tables`], in the order of FROM.
    tables: Vec<usize>,
    merged: BTreeMap<String, Vec<Merged>>,
}

impl Scope {
    fn extend(&mut self, other: Scope) {
        self.tables.extend(other.tables);
        for (name, merged) in other.merged {
            self.merged.entry(name).or_default().extend(merged);
        }
    }

    /// The tables that have a column and do not share it.
    fn apart(&self, name: &str, block: &Block<'_>) -> Vec<usize> {
        let shared: Vec<usize> = self
            .merged
            .get(name)
            .into_iter()
            .flatten()
            .flat_map(|merged| merged.tables.iter().copied())
            .collect();
        self.tables
            .iter()
            .copied()
            .filter(|&t| block.tables[t].has(name) && !shared.contains(&t))
            .collect()
    }

    /// The columns, each once; `None` where only the planner knows them.
    fn columns(&self, block: &Block<'_>) -> Option<Vec<String>> {
        let mut columns = Vec::new();
        for &table in &self.tables {
            for column in block.tables[table].columns.as_ref()? {
                if !columns.contains(column) {
                    columns.push(column.clone());
                }
            }
        }
        Some(columns)
    }
}

/// A SELECT block whose FROM is rewritten.
struct Block<'a> {
    names: &'a Names<'a>,
    tables: Vec<Table>,
}

impl Block<'_> {
    fn join_all(&mut self, table: &mut TableWithJoins) -> Result<Scope, String> {
        let mut scope = self.factor(&mut table.relation)?;
        for join in &mut table.joins {
            let right = self.factor(&mut join.relation)?;
            scope = self.join(scope, &mut join.join_operator, right)?;
        }
        Ok(scope)
    }

    fn factor(&mut self, factor: &mut TableFactor) -> Result<Scope, String> {
        if let TableFactor::NestedJoin {
            table_with_joins,
            alias: None,
        } = factor
        {
            return self.join_all(table_with_joins);
        }
        let name = self.qualifier(factor);
        self.tables.push(Table {
            name,
            columns: self.names.of_factor(factor),
        });
        Ok(Scope {
            tables: vec![self.tables.len() - 1],
            merged: BTreeMap::new(),
        })
    }

    /// How columns of `factor` are qualified; it is given a name if it has none.
    fn qualifier(&self, factor: &mut TableFactor) -> Vec<Ident> {
        let alias = match factor {
            TableFactor::Table {
                name,
                alias: None,
                args: None,
                ..
            } => {
                return name
                    .0
                    .iter()
                    .filter_map(|part| part.as_ident().cloned())
                    .collect();
            }
            TableFactor::Table { name, alias, .. } => {
                // Functions are called by their name.
                let own = name.0.last().and_then(|part| part.as_ident()).cloned();
                named(alias, own.unwrap_or_else(|| Ident::new("unnamed_function")))
            }
            TableFactor::Derived { alias, .. }
            | TableFactor::TableFunction { alias, .. }
            | TableFactor::Function { alias, .. }
            | TableFactor::UNNEST { alias, .. } => {
                let number = self.tables.len();
                named(alias, Ident::new(format!("unnamed_subquery_{number}")))
            }
            other => return name_of(other).cloned().into_iter().collect(),
        };
        vec![alias]
    }

    fn join(
        &self,
        left: Scope,
        operator: &mut JoinOperator,
        right: Scope,
    ) -> Result<Scope, String> {
        let kind = Kind::of(operator);
        let keys: Option<Vec<Ident>> = match constraint(operator) {
            Some(JoinConstraint::Using(names)) => Some(
                names
                    .iter()
                    .filter_map(|name| name.0.last()?.as_ident().cloned())
                    .collect(),
            ),
            Some(JoinConstraint::Natural) => Some(self.natural(&left, &right)?),
            _ => None,
        };
        let mut scope = Scope::default();
        let mut condition: Option<Expr> = None;
        let mut merged = Vec::new();
        for key in keys.iter().flatten() {
            let name = fold(key);
            let (l, r) = (
                self.find(&left, key, "left")?,
                self.find(&right, key, "right")?,
            );
            let equal = Expr::BinaryOp {
                left: Box::new(l.value.clone()),
                op: BinaryOperator::Eq,
                right: Box::new(r.value.clone()),
            };
            condition = Some(match condition {
                None => equal,
                Some(before) => Expr::BinaryOp {
                    left: Box::new(before),
                    op: BinaryOperator::And,
                    right: Box::new(equal),
                },
            });
            merged.push((name, kind.merge(l, r)));
        }
        match kind {
            Kind::OnlyLeft | Kind::OnlyRight => {
                let mut all = Scope::default();
                let (kept, other) = match kind {
                    Kind::OnlyLeft => (left, right),
                    _ => (right, left),
                };
                scope.tables.clone_from(&kept.tables);
                scope.merged.clone_from(&kept.merged);
                all.extend(kept);
                all.extend(other);
                self.replace_condition(&all, operator);
            }
            _ => {
                scope.extend(left);
                scope.extend(right);
                for (name, merged) in merged {
                    // It stands for those that its sides had merged.
                    let of_name = scope.merged.entry(name).or_default();
                    of_name.retain(|old| !old.tables.iter().all(|t| merged.tables.contains(t)));
                    of_name.push(merged);
                }
                self.replace_condition(&scope, operator);
            }
        }
        if keys.is_some()
            && let Some(constraint) = constraint_mut(operator)
        {
            *constraint = match condition {
                Some(condition) => JoinConstraint::On(condition),
                None => JoinConstraint::On(Expr::value(Value::Boolean(true))),
            };
        }
        Ok(scope)
    }

    /// Merged columns in the condition of a join with ON.
    fn replace_condition(&self, scope: &Scope, operator: &mut JoinOperator) {
        if let Some(JoinConstraint::On(condition)) = constraint_mut(operator) {
            self.replacer(scope).replace(condition);
        }
    }

    /// The columns that a natural join makes one.
    fn natural(&self, left: &Scope, right: &Scope) -> Result<Vec<Ident>, String> {
        let (Some(left), Some(right)) = (left.columns(self), right.columns(self)) else {
            return Err(
                "the columns of a table of the NATURAL JOIN are not known before it is planned: \
                 say USING (…), or name them behind its alias, as in t (a, b)"
                    .to_owned(),
            );
        };
        Ok(left
            .into_iter()
            .filter(|column| right.contains(column))
            .map(|column| unfolded(&column))
            .collect())
    }

    /// The column of USING on one side of a join.
    fn find(&self, scope: &Scope, key: &Ident, side: &str) -> Result<Merged, String> {
        let name = fold(key);
        let mut found: Vec<Merged> = scope.merged.get(&name).cloned().unwrap_or_default();
        let plain = |table: usize| Merged {
            value: self.tables[table].column(key),
            tables: vec![table],
        };
        found.extend(scope.apart(&name, self).into_iter().map(plain));
        if found.is_empty() {
            // The planner says whether it is there.
            let unknown = |t: &usize| self.tables[*t].columns.is_none();
            let mut candidates: Vec<usize> = scope.tables.iter().copied().filter(unknown).collect();
            if name == ROW_ID && scope.tables.len() == 1 {
                candidates.clone_from(&scope.tables);
            }
            found.extend(candidates.into_iter().map(plain));
        }
        let count = found.len();
        match (found.pop(), count) {
            (Some(only), 1) => Ok(only),
            (None, _) => Err(format!(
                "column {key} of USING is in no table of the {side} side of the join"
            )),
            (Some(_), _) => Err(format!(
                "column {key} of USING may be that of several tables of the {side} side of the \
                 join: say ON, with the table's name before it"
            )),
        }
    }

    /// The names of the block's result.
    fn shown(&self, select: &Select) -> BTreeSet<String> {
        let mut shown = BTreeSet::new();
        for item in &select.projection {
            match item {
                SelectItem::UnnamedExpr(Expr::Identifier(ident)) => {
                    shown.insert(fold(ident));
                }
                SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                    shown.extend(parts.last().map(fold));
                }
                SelectItem::ExprWithAlias { alias, .. } => {
                    shown.insert(fold(alias));
                }
                SelectItem::Wildcard(options) => {
                    for table in &self.tables {
                        let columns = table.columns.clone().unwrap_or_default();
                        shown.extend(without(columns, options).unwrap_or_default());
                    }
                }
                _ => {}
            }
        }
        shown
    }

    /// `*`, table by table.
    fn wildcard(
        &self,
        scope: &Scope,
        mut options: WildcardAdditionalOptions,
    ) -> Result<Vec<SelectItem>, String> {
        let mut hidden: Vec<Vec<Ident>> = vec![Vec::new(); self.tables.len()];
        let mut replaced: Vec<Vec<ReplaceSelectElement>> = vec![Vec::new(); self.tables.len()];
        let asked = excluded(&options);
        options.opt_exclude = None;
        options.opt_except = None;
        let replacements = options.opt_replace.take().map_or(Vec::new(), |r| r.items);

        for name in &asked {
            let tables = self.holders(scope, name, "EXCLUDE")?;
            for &table in &tables {
                hidden[table].push(Ident::new(fold(name)));
            }
        }
        for replacement in replacements {
            let name = fold(&replacement.column_name);
            let holders = self.holders(scope, &replacement.column_name, "REPLACE")?;
            let shows = match scope.merged.get(&name).map(Vec::as_slice) {
                Some([only]) => only.tables.first().copied(),
                _ => holders.first().copied(),
            };
            if let Some(table) = shows {
                replaced[table].push(*replacement);
            }
        }
        for (name, merged) in &scope.merged {
            if name == ROW_ID {
                continue; // which wildcards never show
            }
            for merged in merged {
                let column = Ident::new(name.clone());
                let Some((&first, others)) = merged.tables.split_first() else {
                    continue;
                };
                for &table in others {
                    if !hidden[table].contains(&column) {
                        hidden[table].push(column.clone());
                    }
                }
                let own = self.tables[first].column(&unfolded(name));
                let is_replaced = replaced[first]
                    .iter()
                    .any(|r| fold(&r.column_name) == *name);
                if !hidden[first].contains(&column)
                    && !is_replaced
                    && folded(&merged.value) != folded(&own)
                {
                    replaced[first].push(ReplaceSelectElement {
                        expr: merged.value.clone(),
                        column_name: column,
                        as_keyword: true,
                    });
                }
            }
        }

        let mut items = Vec::new();
        for &table in &scope.tables {
            let is_hidden = |column: &String| hidden[table].iter().any(|h| h.value == *column);
            let columns = self.tables[table].columns.as_ref();
            if columns.is_some_and(|columns| columns.iter().all(is_hidden)) {
                continue;
            }
            let name: Vec<Ident> = self.tables[table].name.clone();
            let mut options = exclude(options.clone(), std::mem::take(&mut hidden[table]));
            let replacements = std::mem::take(&mut replaced[table]);
            if !replacements.is_empty() {
                options.opt_replace = Some(ReplaceSelectItem {
                    items: replacements.into_iter().map(Box::new).collect(),
                });
            }
            items.push(SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(name)),
                options,
            ));
        }
        Ok(items)
    }

    /// The tables of a scope that have a column which a wildcard names.
    fn holders(&self, scope: &Scope, name: &Ident, clause: &str) -> Result<Vec<usize>, String> {
        let folded = fold(name);
        let mut holders = scope.apart(&folded, self);
        for merged in scope.merged.get(&folded).into_iter().flatten() {
            holders.extend(&merged.tables);
        }
        if holders.is_empty() {
            let unknown = |t: &usize| self.tables[*t].columns.is_none();
            holders.extend(scope.tables.iter().copied().filter(unknown));
        }
        match holders.len() {
            0 => Err(format!("there is no column {name} for * {clause}")),
            _ => Ok(holders),
        }
    }

    /// Puts values in place of the merged columns that a scope has.
    fn replacer(&self, scope: &Scope) -> Replacer<'_> {
        let merged = scope
            .merged
            .iter()
            .filter_map(|(name, merged)| match merged.as_slice() {
                [only] if scope.apart(name, self).is_empty() => {
                    Some((name.clone(), only.value.clone()))
                }
                _ => None,
            })
            .collect();
        Replacer {
            names: self.names,
            merged,
            inside: Vec::new(),
        }
    }
}

/// Gives a table a name that has none.
fn named(alias: &mut Option<TableAlias>, name: Ident) -> Ident {
    alias
        .get_or_insert_with(|| TableAlias {
            explicit: true,
            name,
            columns: Vec::new(),
            at: None,
        })
        .name
        .clone()
}

/// The identifier that [`fold`] makes `name` of.
fn unfolded(name: &str) -> Ident {
    let ident = Ident::new(name);
    if fold(&ident) == name {
        ident
    } else {
        Ident::with_quote('"', name)
    }
}

/// The parts of a qualified column as names compare.
fn folded(expr: &Expr) -> Option<Vec<String>> {
    match expr {
        Expr::CompoundIdentifier(parts) => Some(parts.iter().map(fold).collect()),
        _ => None,
    }
}

/// What rows a join has beside those with a match.
#[derive(Clone, Copy)]
enum Kind {
    Inner,
    Left,
    Right,
    Full,
    /// Semi and anti joins.
    OnlyLeft,
    OnlyRight,
}

impl Kind {
    fn of(operator: &JoinOperator) -> Self {
        match operator {
            JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => Self::Left,
            JoinOperator::Right(_) | JoinOperator::RightOuter(_) => Self::Right,
            JoinOperator::FullOuter(_) => Self::Full,
            JoinOperator::Semi(_)
            | JoinOperator::LeftSemi(_)
            | JoinOperator::Anti(_)
            | JoinOperator::LeftAnti(_) => Self::OnlyLeft,
            JoinOperator::RightSemi(_) | JoinOperator::RightAnti(_) => Self::OnlyRight,
            _ => Self::Inner,
        }
    }

    /// The column that two columns become.
    fn merge(self, left: Merged, right: Merged) -> Merged {
        let value = match self {
            Self::Inner if !matches!(left.value, Expr::CompoundIdentifier(_)) => right.value,
            Self::Inner | Self::Left | Self::OnlyLeft => left.value,
            Self::Right | Self::OnlyRight => right.value,
            Self::Full => coalesce(left.value, right.value),
        };
        let mut tables = left.tables;
        tables.extend(right.tables);
        Merged { value, tables }
    }
}

/// `coalesce(left, right)`.
fn coalesce(left: Expr, right: Expr) -> Expr {
    let argument = |expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new("coalesce")]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![argument(left), argument(right)],
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

fn constraint(operator: &JoinOperator) -> Option<&JoinConstraint> {
    match operator {
        JoinOperator::Join(c)
        | JoinOperator::Inner(c)
        | JoinOperator::Left(c)
        | JoinOperator::LeftOuter(c)
        | JoinOperator::Right(c)
        | JoinOperator::RightOuter(c)
        | JoinOperator::FullOuter(c)
        | JoinOperator::Semi(c)
        | JoinOperator::LeftSemi(c)
        | JoinOperator::RightSemi(c)
        | JoinOperator::Anti(c)
        | JoinOperator::LeftAnti(c)
        | JoinOperator::RightAnti(c) => Some(c),
        _ => None,
    }
}

fn constraint_mut(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    match operator {
        JoinOperator::Join(c)
        | JoinOperator::Inner(c)
        | JoinOperator::Left(c)
        | JoinOperator::LeftOuter(c)
        | JoinOperator::Right(c)
        | JoinOperator::RightOuter(c)
        | JoinOperator::FullOuter(c)
        | JoinOperator::Semi(c)
        | JoinOperator::LeftSemi(c)
        | JoinOperator::RightSemi(c)
        | JoinOperator::Anti(c)
        | JoinOperator::LeftAnti(c)
        | JoinOperator::RightAnti(c) => Some(c),
        _ => None,
    }
}

/// Puts values in place of merged columns, in subqueries too where no table of theirs has the name.
struct Replacer<'a> {
    names: &'a Names<'a>,
    merged: BTreeMap<String, Expr>,
    /// The columns of the queries around the current place, outermost first; `None` if not known.
    inside: Vec<Option<BTreeSet<String>>>,
}

impl Replacer<'_> {
    fn replace<N: VisitMut>(&mut self, node: &mut N) {
        let _: ControlFlow<()> = node.visit(self);
    }

    /// The columns that a subquery's own tables have.
    fn own(&self, query: &Query) -> Option<BTreeSet<String>> {
        if query.with.is_some() {
            return None;
        }
        let SetExpr::Select(select) = &*query.body else {
            return None;
        };
        let mut own = BTreeSet::new();
        for factor in factors(&select.from) {
            own.extend(self.names.of_factor(factor)?);
        }
        Some(own)
    }
}

impl VisitorMut for Replacer<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let own = self.own(query);
        self.inside.push(own);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.inside.pop();
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(ident) = expr {
            let name = fold(ident);
            let is_outer = |own: &Option<BTreeSet<String>>| {
                own.as_ref().is_some_and(|own| !own.contains(&name))
            };
            if let Some(value) = self.merged.get(&name)
                && self.inside.iter().all(is_outer)
            {
                *expr = value.clone();
            }
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Statement, parse};

    /// Tables a (k, x), b (k, y), c (k, j, z) and d (j, y); others are not known.
    fn columns(name: &ObjectName) -> Option<Vec<String>> {
        let columns: &[&str] = match name.to_string().as_str() {
            "a" | "main.a" => &["k", "x"],
            "b" => &["k", "y"],
            "c" => &["k", "j", "z"],
            "d" => &["j", "y"],
            _ => return None,
        };
        Some(columns.iter().map(|&column| column.to_owned()).collect())
    }

    fn merged(sql: &str) -> Result<String, String> {
        let Ok(Statement::Query(mut query)) = parse(sql) else {
            panic!("{sql}")
        };
        merge_columns(&mut query, &columns)?;
        Ok(query.to_string())
    }

    fn becomes(sql: &str, expected: &str) {
        assert_eq!(merged(sql).as_deref(), Ok(expected), "{sql}");
        // Nothing is left to do.
        assert_eq!(merged(expected).as_deref(), Ok(expected), "{sql}");
    }

    #[test]
    fn other_blocks_stay_as_they_are() {
        for sql in [
            "SELECT *, k FROM a, b WHERE k = 1",
            "SELECT k FROM a JOIN b ON a.k = b.k ORDER BY k",
            "SELECT (SELECT max(k) FROM b) FROM a UNION SELECT k FROM c",
        ] {
            becomes(sql, sql);
        }
        let parsed = parse("SELECT * FROM a JOIN b ON a.k = b.k").unwrap();
        let Statement::Query(query) = parsed else {
            panic!()
        };
        assert_eq!(tables_of_using(&query), []);
    }

    #[test]
    fn the_column_is_that_of_the_table_that_has_the_row() {
        for (join, k, all) in [
            ("JOIN", "a.k", "a.*, b.* EXCLUDE (k)"),
            ("LEFT JOIN", "a.k", "a.*, b.* EXCLUDE (k)"),
            (
                "RIGHT JOIN",
                "b.k",
                "a.* REPLACE (b.k AS k), b.* EXCLUDE (k)",
            ),
            (
                "FULL JOIN",
                "coalesce(a.k, b.k) AS K",
                "a.* REPLACE (coalesce(a.k, b.k) AS k), b.* EXCLUDE (k)",
            ),
        ] {
            let value = k.trim_end_matches(" AS K");
            becomes(
                &format!("SELECT K, k + x, a.k, * FROM a {join} b USING (k) WHERE k > 1"),
                &format!(
                    "SELECT {k}, {value} + x, a.k, {all} FROM a {join} b ON a.k = b.k WHERE {value} > 1"
                ),
            );
        }
        becomes(
            "SELECT * FROM a LEFT SEMI JOIN b USING (k) WHERE k = 1",
            "SELECT a.* FROM a LEFT SEMI JOIN b ON a.k = b.k WHERE k = 1",
        );
    }

    #[test]
    fn joins_go_on_with_what_was_merged() {
        becomes(
            "SELECT * FROM a FULL JOIN b USING (k) LEFT JOIN c USING (k) JOIN d ON k = d.j",
            "SELECT a.* REPLACE (coalesce(a.k, b.k) AS k), b.* EXCLUDE (k), c.* EXCLUDE (k), d.* \
             FROM a FULL JOIN b ON a.k = b.k LEFT JOIN c ON coalesce(a.k, b.k) = c.k \
             JOIN d ON coalesce(a.k, b.k) = d.j",
        );
        becomes(
            "SELECT k, j FROM a JOIN (b NATURAL JOIN c) USING (k) LEFT JOIN d USING (j)",
            "SELECT a.k, c.j FROM a JOIN (b JOIN c ON b.k = c.k) ON a.k = b.k LEFT JOIN d ON c.j = d.j",
        );
        becomes(
            "SELECT k FROM a AS l NATURAL JOIN a AS r",
            "SELECT l.k FROM a AS l JOIN a AS r ON l.k = r.k AND l.x = r.x",
        );
        becomes(
            "SELECT *, _row_id FROM a RIGHT JOIN b USING (_row_id)",
            "SELECT a.*, b.*, b._row_id FROM a RIGHT JOIN b ON a._row_id = b._row_id",
        );
        becomes(
            "SELECT * FROM a NATURAL LEFT JOIN d",
            "SELECT a.*, d.* FROM a LEFT JOIN d ON true",
        );
    }

    #[test]
    fn every_clause_sees_it_and_order_by_the_result_first() {
        becomes(
            "SELECT DISTINCT ON (k) k AS n, sum(y) OVER (PARTITION BY k) FROM a JOIN b USING (k) \
             GROUP BY k, y HAVING k > 1 ORDER BY k, n",
            "SELECT DISTINCT ON (a.k) a.k AS n, sum(y) OVER (PARTITION BY a.k) FROM a JOIN b ON a.k = b.k \
             GROUP BY a.k, y HAVING a.k > 1 ORDER BY a.k, n",
        );
        becomes(
            "SELECT k, x FROM a JOIN b USING (k) ORDER BY k",
            "SELECT a.k, x FROM a JOIN b ON a.k = b.k ORDER BY k",
        );
        becomes(
            "(SELECT k FROM a JOIN b USING (k)) UNION SELECT k FROM a RIGHT JOIN b USING (k) ORDER BY k",
            "(SELECT a.k FROM a JOIN b ON a.k = b.k) UNION SELECT b.k FROM a RIGHT JOIN b ON a.k = b.k ORDER BY k",
        );
    }

    #[test]
    fn a_name_is_that_of_the_nearest_table() {
        becomes(
            "SELECT x FROM a JOIN b USING (k) WHERE EXISTS (SELECT 1 FROM d WHERE d.j = k) \
             AND x IN (SELECT k FROM c) AND x IN (SELECT k FROM unknown)",
            "SELECT x FROM a JOIN b ON a.k = b.k WHERE EXISTS (SELECT 1 FROM d WHERE d.j = a.k) \
             AND x IN (SELECT k FROM c) AND x IN (SELECT k FROM unknown)",
        );
        // Which k it is, the planner asks.
        becomes(
            "SELECT k FROM a JOIN b USING (k), c",
            "SELECT k FROM a JOIN b ON a.k = b.k, c",
        );
    }

    #[test]
    fn what_is_not_a_table_may_be_joined() {
        becomes(
            "WITH c AS (SELECT * FROM a JOIN b USING (k)) SELECT * FROM c NATURAL JOIN (SELECT 1 AS x) AS o",
            "WITH c AS (SELECT a.*, b.* EXCLUDE (k) FROM a JOIN b ON a.k = b.k) \
             SELECT c.* FROM c JOIN (SELECT 1 AS x) AS o ON c.x = o.x",
        );
        becomes(
            "SELECT k FROM a JOIN (SELECT 1 AS k) USING (k)",
            "SELECT a.k FROM a JOIN (SELECT 1 AS k) AS unnamed_subquery_1 ON a.k = unnamed_subquery_1.k",
        );
        becomes(
            "SELECT * FROM main.a JOIN f(1) USING (k) JOIN g(1) AS h (k, y) USING (k)",
            "SELECT main.a.*, f.* EXCLUDE (k), h.* EXCLUDE (k) \
             FROM main.a JOIN f(1) AS f ON main.a.k = f.k JOIN g(1) AS h (k, y) ON main.a.k = h.k",
        );
        becomes(
            "WITH RECURSIVE r (k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM r JOIN a USING (k)) \
             SELECT * FROM r NATURAL JOIN a",
            "WITH RECURSIVE r (k) AS (SELECT 1 UNION ALL SELECT r.k + 1 FROM r JOIN a ON r.k = a.k) \
             SELECT r.*, a.* EXCLUDE (k) FROM r JOIN a ON r.k = a.k",
        );
    }

    #[test]
    fn wildcards_keep_their_options() {
        becomes(
            "SELECT * EXCLUDE (k, y) FROM a FULL JOIN b USING (k)",
            "SELECT a.* EXCLUDE (k) FROM a FULL JOIN b ON a.k = b.k",
        );
        becomes(
            "SELECT * REPLACE (k + 1 AS k, 0 AS y) FROM a JOIN b USING (k)",
            "SELECT a.* REPLACE (a.k + 1 AS k), b.* EXCLUDE (k) REPLACE (0 AS y) FROM a JOIN b ON a.k = b.k",
        );
    }

    #[test]
    fn what_cannot_be_told_is_an_error() {
        for (sql, part) in [
            (
                "SELECT 1 FROM a JOIN b USING (x)",
                "column x of USING is in no table of the right side",
            ),
            (
                "SELECT 1 FROM a JOIN b ON true JOIN c USING (k)",
                "column k of USING may be that of several tables of the left side",
            ),
            (
                "SELECT 1 FROM a NATURAL JOIN f(1)",
                "say USING (…), or name them behind its alias",
            ),
            (
                "SELECT * EXCLUDE (n) FROM a JOIN b USING (k)",
                "there is no column n for * EXCLUDE",
            ),
        ] {
            let error = merged(sql).unwrap_err();
            assert!(error.contains(part), "{sql}: {error}");
        }
    }
}
