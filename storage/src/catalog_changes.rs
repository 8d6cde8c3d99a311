//! The changes a transaction buffers, and what each does to a snapshot and to the catalog.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{FieldRef, Schema, SchemaRef};

use crate::error::Object;
use crate::placement::Partitioning;
use crate::quarantine::QuarantineMeta;
use crate::snapshot::{SchemaContents, SegmentMeta, Snapshot, TableId, TableMeta, ViewMeta};
use crate::streams::{StreamChange, StreamRow};
use crate::{Result, StorageError};

/// One buffered change. Existing objects are named by what cannot be reused, so that replaying a
/// change after somebody else's commit cannot hit a namesake.
#[derive(Debug)]
pub(crate) enum Change {
    CreateSchema(String),
    DropSchema {
        name: String,
        cascade: bool,
    },
    CreateTable {
        table: Arc<TableMeta>,
        or_replace: bool,
    },
    DropTable(TableId),
    RenameTable {
        table: TableId,
        name: String,
    },
    AddColumn {
        table: TableId,
        field: FieldRef,
    },
    CreateView {
        view: Arc<ViewMeta>,
        or_replace: bool,
    },
    DropView {
        schema: String,
        name: String,
    },
    Replace {
        table: TableId,
        removed: Vec<u64>,
        added: Vec<Arc<SegmentMeta>>,
    },
    Truncate(TableId),
    CreateQuarantine {
        table: TableId,
        quarantine: Arc<QuarantineMeta>,
    },
    DropQuarantine {
        table: TableId,
        name: String,
    },
    /// Of streams and continuous queries.
    Stream(StreamChange),
}

/// One row of the catalog to write or to remove.
#[derive(Debug)]
pub(crate) enum Row {
    PutSchema(String),
    DeleteSchema(String),
    PutTable {
        id: TableId,
        schema: String,
        name: String,
    },
    PutColumns {
        id: TableId,
        columns: SchemaRef,
    },
    PutPartitioning {
        id: TableId,
        partitioning: Partitioning,
    },
    /// The value is read from the table's counter when the row is written.
    PutNextRowId(Arc<TableMeta>),
    DeleteTable(TableId),
    PutSegment {
        table: TableId,
        segment: Arc<SegmentMeta>,
    },
    DeleteSegment {
        table: TableId,
        segment: u64,
    },
    PutView(Arc<ViewMeta>),
    DeleteView {
        schema: String,
        name: String,
    },
    PutQuarantine {
        table: TableId,
        quarantine: Arc<QuarantineMeta>,
    },
    DeleteQuarantine {
        table: TableId,
        name: String,
    },
    /// Of streams and continuous queries.
    Stream(StreamRow),
}

/// What changes amount to, in order.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) rows: Vec<Row>,
    pub(crate) published: Vec<Arc<SegmentMeta>>,
    pub(crate) unpublished: Vec<Arc<SegmentMeta>>,
}

impl Effects {
    /// Adds what a later transaction changes.
    pub(crate) fn append(&mut self, later: Self) {
        self.rows.extend(later.rows);
        self.published.extend(later.published);
        self.unpublished.extend(later.unpublished);
    }
}

pub(crate) fn qualified(schema: &str, name: &str) -> String {
    format!("{schema}.{name}")
}

