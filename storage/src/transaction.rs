//! Buffered changes, published together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::arrow::datatypes::{Field, SchemaRef};

use crate::catalog_changes::{Change, Effects, qualified};
use crate::conform::check_storable;
use crate::error::Object;
use crate::placement::Partitioning;
use crate::quarantine::QuarantineMeta;
use crate::remote::Writer;
use crate::snapshot::{ROW_ID, Snapshot, TableId, TableMeta, ViewMeta};
use crate::storage::Storage;
use crate::streams::{ContinuousQueryMeta, FileMark, Progress, StreamChange, StreamMeta};
use crate::writer::NewSegment;
use crate::{Result, StorageError};

/// Changes that become visible and durable together, or not at all.
///
/// Each method checks against the snapshot taken by [`Storage::begin`] plus the transaction's own
/// changes, so most errors come at once; [`Transaction::commit`] checks again against what others
/// committed meanwhile. Dropping a transaction discards its changes and removes the files of its
/// new segments.
#[derive(Debug)]
pub struct Transaction {
    storage: Storage,
    base: Arc<Snapshot>,
    current: Snapshot,
    changes: Vec<Change>,
    /// Who wrote the new segments, if it was on other nodes.
    writers: BTreeSet<Writer>,
}

impl Transaction {
    pub(crate) fn new(storage: Storage) -> Self {
        let base = storage.snapshot();
        Self {
            storage,
            current: Snapshot::clone(&base),
            base,
            changes: Vec::new(),
            writers: BTreeSet::new(),
        }
    }

    /// The database as this transaction would leave it.
    pub fn current(&self) -> &Snapshot {
        &self.current
    }

    /// Creates a schema.
    pub fn create_schema(&mut self, name: &str) -> Result<()> {
        self.apply(Change::CreateSchema(name.to_owned()))
    }

    /// Drops a schema; unless `cascade`, it must be empty.
    pub fn drop_schema(&mut self, name: &str, cascade: bool) -> Result<()> {
        self.apply(Change::DropSchema {
            name: name.to_owned(),
            cascade,
        })
    }

    /// Creates a table. With `or_replace` an existing table of the name is dropped first (an
    /// existing view is an error). The result can be given to [`Storage::writer`] at once.
    pub fn create_table(
        &mut self,
        schema: &str,
        name: &str,
        columns: SchemaRef,
        or_replace: bool,
    ) -> Result<Arc<TableMeta>> {
        let partitioning = Partitioning::RoundRobin;
        self.create_partitioned_table(schema, name, columns, partitioning, or_replace)
    }

    /// [Creates a table](Transaction::create_table) whose rows are divided among its owners as
    /// `partitioning` says.
    pub fn create_partitioned_table(
        &mut self,
        schema: &str,
        name: &str,
        columns: SchemaRef,
        partitioning: Partitioning,
        or_replace: bool,
    ) -> Result<Arc<TableMeta>> {
        check_columns(&columns)?;
        if let Partitioning::Hash(keys) = &partitioning {
            check_keys(keys, &columns)?;
        }
        let id = TableId(self.storage.next_table_id());
        let mut table = TableMeta::new(id, schema, name, columns, 0);
        table.partitioning = partitioning;
        let table = Arc::new(table);
        self.apply(Change::CreateTable {
            table: Arc::clone(&table),
            or_replace,
        })?;
        Ok(table)
    }

    /// Drops a table. Its files go when no snapshot needs them any more.
    pub fn drop_table(&mut self, schema: &str, name: &str) -> Result<()> {
        let id = self.table(schema, name)?.id;
        self.apply(Change::DropTable(id))
    }

    /// Renames a table within its schema.
    pub fn rename_table(&mut self, schema: &str, name: &str, new_name: &str) -> Result<()> {
        let table = self.table(schema, name)?.id;
        self.apply(Change::RenameTable {
            table,
            name: new_name.to_owned(),
        })
    }

    /// Adds a column at the end. It must be nullable: existing rows have NULL in it.
    pub fn add_column(&mut self, schema: &str, name: &str, column: Field) -> Result<()> {
        let table = self.table(schema, name)?.id;
        check_column(&column)?;
        if !column.is_nullable() {
            return Err(StorageError::invalid(format_args!(
                "column {} cannot be added as NOT NULL: existing rows have no value for it",
                column.name()
            )));
        }
        self.apply(Change::AddColumn {
            table,
            field: Arc::new(column),
        })
    }

    /// Creates a view. `sql` is kept as it is.
    pub fn create_view(
        &mut self,
        schema: &str,
        name: &str,
        sql: &str,
        or_replace: bool,
    ) -> Result<()> {
        self.apply(Change::CreateView {
            view: Arc::new(ViewMeta {
                schema_name: schema.to_owned(),
                name: name.to_owned(),
                sql: sql.to_owned(),
            }),
            or_replace,
        })
    }

