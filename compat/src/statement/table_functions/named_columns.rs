//! The columns that a statement names: by them the column of a series is called.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, RenameSelectItem, Select, SelectItem, TableFactor, VisitorMut,
};

use super::{VALUE, is_function};
use crate::statement::names::{excluded, fold};

/// The columns that a statement names, each with the table, if it names that.
#[derive(Default)]
pub(super) struct Named {
    columns: HashSet<(Option<String>, String)>,
    /// Whether it reads something else than functions, which may have such columns.
    reads_tables: bool,
}

impl Named {
    fn add(&mut self, table: Option<&Ident>, column: &Ident) {
        self.columns.insert((table.map(fold), fold(column)));
    }

    fn has(&self, table: Option<&str>, column: &str) -> bool {
        let column = (table.map(str::to_owned), column.to_owned());
        self.columns.contains(&column)
    }

    /// What the column of a series is called in a statement that calls the series `table`, or gives it no
    /// alias.
    pub(super) fn column_of(&self, table: &Ident, has_alias: bool) -> Ident {
        let name = fold(table);
        let names_table = self.has(Some(&name), &name) || self.has(None, &name);
        let is_value = match has_alias {
            true => {
                let only_functions = !self.reads_tables && !names_table;
                self.has(Some(&name), VALUE) || only_functions && self.has(None, VALUE)
            }
            false => !names_table,
        };
        match is_value {
            true => Ident::new(VALUE),
            false => table.clone(),
        }
    }
}

impl VisitorMut for Named {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(column) => self.add(None, column),
            Expr::CompoundIdentifier(parts) => {
                if let [.., table, column] = parts.as_slice() {
                    self.add(Some(table), column);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &select.projection {
            if let SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) = item
            {
                for column in excluded(options) {
                    self.add(None, &column);
                }
                match &options.opt_rename {
                    Some(RenameSelectItem::Single(renamed)) => self.add(None, &renamed.ident),
                    Some(RenameSelectItem::Multiple(all)) => {
                        all.iter()
                            .for_each(|renamed| self.add(None, &renamed.ident));
                    }
                    None => {}
                }
                for replaced in options
                    .opt_replace
                    .iter()
                    .flat_map(|replace| &replace.items)
                {
                    self.add(None, &replaced.column_name);
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        self.reads_tables |=
            !is_function(table) && !matches!(table, TableFactor::NestedJoin { .. });
        ControlFlow::Continue(())
    }
}
