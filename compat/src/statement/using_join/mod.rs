//! Joins with USING, and natural ones, said with ON.
//!
//! The planner takes a column of USING for that of one of the two tables, which it may not be: the
//! row of an outer join may have no such row. So a SELECT block over
//! `a FULL JOIN b USING (k)` reads `a FULL JOIN b ON a.k = b.k`, its `k` is `coalesce(a.k, b.k)`,
//! and its `*` is `a.* REPLACE (coalesce(a.k, b.k) AS k), b.* EXCLUDE (k)`. The value of the
//! merged column is that of ISO/IEC 9075-2 (joined table): of an inner or left join the left
//! table's, of a right join the right table's.

mod block;
mod join;
mod names;
mod replacer;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, JoinConstraint, JoinOperator, ObjectName, OrderBy, OrderByKind, Query, Select,
    SelectItem, SetExpr, TableFactor, TableWithJoins, Visit, VisitMut, Visitor, VisitorMut,
};

use self::block::{Block, Scope};
pub(crate) use self::join::constraint;
pub(crate) use self::names::{Names, factors, name_of, renamed, without};
use crate::statement::names::fold;

/// The constraint of a join that can have one, to be changed.
pub(crate) fn constraint_mut(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    join::parts(operator).1
}

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
pub fn coalesce_join_keys<N: VisitMut>(
    node: &mut N,
    columns: &dyn Fn(&ObjectName) -> Option<Vec<String>>,
) -> Result<(), String> {
    let mut merger = Merger {
        names: Names::new(columns),
    };
    match node.visit(&mut merger) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

fn merges(table: &TableWithJoins) -> bool {
    fn nested(factor: &TableFactor) -> bool {
        match factor {
            TableFactor::NestedJoin {
                table_with_joins,
                alias: None,
            } => merges(table_with_joins),
            _ => false,
        }
    }
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
        let mut block = Block::new(&self.names);
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
