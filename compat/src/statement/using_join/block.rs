//! One SELECT block: what its joins merge, and what its `*` shows.

use std::collections::{BTreeMap, BTreeSet};

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, JoinConstraint, JoinOperator, ObjectName, ReplaceSelectElement,
    ReplaceSelectItem, Select, SelectItem, SelectItemQualifiedWildcardKind, TableAlias,
    TableFactor, TableWithJoins, Value, WildcardAdditionalOptions,
};

use super::join::{Kind, constraint, parts};
use super::names::{Names, name_of, without};
use super::replacer::Replacer;
use crate::statement::names::{SYSTEM_COLUMN, exclude, excluded, fold};
use crate::suggest::{did_you_mean, suggest};

/// One table of a block's FROM.
pub(super) struct Table {
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
pub(super) struct Merged {
    pub(super) value: Expr,
    /// The tables that have it, the one that shows it first.
    pub(super) tables: Vec<usize>,
}

/// What can be named behind a join.
#[derive(Default)]
pub(super) struct Scope {
    /// Places in [`Block::tables`], in the order of FROM.
    tables: Vec<usize>,
    merged: BTreeMap<String, Vec<Merged>>,
}

impl Scope {
    pub(super) fn extend(&mut self, other: Scope) {
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
pub(super) struct Block<'a> {
    names: &'a Names<'a>,
    tables: Vec<Table>,
}

impl<'a> Block<'a> {
    pub(super) fn new(names: &'a Names<'a>) -> Self {
        Self {
            names,
            tables: Vec::new(),
        }
    }

    pub(super) fn join_all(&mut self, table: &mut TableWithJoins) -> Result<Scope, String> {
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
                with_name(alias, own.unwrap_or_else(|| Ident::new("unnamed_function")))
            }
            TableFactor::Derived { alias, .. }
            | TableFactor::TableFunction { alias, .. }
            | TableFactor::Function { alias, .. }
            | TableFactor::UNNEST { alias, .. } => {
                let number = self.tables.len();
                with_name(alias, Ident::new(format!("unnamed_subquery_{number}")))
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
        let (kind, _) = parts(operator);
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
            && let (_, Some(constraint)) = parts(operator)
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
        if let (_, Some(JoinConstraint::On(condition))) = parts(operator) {
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
            if name == SYSTEM_COLUMN && scope.tables.len() == 1 {
                candidates.clone_from(&scope.tables);
            }
            found.extend(candidates.into_iter().map(plain));
        }
        let count = found.len();
        match (found.pop(), count) {
            (Some(only), 1) => Ok(only),
            (None, _) => Err(format!(
                "column {key} of USING is in no table of the {side} side of the join{}",
                self.near(scope, &name)
            )),
            (Some(_), _) => Err(format!(
                "column {key} of USING may be that of several tables of the {side} side of the \
                 join: say ON, with the table's name before it"
            )),
        }
    }

    /// The names of the block's result.
    pub(super) fn shown(&self, select: &Select) -> BTreeSet<String> {
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
    pub(super) fn wildcard(
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
            if name == SYSTEM_COLUMN {
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
            0 => Err(format!(
                "there is no column {name} for * {clause}{}",
                self.near(scope, &folded)
            )),
            _ => Ok(holders),
        }
    }

    /// The columns of a scope that a name was probably meant to be, as the end of an error.
    fn near(&self, scope: &Scope, name: &str) -> String {
        let known = scope.columns(self).unwrap_or_default();
        did_you_mean(&suggest(name, known.iter().map(String::as_str)))
    }

    /// Puts values in place of the merged columns that a scope has.
    pub(super) fn replacer(&self, scope: &Scope) -> Replacer<'_> {
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
        Replacer::new(self.names, merged)
    }
}

/// Gives a table a name that has none.
fn with_name(alias: &mut Option<TableAlias>, name: Ident) -> Ident {
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