impl Snapshot {
    /// Applies one change. After an error the snapshot is unchanged.
    pub(crate) fn apply(&mut self, change: &Change, effects: &mut Effects) -> Result<()> {
        match change {
            Change::CreateSchema(name) => {
                if self.schemas.contains_key(name) {
                    return Err(StorageError::exists(Object::Schema, name));
                }
                self.schemas.insert(name.clone(), Arc::default());
                effects.rows.push(Row::PutSchema(name.clone()));
            }
            Change::DropSchema { name, cascade } => self.drop_schema(name, *cascade, effects)?,
            Change::CreateTable { table, or_replace } => {
                let contents = self.contents(&table.schema_name)?;
                if contents.views.contains_key(&table.name) {
                    return Err(StorageError::exists(Object::View, table.qualified_name()));
                }
                if let Some(old) = contents.tables.get(&table.name) {
                    if !or_replace {
                        return Err(StorageError::exists(Object::Table, table.qualified_name()));
                    }
                    let old = old.id;
                    self.drop_table(old, effects)?;
                }
                effects.rows.extend([
                    Row::PutTable {
                        id: table.id,
                        schema: table.schema_name.clone(),
                        name: table.name.clone(),
                    },
                    Row::PutColumns {
                        id: table.id,
                        columns: Arc::clone(&table.schema),
                    },
                    Row::PutPartitioning {
                        id: table.id,
                        partitioning: table.partitioning.clone(),
                    },
                    Row::PutNextRowId(Arc::clone(table)),
                ]);
                self.insert_table(Arc::clone(table));
            }
            Change::DropTable(id) => self.drop_table(*id, effects)?,
            Change::RenameTable { table, name } => {
                let old = self.existing(*table)?;
                self.check_free(&old.schema_name, name)?;
                self.remove_table(old.id);
                let mut new = TableMeta::clone(&old);
                new.name.clone_from(name);
                effects.rows.push(Row::PutTable {
                    id: new.id,
                    schema: new.schema_name.clone(),
                    name: new.name.clone(),
                });
                let new = Arc::new(new);
                self.insert_table(Arc::clone(&new));
                for quarantine in new.quarantines.values() {
                    self.show_quarantine(&new, quarantine)?;
                }
            }
            Change::AddColumn { table, field } => {
                let old = self.existing(*table)?;
                if old.schema.column_with_name(field.name()).is_some() {
                    return Err(StorageError::exists(Object::Column, field.name()));
                }
                let mut fields = old.schema.fields().to_vec();
                fields.push(Arc::clone(field));
                let metadata = old.schema.metadata().clone();
                let columns = Arc::new(Schema::new_with_metadata(fields, metadata));
                effects.rows.push(Row::PutColumns {
                    id: old.id,
                    columns: Arc::clone(&columns),
                });
                let mut new = TableMeta::clone(&old);
                new.set_schema(columns);
                self.insert_table(Arc::new(new));
            }
            Change::CreateView { view, or_replace } => {
                let contents = self.contents(&view.schema_name)?;
                let name = || qualified(&view.schema_name, &view.name);
                if contents.tables.contains_key(&view.name) {
                    return Err(StorageError::exists(Object::Table, name()));
                }
                if contents.views.contains_key(&view.name) && !or_replace {
                    return Err(StorageError::exists(Object::View, name()));
                }
                self.must_be_plain_view(&view.schema_name, &view.name)?;
                effects.rows.push(Row::PutView(Arc::clone(view)));
                self.contents_mut(&view.schema_name)?
                    .views
                    .insert(view.name.clone(), Arc::clone(view));
            }
            Change::DropView { schema, name } => {
                if self.view(schema, name).is_none() {
                    let name = qualified(schema, name);
                    return Err(StorageError::not_found(Object::View, name));
                }
                self.must_be_plain_view(schema, name)?;
                self.contents_mut(schema)?.views.remove(name);
                effects.rows.push(Row::DeleteView {
                    schema: schema.clone(),
                    name: name.clone(),
                });
            }
            Change::Replace {
                table,
                removed,
                added,
            } => self.replace_segments(*table, removed, added, effects)?,
            Change::Truncate(id) => {
                let table = self.existing(*id)?;
                let removed: Vec<u64> = table.segments.iter().map(|s| s.id).collect();
                self.replace_segments(*id, &removed, &[], effects)?;
            }
            Change::CreateQuarantine { table, quarantine } => {
                self.create_quarantine(*table, quarantine, effects)?;
            }
            Change::DropQuarantine { table, name } => {
                self.drop_quarantine(*table, name, effects)?;
            }
            Change::Stream(change) => self.apply_to_streams(change, effects)?,
        }
        Ok(())
    }

