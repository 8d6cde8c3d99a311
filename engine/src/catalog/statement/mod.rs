//! The catalog of one statement: what it sees, and how it is planned.

mod planning;
mod relations;
mod touched;
mod unknown_names;
mod views;
mod visible_names;
mod writable_tables;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast;
use parking_lot::Mutex;
use skewer_storage::{Snapshot, Storage, TableId};

pub(super) use self::relations::Relation;
pub(crate) use self::touched::Touched;
pub(crate) use self::views::rename_columns;
use super::names::Name;
use super::quarantine::RowsSeen;
use super::schemas::Schemas;
use crate::error::Error;

/// What one statement sees: a snapshot of the tables and views, schema `sys`, and files.
#[derive(Debug)]
pub(crate) struct StatementCatalog {
    /// Functions and settings, to plan views with; its own catalog is empty.
    base: SessionState,
    snapshot: Arc<Snapshot>,
    storage: Storage,
    sys: Arc<dyn SchemaProvider>,
    /// Schemas of the session's own.
    pub(super) extra: BTreeMap<String, Arc<dyn SchemaProvider>>,
    /// Tables that the session registered. They belong to schema `main`, and stored ones hide them.
    registered: BTreeMap<String, Arc<dyn TableProvider>>,
    /// Which rows it sees of tables with quarantines.
    pub(super) rows_seen: RowsSeen,
    /// The table whose rows it changes.
    pub(super) target: Mutex<Option<TableId>>,
    /// What the statement read, for [`super::diagnosis`].
    touched: Mutex<Touched>,
    /// The files that it has opened.
    opened: Mutex<HashMap<String, Arc<dyn TableProvider>>>,
}

impl StatementCatalog {
    /// What a statement sees that reads `snapshot`.
    pub(crate) fn new(
        base: SessionState,
        storage: Storage,
        snapshot: Arc<Snapshot>,
        sys: Arc<dyn SchemaProvider>,
        extra: BTreeMap<String, Arc<dyn SchemaProvider>>,
        registered: BTreeMap<String, Arc<dyn TableProvider>>,
    ) -> Self {
        Self {
            base,
            snapshot,
            storage,
            sys,
            extra,
            registered,
            rows_seen: RowsSeen::All,
            target: Mutex::default(),
            touched: Mutex::default(),
            opened: Mutex::default(),
        }
    }

    /// The same for a statement that sees these rows.
    pub(crate) fn seeing(mut self, rows_seen: RowsSeen) -> Self {
        self.rows_seen = rows_seen;
        self
    }

    pub(crate) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    pub(crate) fn base(&self) -> &SessionState {
        &self.base
    }

    /// A state that plans against this catalog.
    pub(crate) fn planning_state(self: &Arc<Self>) -> SessionState {
        self.state_below(Vec::new())
    }

    /// The schema of names without schema.
    pub(crate) fn default_schema(&self) -> &str {
        &self.base.config_options().catalog.default_schema
    }

    pub(crate) fn resolve(&self, name: &ast::ObjectName) -> Result<Name, Error> {
        Name::resolve(name, self.default_schema())
    }

    pub(crate) fn sys(&self) -> &Arc<dyn SchemaProvider> {
        &self.sys
    }

    /// A state for planning the views in `views`, each of which is part of the one before.
    fn state_below(self: &Arc<Self>, views: Vec<Name>) -> SessionState {
        let mut state = self.base.clone();
        state.register_catalog_list(Arc::new(self.schemas(views)));
        state
    }

    fn schemas(self: &Arc<Self>, views: Vec<Name>) -> Schemas {
        Schemas {
            catalog: Arc::clone(self),
            views,
            skip_broken: false,
        }
    }
}
