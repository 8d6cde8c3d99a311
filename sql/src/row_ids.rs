//! `_row_id` made visible in the blocks that name it.
//!
//! Tables hide their row ids. A SELECT block that names `_row_id` reads `"t$rowid" AS t` in place
//! of its table `t`, the same table with the id as its last column, and its wildcards leave that
//! column out: `SELECT _row_id, * FROM t` becomes
//! `SELECT _row_id, t.* EXCLUDE (_row_id) FROM "t$rowid" AS t`.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, OrderBy, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor, TableWithJoins, VisitMut,
    Visitor, VisitorMut,
};

use skewer_compat::statement::names::{SYSTEM_COLUMN, exclude, fold};

/// The hidden column.
pub const ROW_ID: &str = SYSTEM_COLUMN;

/// What is appended to a table's name to read it with its row ids.
pub const WITH_ROW_IDS: &str = "$rowid";

/// Rewrites the blocks of `node` that name `_row_id`; says whether there were any. None may join with
/// USING any more ([`coalesce_join_keys`](skewer_compat::statement::using_join::coalesce_join_keys)).
///
/// `has_row_ids` says whether a name in FROM is a table whose rows have ids.
pub fn expose_row_ids<N: VisitMut>(
    node: &mut N,
    has_row_ids: &dyn Fn(&ObjectName) -> bool,
) -> bool {
    let mut exposer = Exposer {
        has_row_ids,
        ctes: Vec::new(),
        blocks: Vec::new(),
        ordered: HashMap::new(),
        rewrote: false,
    };
    let _: ControlFlow<()> = node.visit(&mut exposer);
    exposer.rewrote
}

/// `t` → `t$rowid`, keeping its schema.
pub fn with_row_ids(name: &ObjectName) -> ObjectName {
    let mut name = name.clone();
    if let Some(ObjectNamePart::Identifier(last)) = name.0.last_mut() {
        let folded = match last.quote_style {
            Some(_) => last.value.clone(),
            None => last.value.to_lowercase(),
        };
        *last = Ident::with_quote('"', format!("{folded}{WITH_ROW_IDS}"));
    }
    name
}

/// One table of a block's FROM.
struct Source {
    /// How the block calls it.
    alias: Ident,
    /// Whether its ids can be made visible.
    has_ids: bool,
    /// Whether they must be.
    wanted: bool,
}

/// A SELECT block and the tables of its FROM, in order.
struct Block {
    sources: Vec<Source>,
}

struct Exposer<'a> {
    has_row_ids: &'a dyn Fn(&ObjectName) -> bool,
    /// Names of the CTEs in scope.
    ctes: Vec<String>,
    /// The blocks around the current place, innermost last.
    blocks: Vec<Block>,
    /// References in the ORDER BY of a block's query, which is visited after the block.
    ordered: HashMap<*const Select, Vec<Option<Ident>>>,
    rewrote: bool,
}

