//! Tables without the rows of their quarantines, for sessions that ask for it; and the views that
//! show these rows.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::tokenizer::Location;
use skewer_diagnosis::TableQuarantine;
use skewer_sql::Statement;
use skewer_storage::{QuarantineMeta, TableId, TableMeta};

use super::names::{MAIN, Name};
use super::row_predicate::{Keep, RowPredicate, filtered};
use super::statement::StatementCatalog;
use crate::error::Error;

/// What messages about a quarantine's predicate call it.
pub(crate) const TAKER: &str = "a quarantine";

/// Which rows a statement sees of tables that have quarantines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RowsSeen {
    /// All rows.
    #[default]
    All,
    /// Rows in no quarantine.
    NotQuarantined,
}

/// A quarantine as the log names it.
pub(crate) fn logged(table: &TableMeta, quarantine: &QuarantineMeta) -> TableQuarantine {
    TableQuarantine {
        table: table.qualified_name(),
        name: quarantine.name.clone(),
        predicate: quarantine.predicate.clone(),
    }
}

/// The table of a quarantine as messages call it.
fn shown_table(quarantine: &TableQuarantine) -> &str {
    let table = &quarantine.table;
    table.strip_prefix("main.").unwrap_or(table)
}

/// What the session says of a quarantine that leaves rows out.
pub(crate) fn notice(quarantine: &TableQuarantine) -> String {
    format!(
        "quarantine {} of table {} leaves rows out of this query",
        quarantine.name,
        shown_table(quarantine)
    )
}

/// What EXPLAIN says of it.
pub(crate) fn explanation(quarantine: &TableQuarantine) -> String {
    format!(
        "{} leaves out the rows of {} for which this is true: {}",
        quarantine.name,
        shown_table(quarantine),
        quarantine.predicate
    )
}

impl StatementCatalog {
    /// The statement changes rows of this table: it sees all of them.
    pub(crate) fn show_all_rows_of(&self, table: TableId) {
        *self.target.lock() = Some(table);
    }

    /// The quarantines of a table that the statement leaves rows out by.
    fn applied<'a>(&self, table: &'a TableMeta) -> Vec<&'a Arc<QuarantineMeta>> {
        let applies = self.rows_seen == RowsSeen::NotQuarantined;
        let is_target = *self.target.lock() == Some(table.id);
        match applies && !is_target {
            true => table.quarantines.values().collect(),
            false => Vec::new(),
        }
    }

    /// `provider`, the table that the statement calls `name`, as the statement sees it.
    pub(super) fn seen(
        &self,
        table: &TableMeta,
        name: &Name,
        provider: Arc<dyn TableProvider>,
    ) -> Result<Arc<dyn TableProvider>, Error> {
        let applied = self.applied(table);
        if applied.is_empty() {
            return Ok(provider);
        }
        let plan = self.filtered(name, provider, &applied, Keep::Others);
        let plan = plan.map_err(|error| in_quarantines(&applied, table, &error))?;
        let applied = applied.into_iter().map(|q| logged(table, q));
        self.apply(applied);
        Ok(Arc::new(ViewTable::new(plan, None)))
    }

    /// The rows of a quarantine, for the view that shows them. `provider` is its table.
    pub(super) fn quarantined(
        &self,
        table: &TableMeta,
        quarantine: &Arc<QuarantineMeta>,
        provider: Arc<dyn TableProvider>,
    ) -> Result<Arc<dyn TableProvider>, Error> {
        let name = Name {
            schema: table.schema_name.clone(),
            table: table.name.clone(),
        };
        let plan = self.filtered(&name, provider, &[quarantine], Keep::Matching);
        let plan = plan.map_err(|error| in_quarantines(&[quarantine], table, &error))?;
        Ok(Arc::new(ViewTable::new(plan, Some(quarantine.sql(table)))))
    }

    /// The rows of a table that are in all of these quarantines, or in none.
    fn filtered(
        &self,
        name: &Name,
        provider: Arc<dyn TableProvider>,
        quarantines: &[&Arc<QuarantineMeta>],
        keep: Keep,
    ) -> Result<LogicalPlan, Error> {
        let table = match name.schema.as_str() {
            MAIN => TableReference::bare(name.table.as_str()),
            schema => TableReference::partial(schema, name.table.as_str()),
        };
        let scan = LogicalPlanBuilder::scan(table, provider_as_source(provider), None)?.build()?;
        let LogicalPlan::TableScan(scan) = scan else {
            return Err(Error::Internal(format!("{name} is no table")));
        };
        let predicates = quarantines.iter().map(|q| parsed(&q.predicate));
        let predicates = predicates.collect::<Result<Vec<_>, Error>>()?;
        let predicates: Vec<_> = predicates
            .iter()
            .map(|expr| RowPredicate {
                taker: TAKER,
                expr,
                source: "",
                at: Location::empty(),
            })
            .collect();
        filtered(scan, &predicates, keep, self.base())
    }
}

/// A predicate of the catalog.
fn parsed(predicate: &str) -> Result<ast::Expr, Error> {
    let sql = format!("CREATE QUARANTINE ON t WHERE ({predicate})");
    match skewer_sql::parse(&sql)? {
        Statement::CreateQuarantine(quarantine) => Ok(*quarantine.predicate),
        _ => Err(Error::Internal(format!("not a predicate: {predicate}"))),
    }
}

/// The error of a predicate that cannot be planned any more, as after a change of a function.
fn in_quarantines(quarantines: &[&Arc<QuarantineMeta>], table: &TableMeta, error: &Error) -> Error {
    let names: Vec<_> = quarantines.iter().map(|q| q.name.as_str()).collect();
    Error::Invalid(format!(
        "in quarantine {} of table {}: {error}; SET quarantine = 'off' reads all rows",
        names.join(" or "),
        table.qualified_name()
    ))
}