    /// Drops a view.
    pub fn drop_view(&mut self, schema: &str, name: &str) -> Result<()> {
        self.apply(Change::DropView {
            schema: schema.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Creates a quarantine of a table, and its view.
    pub fn create_quarantine(&mut self, table: TableId, quarantine: QuarantineMeta) -> Result<()> {
        self.apply(Change::CreateQuarantine {
            table,
            quarantine: Arc::new(quarantine),
        })
    }

    /// Drops a quarantine of a table, and its view.
    pub fn drop_quarantine(&mut self, table: TableId, name: &str) -> Result<()> {
        self.apply(Change::DropQuarantine {
            table,
            name: name.to_owned(),
        })
    }

    /// Adds rows.
    pub fn add_segments(&mut self, table: TableId, added: Vec<NewSegment>) -> Result<()> {
        self.replace_segments(table, &[], added)
    }

    /// Replaces segments by others: how rows are deleted and updated. The commit fails with
    /// [`StorageError::Conflict`] if one of `removed` is gone by then.
    pub fn replace_segments(
        &mut self,
        table: TableId,
        removed: &[u64],
        added: Vec<NewSegment>,
    ) -> Result<()> {
        if let Some(stray) = added.iter().find(|segment| segment.table != table) {
            return Err(StorageError::Internal {
                detail: format!("segment of table {} added to table {table}", stray.table),
            });
        }
        self.writers.extend(added.iter().filter_map(|s| s.writer));
        self.apply(Change::Replace {
            table,
            removed: removed.to_vec(),
            added: added.into_iter().map(|segment| segment.meta).collect(),
        })
    }

    /// Removes all rows, including those committed between [`Storage::begin`] and the commit.
    pub fn truncate(&mut self, table: TableId) -> Result<()> {
        self.apply(Change::Truncate(table))
    }

    /// Creates a stream: a table whose rows go when its readers have read them. `sql` is kept as it
    /// is.
    pub fn create_stream(
        &mut self,
        schema: &str,
        name: &str,
        columns: SchemaRef,
        sql: &str,
    ) -> Result<Arc<TableMeta>> {
        let table = self.create_table(schema, name, columns, false)?;
        self.apply(Change::Stream(StreamChange::Mark(Arc::new(StreamMeta {
            table: table.id,
            sql: sql.to_owned(),
            files: BTreeMap::new(),
        }))))?;
        Ok(table)
    }

    /// Notes files that a stream has `taken`, and lets it forget others.
    pub fn take_files(
        &mut self,
        stream: TableId,
        taken: Vec<(String, FileMark)>,
        forgotten: Vec<String>,
    ) -> Result<()> {
        self.apply(Change::Stream(StreamChange::Files {
            stream,
            taken,
            forgotten,
        }))
    }

    /// Creates a continuous query, which is where `progress` says. `sql` is kept as it is. Returns
    /// the query's id.
    pub fn create_continuous_query(
        &mut self,
        schema: &str,
        name: &str,
        stream: TableId,
        sql: &str,
        progress: Progress,
    ) -> Result<u64> {
        let id = self.storage.next_table_id();
        let query = ContinuousQueryMeta {
            id,
            schema_name: schema.to_owned(),
            name: name.to_owned(),
            sql: sql.to_owned(),
            stream,
            progress,
        };
        self.apply(Change::Stream(StreamChange::CreateQuery(Arc::new(query))))?;
        Ok(id)
    }

    /// Drops a continuous query.
    pub fn drop_continuous_query(&mut self, id: u64) -> Result<()> {
        self.apply(Change::Stream(StreamChange::DropQuery(id)))
    }

    /// Notes the end of a micro-batch, which takes a continuous query from one place to another.
    ///
    /// # Errors
    /// [`StorageError::Conflict`] if the query is not at `from`, now or at the commit.
    pub fn advance(&mut self, query: u64, from: Progress, to: Progress) -> Result<()> {
        self.apply(Change::Stream(StreamChange::Advance { query, from, to }))
    }

    /// Publishes the changes and returns the snapshot that has them. When it returns, they are
    /// durable. A transaction without changes costs nothing.
    ///
    /// Blocks for one or two syncs of the catalog.
    ///
    /// # Errors
    /// [`StorageError::Conflict`] if another commit got in the way,
    /// [`StorageError::WorkerLost`] if one that wrote is not there any more. After
    /// [`StorageError::DiskFull`] or [`StorageError::Io`] nothing is published; only if even
    /// reading the catalog back fails, it is open until the next commit or open of the database
    /// whether the changes are in it (whole or not at all).
    pub fn commit(self) -> Result<Arc<Snapshot>> {
        if self.changes.is_empty() {
            return Ok(self.storage.snapshot());
        }
        let writers: Vec<Writer> = self.writers.iter().copied().collect();
        self.storage
            .commit(&writers, self.base.version, self.changes)
    }

    fn table(&self, schema: &str, name: &str) -> Result<Arc<TableMeta>> {
        self.current
            .table(schema, name)
            .ok_or_else(|| StorageError::not_found(Object::Table, qualified(schema, name)))
    }

    fn apply(&mut self, change: Change) -> Result<()> {
        // What it does to the catalog is found again at commit, against the state of then.
        self.current.apply(&change, &mut Effects::default())?;
        self.changes.push(change);
        Ok(())
    }
}

fn check_columns(columns: &SchemaRef) -> Result<()> {
    for (index, column) in columns.fields().iter().enumerate() {
        check_column(column)?;
        let earlier = &columns.fields()[..index];
        if earlier.iter().any(|other| other.name() == column.name()) {
            return Err(StorageError::exists(Object::Column, column.name()));
        }
    }
    Ok(())
}

fn check_keys(keys: &[String], columns: &SchemaRef) -> Result<()> {
    if keys.is_empty() {
        return Err(StorageError::invalid(
            "a table cannot be divided by the hash of no column",
        ));
    }
    for (place, key) in keys.iter().enumerate() {
        if columns.index_of(key).is_err() {
            return Err(StorageError::not_found(Object::Column, key));
        }
        if keys[..place].contains(key) {
            return Err(StorageError::exists(Object::Column, key));
        }
    }
    Ok(())
}

fn check_column(column: &Field) -> Result<()> {
    if column.name() == ROW_ID {
        return Err(StorageError::invalid(format_args!(
            "column name {ROW_ID} is reserved for the hidden row id"
        )));
    }
    check_storable(column)
}

/// Rows handed out so far by a table's counter.
pub(crate) fn next_row_id(table: &TableMeta) -> i64 {
    table.next_row_id.load(Ordering::Acquire)
}
