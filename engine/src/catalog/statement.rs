//! The catalog of one statement: what it sees, and how it is planned.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::common::TableReference;
use datafusion::datasource::ViewTable;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{self, Visit};
use parking_lot::Mutex;
use skewer_compat::statement::describe_in_from as described;
use skewer_compat::statement::using_join::{coalesce_join_keys, tables_of_using};
use skewer_compat::suggest::suggest;
use skewer_diagnosis::TableQuarantine;
use skewer_sql::row_ids::expose_row_ids;
use skewer_sql::{Statement, StreamSource};
use skewer_storage::{QuarantineMeta, Snapshot, Storage, TableId, TableMeta};

use super::names::{CATALOG, INFORMATION_SCHEMA, MAIN, Name, SYS, split_row_ids};
use super::native_table::NativeTable;
use super::planned::shown_columns;
use super::quarantine::RowsSeen;
use super::schemas::Schemas;
use crate::error::Error;
use crate::statements::describe::as_query;
use crate::streams::definition;
use skewer_compat::session_zone::zone_of;
use skewer_files::FileTable;

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

/// The tables and files that a statement read.
#[derive(Debug, Default, Clone)]
pub(crate) struct Touched {
    pub(crate) tables: Vec<Arc<TableMeta>>,
    pub(crate) files: Vec<FileTable>,
    /// Names of tables that the session registered.
    pub(crate) registered: Vec<String>,
    /// The quarantines that leave rows out.
    pub(crate) quarantines: Vec<TableQuarantine>,
}

/// What a name in a user's schema stands for.
pub(super) enum Relation {
    Table(Arc<TableMeta>),
    /// The view that shows the rows of a quarantine.
    Quarantined(Arc<TableMeta>, Arc<QuarantineMeta>),
    View(String),
    External(FileTable),
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

    pub(crate) fn touched(&self) -> Touched {
        self.touched.lock().clone()
    }

    pub(crate) fn touch_file(&self, file: FileTable) {
        self.touched.lock().files.push(file);
    }