    fn replace_segments(
        &mut self,
        id: TableId,
        removed: &[u64],
        added: &[Arc<SegmentMeta>],
        effects: &mut Effects,
    ) -> Result<()> {
        let table = self.existing(id)?;
        let removed: HashSet<u64> = removed.iter().copied().collect();
        let (gone, mut kept): (Vec<_>, Vec<_>) = table
            .segments
            .iter()
            .cloned()
            .partition(|segment| removed.contains(&segment.id));
        if gone.len() != removed.len() {
            return Err(StorageError::Conflict {
                detail: format!("rows of table {} changed meanwhile", table.qualified_name()),
            });
        }
        for segment in &gone {
            effects.rows.push(Row::DeleteSegment {
                table: id,
                segment: segment.id,
            });
        }
        for segment in added {
            effects.rows.push(Row::PutSegment {
                table: id,
                segment: Arc::clone(segment),
            });
        }
        effects.unpublished.extend(gone);
        effects.published.extend(added.iter().cloned());
        kept.extend(added.iter().cloned());
        let mut new = TableMeta::clone(&table);
        new.segments = kept;
        let new = Arc::new(new);
        if !added.is_empty() {
            effects.rows.push(Row::PutNextRowId(Arc::clone(&new)));
        }
        self.insert_table(new);
        Ok(())
    }

    fn drop_schema(&mut self, name: &str, cascade: bool, effects: &mut Effects) -> Result<()> {
        let contents = Arc::clone(
            self.schemas
                .get(name)
                .ok_or_else(|| StorageError::not_found(Object::Schema, name))?,
        );
        let has_queries = self.queries.values().any(|q| q.schema_name == name);
        let empty = contents.tables.is_empty() && contents.views.is_empty() && !has_queries;
        if !cascade && !empty {
            return Err(StorageError::invalid(format_args!(
                "schema {name} is not empty: drop its tables and views first, or use CASCADE"
            )));
        }
        self.refuse_outside_readers(name, &contents)?;
        self.drop_queries_of(name, effects)?;
        for table in contents.tables.values() {
            self.drop_table(table.id, effects)?;
        }
        for view in contents.views.keys() {
            effects.rows.push(Row::DeleteView {
                schema: name.to_owned(),
                name: view.clone(),
            });
        }
        self.schemas.remove(name);
        effects.rows.push(Row::DeleteSchema(name.to_owned()));
        Ok(())
    }

    fn drop_table(&mut self, id: TableId, effects: &mut Effects) -> Result<()> {
        let table = self.existing(id)?;
        self.unmark_stream(id, effects)?;
        self.remove_table(id);
        for quarantine in table.quarantines.values() {
            self.hide_quarantine(&table, quarantine)?;
            effects.rows.push(Row::DeleteQuarantine {
                table: id,
                name: quarantine.name.clone(),
            });
        }
        for segment in &table.segments {
            effects.rows.push(Row::DeleteSegment {
                table: id,
                segment: segment.id,
            });
        }
        effects.rows.push(Row::DeleteTable(id));
        effects.unpublished.extend(table.segments.iter().cloned());
        Ok(())
    }

    pub(crate) fn check_free(&self, schema: &str, name: &str) -> Result<()> {
        let contents = self.contents(schema)?;
        let object = if contents.tables.contains_key(name) {
            Object::Table
        } else if contents.views.contains_key(name) {
            Object::View
        } else {
            return Ok(());
        };
        Err(StorageError::exists(object, qualified(schema, name)))
    }

    pub(crate) fn existing(&self, id: TableId) -> Result<Arc<TableMeta>> {
        self.table_by_id(id)
            .ok_or_else(|| StorageError::not_found(Object::Table, format!("with id {id}")))
    }

    fn contents(&self, schema: &str) -> Result<&SchemaContents> {
        self.schemas
            .get(schema)
            .map(Arc::as_ref)
            .ok_or_else(|| StorageError::not_found(Object::Schema, schema))
    }

    pub(crate) fn contents_mut(&mut self, schema: &str) -> Result<&mut SchemaContents> {
        self.schemas
            .get_mut(schema)
            .map(Arc::make_mut)
            .ok_or_else(|| StorageError::not_found(Object::Schema, schema))
    }
}