impl VisitorMut for Exposer<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        for cte in query.with.iter().flat_map(|w| &w.cte_tables) {
            self.ctes.push(fold(&cte.alias.name));
        }
        if let (SetExpr::Select(select), Some(order_by)) = (&*query.body, &query.order_by) {
            let references = references_in(order_by);
            if !references.is_empty() {
                self.ordered.insert(&raw const **select, references);
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let ctes = query.with.as_ref().map_or(0, |w| w.cte_tables.len());
        self.ctes.truncate(self.ctes.len() - ctes);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let mut sources = Vec::new();
        for table in &select.from {
            self.collect(table, &mut sources);
        }
        self.blocks.push(Block { sources });
        let references = self
            .ordered
            .remove(&std::ptr::from_ref::<Select>(select))
            .unwrap_or_default();
        for reference in references {
            self.want(reference.as_ref());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some(reference) = reference(expr) {
            self.want(reference.as_ref());
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let Some(block) = self.blocks.pop() else {
            return ControlFlow::Continue(());
        };
        if !block.sources.iter().any(|s| s.wanted) {
            return ControlFlow::Continue(());
        }
        self.rewrote = true;
        let mut wanted = block.sources.iter();
        for table in &mut select.from {
            rename(table, &mut wanted);
        }
        let projection = std::mem::take(&mut select.projection);
        for item in projection {
            match item {
                SelectItem::Wildcard(options) => {
                    for source in &block.sources {
                        let mut hidden = Vec::new();
                        if source.wanted {
                            hidden.push(Ident::new(ROW_ID));
                        }
                        select.projection.push(SelectItem::QualifiedWildcard(
                            SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(vec![
                                source.alias.clone(),
                            ])),
                            exclude(options.clone(), hidden),
                        ));
                    }
                }
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(name),
                    options,
                ) => {
                    let is_wanted = name
                        .0
                        .last()
                        .and_then(|p| p.as_ident())
                        .is_some_and(|last| {
                            block
                                .sources
                                .iter()
                                .any(|s| s.wanted && fold(&s.alias) == fold(last))
                        });
                    let hidden = if is_wanted {
                        vec![Ident::new(ROW_ID)]
                    } else {
                        Vec::new()
                    };
                    select.projection.push(SelectItem::QualifiedWildcard(
                        SelectItemQualifiedWildcardKind::ObjectName(name),
                        exclude(options, hidden),
                    ));
                }
                other => select.projection.push(other),
            }
        }
        ControlFlow::Continue(())
    }
}

impl Exposer<'_> {
    /// Lists the tables of one item of FROM in the order in which a wildcard shows them.
    fn collect(&self, table: &TableWithJoins, sources: &mut Vec<Source>) {
        self.collect_factor(&table.relation, sources);
        for join in &table.joins {
            self.collect_factor(&join.relation, sources);
        }
    }

    fn collect_factor(&self, factor: &TableFactor, sources: &mut Vec<Source>) {
        match factor {
            TableFactor::Table {
                name, alias, args, ..
            } => {
                let Some(last) = name.0.last().and_then(|p| p.as_ident()) else {
                    return;
                };
                let is_cte = name.0.len() == 1 && self.ctes.contains(&fold(last));
                sources.push(Source {
                    alias: alias
                        .as_ref()
                        .map_or_else(|| last.clone(), |a| a.name.clone()),
                    has_ids: args.is_none() && !is_cte && (self.has_row_ids)(name),
                    wanted: false,
                });
            }
            TableFactor::NestedJoin {
                table_with_joins, ..
            } => self.collect(table_with_joins, sources),
            TableFactor::Derived { alias, .. }
            | TableFactor::TableFunction { alias, .. }
            | TableFactor::Function { alias, .. }
            | TableFactor::UNNEST { alias, .. } => {
                if let Some(alias) = alias {
                    sources.push(Source {
                        alias: alias.name.clone(),
                        has_ids: false,
                        wanted: false,
                    });
                }
            }
            _ => {}
        }
    }

    /// Marks what `t._row_id`, or `_row_id` without a table, means: the innermost that fits.
    fn want(&mut self, table: Option<&Ident>) {
        for block in self.blocks.iter_mut().rev() {
            let mut found = false;
            for source in &mut block.sources {
                let is_meant = table.is_none_or(|t| fold(t) == fold(&source.alias));
                if is_meant && table.is_some() {
                    found = true;
                }
                if is_meant && source.has_ids {
                    source.wanted = true;
                    found = true;
                }
            }
            if found {
                return;
            }
        }
    }
}

/// `Some(None)` for `_row_id`, `Some(Some(t))` for `t._row_id`.
fn reference(expr: &Expr) -> Option<Option<Ident>> {
    match expr {
        Expr::Identifier(ident) if fold(ident) == ROW_ID => Some(None),
        Expr::CompoundIdentifier(parts) => match parts.as_slice() {
            [.., table, column] if fold(column) == ROW_ID => Some(Some(table.clone())),
            _ => None,
        },
        _ => None,
    }
}