    /// Quarantines leave rows out of the statement.
    pub(super) fn apply(&self, quarantines: impl Iterator<Item = TableQuarantine>) {
        let applied = &mut self.touched.lock().quarantines;
        for quarantine in quarantines {
            if !applied.contains(&quarantine) {
                applied.push(quarantine);
            }
        }
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

    /// A table that statements can append to: also a stream whose source is INSERT.
    pub(crate) fn appendable_table(&self, name: &ast::ObjectName) -> Result<Arc<TableMeta>, Error> {
        let resolved = self.resolve(name)?;
        let table = self.snapshot.table(&resolved.schema, &resolved.table);
        let stream = table.and_then(|table| {
            let stream = self.snapshot.stream(table.id)?;
            Some((table, Arc::clone(stream)))
        });
        let Some((table, stream)) = stream else {
            return self.writable_table(name);
        };
        match definition::stream(&stream.sql)?.source {
            StreamSource::Insert => Ok(table),
            _ => Err(Error::ReadOnly {
                name: resolved.to_string(),
                reason:
                    "its rows come from the source of the stream; create another stream FROM INSERT"
                        .to_owned(),
            }),
        }
    }

    /// A table whose rows and columns statements can change.
    pub(crate) fn writable_table(&self, name: &ast::ObjectName) -> Result<Arc<TableMeta>, Error> {
        let name = self.resolve(name)?;
        name.must_be_writable()?;
        if let Some(table) = self.snapshot.table(&name.schema, &name.table) {
            if self.snapshot.stream(table.id).is_some() {
                return Err(Error::ReadOnly {
                    name: name.to_string(),
                    reason: "it is a stream, whose rows go when continuous queries have read them"
                        .to_owned(),
                });
            }
            return Ok(table);
        }
        if self.snapshot.view(&name.schema, &name.table).is_some() {
            return Err(Error::ReadOnly {
                name: name.to_string(),
                reason: "it is a view or an external table".to_owned(),
            });
        }
        if self.registered(&name).is_some() {
            return Err(Error::ReadOnly {
                name: name.to_string(),
                reason: "the program registered it for this session".to_owned(),
            });
        }
        Err(self.unknown_table(&name))
    }

    /// The error for a name that is not there.
    pub(crate) fn unknown_table(&self, name: &Name) -> Error {
        if !self.schema_names().contains(&name.schema) {
            return Error::UnknownSchema {
                name: name.schema.clone(),
                suggestions: suggest(&name.schema, self.schema_names().iter().map(String::as_str)),
            };
        }
        let (table, _) = split_row_ids(&name.table);
        let own = self.relation_names(&name.schema);
        let mut suggestions: Vec<_> = suggest(table, own.iter().map(String::as_str))
            .into_iter()
            .map(|table| {
                Name {
                    schema: name.schema.clone(),
                    table,
                }
                .to_string()
            })
            .collect();
        if suggestions.is_empty() {
            for schema in self.schema_names() {
                if self.relation_names(&schema).iter().any(|t| t == table) {
                    suggestions.push(format!("{schema}.{table}"));
                }
            }
        }
        if suggestions.is_empty() && std::path::Path::new(table).is_dir() {
            suggestions.push(format!("'{table}/'"));
        }
        Error::UnknownTable {
            name: Name {
                schema: name.schema.clone(),
                table: table.to_owned(),
            }
            .to_string(),
            suggestions,
        }
    }

    /// All schemas, sorted.
    pub(crate) fn schema_names(&self) -> Vec<String> {
        let mut names: BTreeSet<String> = self.snapshot.schemas().into_iter().collect();
        names.insert(SYS.to_owned());
        names.insert(INFORMATION_SCHEMA.to_owned());
        names.into_iter().collect()
    }

    /// The tables, views and external tables of a schema, sorted.
    pub(crate) fn relation_names(&self, schema: &str) -> Vec<String> {
        let mut names: BTreeSet<String> = BTreeSet::new();
        match schema {
            SYS => names.extend(self.sys.table_names()),
            INFORMATION_SCHEMA => names.extend(
                datafusion::catalog::information_schema::INFORMATION_SCHEMA_TABLES
                    .iter()
                    .map(|t| (*t).to_owned()),
            ),
            _ => {
                names.extend(self.snapshot.tables(schema).iter().map(|t| t.name.clone()));
                names.extend(self.snapshot.views(schema).iter().map(|v| v.name.clone()));
                if schema == MAIN {
                    names.extend(self.registered.keys().cloned());
                }
            }
        }
        names.into_iter().collect()
    }

    /// Whether `name` in FROM has row ids to show.
    pub(crate) fn has_row_ids(&self, name: &ast::ObjectName) -> bool {
        let Ok(name) = self.resolve(name) else {
            return false;
        };
        match self.relation(&name) {
            Ok(Some(Relation::Table(_))) => true,
            Ok(Some(Relation::Quarantined(..))) => true,
            // Files whose rows have none are asked too, to say so.
            Ok(Some(Relation::External(_))) => true,
            Ok(Some(Relation::View(_))) => false,
            Ok(None) | Err(_) => FileTable::is_path(&name.table),
        }
    }

    /// Whether a query can name it.
    pub(crate) fn exists(&self, name: &Name) -> bool {
        let (table, _) = split_row_ids(&name.table);
        if let Some(schema) = self.extra.get(&name.schema) {
            return schema.table_exist(table);
        }
        self.relation_names(&name.schema).iter().any(|n| n == table) || FileTable::is_path(table)
    }

    pub(crate) fn sys(&self) -> &Arc<dyn SchemaProvider> {
        &self.sys
    }

    /// Plans a statement that DataFusion's planner understands. Blocks that name `_row_id` see it.
    pub(crate) async fn plan(
        self: &Arc<Self>,
        statement: DFStatement,
    ) -> Result<LogicalPlan, Error> {
        self.check(&statement)?;
        self.plan_unchecked(statement).await
    }

    /// Whether the tables are there that a statement names.
    pub(crate) fn check(&self, statement: &DFStatement) -> Result<(), Error> {
        for reference in self.base.resolve_table_references(statement)? {
            self.must_exist(&self.base, &reference)?;
        }
        Ok(())
    }

    /// Plans a statement that may name tables which are not there yet.
    pub(crate) async fn plan_unchecked(
        self: &Arc<Self>,
        mut statement: DFStatement,
    ) -> Result<LogicalPlan, Error> {
        refuse_overlooked(&statement)?;
        self.prepare(&mut statement, &[]).await?;
        let state = self.planning_state();
        self.planned(&state, statement, &[]).await
    }

    /// Says in a statement what the planner would overlook: what columns of USING stand for, and row
    /// ids. `views` are those that it is part of.
    async fn prepare(
        self: &Arc<Self>,
        statement: &mut DFStatement,
        views: &[Name],
    ) -> Result<(), Error> {
        let statement = match statement {
            DFStatement::Explain(explain) => {
                return Box::pin(self.prepare(&mut explain.statement, views)).await;
            }
            DFStatement::Statement(statement) => &mut **statement,
            _ => return Ok(()),
        };
        Box::pin(self.describe(statement, views)).await?;
        let mut columns = HashMap::new();
        for table in tables_of_using(statement) {
            if let Some(names) = self.columns(&table, views).await {
                columns.insert(table, names);
            }
        }
        coalesce_join_keys(statement, &|name| columns.get(name).cloned())
            .map_err(Error::Invalid)?;
        expose_row_ids(statement, &|name| self.has_row_ids(name));
        Ok(())
    }

    /// Puts descriptions in the places of queries in FROM that are to be described.
    async fn describe(
        self: &Arc<Self>,
        statement: &mut ast::Statement,
        views: &[Name],
    ) -> Result<(), Error> {
        let mut descriptions = Vec::new();
        for query in described::take(statement) {
            let query = ast::Statement::Query(Box::new(query));
            let mut query = DFStatement::Statement(Box::new(query));
            Box::pin(self.prepare(&mut query, views)).await?;
            let state = self.state_below(views.to_vec());
            let plan = Box::pin(self.planned(&state, query, views)).await?;
            descriptions.push(as_query(&shown_columns(&Arc::new(
                plan.schema().as_arrow().clone(),
            )))?);
        }
        described::put(statement, descriptions);
        Ok(())
    }

    /// The columns of what `name` stands for in FROM, if there are such: it may name a CTE. What
    /// cannot be read is for the planner to complain of.
    pub(super) async fn columns(
        self: &Arc<Self>,
        name: &ast::ObjectName,
        views: &[Name],
    ) -> Option<Vec<String>> {
        let name = self.resolve(name).ok()?;
        let schema = match self.snapshot.table(&name.schema, &name.table) {
            Some(table) => Arc::clone(&table.schema),
            None => {
                let schemas = self.schemas(views.to_vec());
                let schema = schemas.schema(&name.schema)?;
                Box::pin(schema.table(&name.table)).await.ok()??.schema()
            }
        };
        let fields = schema.fields().iter();
        Some(fields.map(|field| field.name().clone()).collect())
    }

    /// Whether a statement reads schema `sys` or `information_schema`, and nothing else.
    pub(crate) fn reads_only_system(&self, statement: &DFStatement) -> bool {
        let Ok(references) = self.base.resolve_table_references(statement) else {
            return false;
        };
        let mut system = references.iter().map(|reference| {
            let resolved = reference.clone().resolve(CATALOG, self.default_schema());
            matches!(&*resolved.schema, SYS | INFORMATION_SCHEMA)
                || self.extra.contains_key(&*resolved.schema)
                || self.is_system_function(&Name {
                    schema: resolved.schema.to_string(),
                    table: resolved.table.to_string(),
                })
        });
        match system.next() {
            None => false,
            Some(first) => first && system.all(|is| is),
        }
    }

    /// A table function over schema `sys` and no table of the same name.
    fn is_system_function(&self, name: &Name) -> bool {
        self.base.table_functions().contains_key(&name.table)
            && (name.table.ends_with("_trace")
                || matches!(name.table.as_str(), "blame" | "critical_path" | "what_if"))
            && !self.exists(name)
    }

    fn must_exist(&self, state: &SessionState, reference: &TableReference) -> Result<(), Error> {
        let resolved = reference.clone().resolve(CATALOG, self.default_schema());
        let is_bare = matches!(reference, TableReference::Bare { .. });
        if is_bare && state.table_functions().contains_key(&*resolved.table) {
            return Ok(());
        }
        let name = Name {
            schema: resolved.schema.to_string(),
            table: resolved.table.to_string(),
        };
        if &*resolved.catalog != CATALOG {
            return Err(Error::UnknownTable {
                name: reference.to_string(),
                suggestions: Vec::new(),
            });
        }
        if self.exists(&name) {
            return Ok(());
        }
        let mut error = self.unknown_table(&name);
        if let Error::UnknownTable { suggestions, .. } = &mut error {
            let functions = state.table_functions().keys().map(String::as_str);
            let near = suggest(&name.table, functions);
            suggestions.extend(near.into_iter().map(|function| format!("{function}(…)")));
        }
        Err(error)
    }

    pub(super) fn relation(&self, name: &Name) -> Result<Option<Relation>, Error> {
        if let Some(table) = self.snapshot.table(&name.schema, &name.table) {
            return Ok(Some(Relation::Table(table)));
        }
        let Some(view) = self.snapshot.view(&name.schema, &name.table) else {
            return Ok(None);
        };
        if let Some((table, quarantine)) =
            self.snapshot.quarantine_of_view(&name.schema, &name.table)
        {
            return Ok(Some(Relation::Quarantined(table, quarantine)));
        }
        Ok(Some(match skewer_sql::parse(&view.sql)? {
            Statement::CreateExternalTable(table) => {
                Relation::External(FileTable::external(&table)?)
            }
            _ => Relation::View(view.sql.clone()),
        }))
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

    pub(super) async fn provider(
        self: &Arc<Self>,
        name: &Name,
        views: &[Name],
    ) -> Result<Option<Arc<dyn TableProvider>>, Error> {
        let full_name = name.table.clone();
        let (table, row_ids) = split_row_ids(&name.table);
        let name = Name {
            schema: name.schema.clone(),
            table: table.to_owned(),
        };
        Ok(Some(match self.relation(&name)? {
            Some(Relation::Table(table)) => {
                // With the suffix that shows row ids, if it has one.
                let called = Name {
                    table: full_name,
                    ..name
                };
                let provider = self.stored(&table, row_ids);
                self.seen(&table, &called, provider)?
            }
            Some(Relation::Quarantined(table, quarantine)) => {
                let provider = self.stored(&table, row_ids);
                self.quarantined(&table, &quarantine, provider)?
            }
            Some(Relation::View(sql)) => self.view(&name, &sql, views).await?,
            Some(Relation::External(files)) => self.files(files, row_ids).await?,
            None if FileTable::is_path(&name.table) => {
                self.files(FileTable::from_path(&name.table)?, row_ids)
                    .await?
            }
            None => match self.registered(&name) {
                // A view is for all sessions.
                Some(table) if views.is_empty() => {
                    self.touched.lock().registered.push(name.table);
                    Arc::clone(table)
                }
                _ => return Ok(None),
            },
        }))
    }

    /// A table of the database, with all its rows.
    fn stored(&self, table: &Arc<TableMeta>, row_ids: bool) -> Arc<dyn TableProvider> {
        let zone = zone_of(self.base.config_options());
        let provider = NativeTable::identified(table, &self.storage, row_ids, zone);
        self.touched.lock().tables.push(Arc::clone(table));
        Arc::new(provider)
    }

    /// The table that the session registered under a name.
    pub(super) fn registered(&self, name: &Name) -> Option<&Arc<dyn TableProvider>> {
        let is_main = name.schema == MAIN;
        self.registered.get(&name.table).filter(|_| is_main)
    }

    async fn files(
        &self,
        files: FileTable,
        row_ids: bool,
    ) -> Result<Arc<dyn TableProvider>, Error> {
        // A statement that reads files twice looks into them once.
        let key = format!("{files:?} {row_ids}");
        if let Some(opened) = self.opened.lock().get(&key) {
            return Ok(Arc::clone(opened));
        }
        let provider = files.provider(&self.base, row_ids).await;
        self.touch_file(files);
        match provider {
            Ok(provider) => {
                self.opened.lock().insert(key, Arc::clone(&provider));
                Ok(provider)
            }
            Err(error) => Err(self.diagnose(error.into()).await),
        }
    }

    async fn view(
        self: &Arc<Self>,
        name: &Name,
        sql: &str,
        views: &[Name],
    ) -> Result<Arc<dyn TableProvider>, Error> {
        if views.contains(name) {
            return Err(Error::Invalid(format!("view {name} is defined by itself")));
        }
        let Statement::CreateView(view) = skewer_sql::parse(sql)? else {
            return Err(Error::Internal(format!("{name} is not a view: {sql}")));
        };
        let columns: Vec<String> = view
            .columns
            .iter()
            .map(|column| super::names::fold(&column.name))
            .collect();
        let mut statement =
            DFStatement::Statement(Box::new(ast::Statement::Query(view.query.clone())));
        let mut below = views.to_vec();
        below.push(name.clone());
        let state = self.state_below(below.clone());
        let context = |error: Error| Error::Invalid(format!("in view {name}: {error}"));
        for reference in state.resolve_table_references(&statement)? {
            self.must_exist(&state, &reference).map_err(context)?;
        }
        Box::pin(self.prepare(&mut statement, &below))
            .await
            .map_err(context)?;
        // Views of views plan each other: the future must be boxed.
        let plan = Box::pin(self.planned(&state, statement, &below))
            .await
            .map_err(context)?;
        let plan = rename_columns(plan, &columns)?;
        Ok(Arc::new(ViewTable::new(plan, Some(sql.to_owned()))))
    }
}

/// Names the columns as CREATE VIEW v (a, b) says.
pub(crate) fn rename_columns(plan: LogicalPlan, columns: &[String]) -> Result<LogicalPlan, Error> {
    if columns.is_empty() {
        return Ok(plan);
    }
    if columns.len() != plan.schema().fields().len() {
        return Err(Error::Invalid(format!(
            "the view has {} columns and its query {}",
            columns.len(),
            plan.schema().fields().len()
        )));
    }
    let renamed: Vec<Expr> = plan
        .schema()
        .columns()
        .into_iter()
        .zip(columns)
        .map(|(column, name)| Expr::Column(column).alias(name))
        .collect();
    Ok(LogicalPlanBuilder::from(plan).project(renamed)?.build()?)
}

/// Refuses what DataFusion's planner overlooks, which would give wrong rows: it reads the whole
/// table for TABLESAMPLE, and no numbers for WITH ORDINALITY.
fn refuse_overlooked(statement: &DFStatement) -> Result<(), Error> {
    struct Overlooked;
    impl ast::Visitor for Overlooked {
        type Break = &'static str;
        fn pre_visit_table_factor(
            &mut self,
            factor: &ast::TableFactor,
        ) -> ControlFlow<Self::Break> {
            match factor {
                ast::TableFactor::Table {
                    sample: Some(_), ..
                }
                | ast::TableFactor::Derived {
                    sample: Some(_), ..
                } => ControlFlow::Break("TABLESAMPLE; WHERE random() < 0.1 takes a tenth"),
                ast::TableFactor::Table {
                    with_ordinality: true,
                    ..
                }
                | ast::TableFactor::Function {
                    with_ordinality: true,
                    ..
                } => ControlFlow::Break(
                    "WITH ORDINALITY of other than lists and series; row_number() OVER () numbers rows",
                ),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    match statement {
        DFStatement::Statement(statement) => match statement.visit(&mut Overlooked) {
            ControlFlow::Break(what) => Err(Error::Unsupported(what.to_owned())),
            ControlFlow::Continue(()) => Ok(()),
        },
        DFStatement::Explain(explain) => refuse_overlooked(&explain.statement),
        _ => Ok(()),
    }
}
