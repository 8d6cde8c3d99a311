//! Values in place of the names of merged columns.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Query, SetExpr, VisitMut, VisitorMut};

use super::names::{Names, factors};
use crate::statement::names::fold;

/// Puts values in place of merged columns, in subqueries too where no table of theirs has the name.
pub(super) struct Replacer<'a> {
    names: &'a Names<'a>,
    pub(super) merged: BTreeMap<String, Expr>,
    /// The columns of the queries around the current place, outermost first; `None` if not known.
    inside: Vec<Option<BTreeSet<String>>>,
}

impl<'a> Replacer<'a> {
    pub(super) fn new(names: &'a Names<'a>, merged: BTreeMap<String, Expr>) -> Self {
        Self {
            names,
            merged,
            inside: Vec::new(),
        }
    }

    pub(super) fn replace<N: VisitMut>(&mut self, node: &mut N) {
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