/// The references of an ORDER BY.
fn references_in(order_by: &OrderBy) -> Vec<Option<Ident>> {
    struct Finder(Vec<Option<Ident>>);
    impl Visitor for Finder {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            self.0.extend(reference(expr));
            ControlFlow::Continue(())
        }
    }
    use datafusion::sql::sqlparser::ast::Visit;
    let mut finder = Finder(Vec::new());
    if let OrderByKind::Expressions(expressions) = &order_by.kind {
        let _: ControlFlow<()> = expressions.visit(&mut finder);
    }
    finder.0
}

/// Renames the wanted tables, in the order in which [`Exposer::collect`] lists them.
fn rename<'s>(table: &mut TableWithJoins, sources: &mut impl Iterator<Item = &'s Source>) {
    rename_factor(&mut table.relation, sources);
    for join in &mut table.joins {
        rename_factor(&mut join.relation, sources);
    }
}

fn rename_factor<'s>(factor: &mut TableFactor, sources: &mut impl Iterator<Item = &'s Source>) {
    match factor {
        TableFactor::Table { name, alias, .. } => {
            if name.0.last().and_then(|p| p.as_ident()).is_none() {
                return;
            }
            let Some(source) = sources.next() else {
                return;
            };
            if source.wanted {
                *name = with_row_ids(name);
                alias.get_or_insert_with(|| TableAlias {
                    explicit: true,
                    name: source.alias.clone(),
                    columns: Vec::new(),
                    at: None,
                });
            }
        }
        TableFactor::NestedJoin {
            table_with_joins, ..
        } => rename(table_with_joins, sources),
        TableFactor::Derived { alias: Some(_), .. }
        | TableFactor::TableFunction { alias: Some(_), .. }
        | TableFactor::Function { alias: Some(_), .. }
        | TableFactor::UNNEST { alias: Some(_), .. } => {
            sources.next();
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Statement, parse};

    fn exposed(sql: &str) -> String {
        let Ok(Statement::Query(mut query)) = parse(sql) else {
            panic!("{sql}")
        };
        expose_row_ids(&mut query, &|name| {
            matches!(
                name.to_string().to_lowercase().as_str(),
                "t" | "u" | "main.t"
            )
        });
        query.to_string()
    }

    #[test]
    fn only_blocks_that_name_it_are_rewritten() {
        for sql in [
            "SELECT * FROM t",
            "SELECT a FROM t WHERE b = '_row_id'",
            "WITH t AS (SELECT 1 AS _row_id) SELECT _row_id FROM t",
            "SELECT _row_id FROM v",
        ] {
            assert_eq!(exposed(sql), sql);
        }
        assert_eq!(
            exposed("SELECT * FROM (SELECT _row_id, a FROM t) AS s WHERE _row_id = 1"),
            "SELECT * FROM (SELECT _row_id, a FROM \"t$rowid\" AS t) AS s WHERE _row_id = 1"
        );
    }

    #[test]
    fn wildcards_leave_it_out() {
        assert_eq!(
            exposed("SELECT _row_id, * FROM t WHERE _row_id = 5"),
            "SELECT _row_id, t.* EXCLUDE (_row_id) FROM \"t$rowid\" AS t WHERE _row_id = 5"
        );
        assert_eq!(
            exposed("SELECT t.*, x.* EXCLUDE (k) FROM t, u AS x WHERE x._row_id = 5"),
            "SELECT t.*, x.* EXCLUDE (k, _row_id) FROM t, \"u$rowid\" AS x WHERE x._row_id = 5"
        );
        assert_eq!(
            exposed("SELECT x.* FROM main.T AS x ORDER BY _row_id"),
            "SELECT x.* EXCLUDE (_row_id) FROM main.\"t$rowid\" AS x ORDER BY _row_id"
        );
    }

    #[test]
    fn a_correlated_reference_means_the_outer_table() {
        assert_eq!(
            exposed("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t._row_id)"),
            "SELECT a FROM \"t$rowid\" AS t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t._row_id)"
        );
    }
}
