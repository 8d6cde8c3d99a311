//! Quarantines: named conditions that keep rows of a table out of queries that ask for it.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::catalog_changes::{Effects, Row, qualified};
use crate::error::Object;
use crate::snapshot::{Snapshot, TableId, TableMeta, ViewMeta};
use crate::{Result, StorageError};

/// A quarantine of a table: it hides rows and deletes none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantineMeta {
    /// Unique in the table's schema.
    pub name: String,
    /// SQL over the table's columns and `_row_id`, without qualifiers. Rows for which it is true
    /// are in the quarantine.
    pub predicate: String,
    /// The view of the table's schema that shows these rows.
    pub view: Option<String>,
    /// Microseconds from 1970 to its creation.
    created_at_us: u64,
}

impl QuarantineMeta {
    /// A quarantine that is created now.
    pub fn new(name: &str, predicate: &str, view: Option<&str>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            name: name.to_owned(),
            predicate: predicate.to_owned(),
            view: view.map(str::to_owned),
            created_at_us: now.map_or(0, |now| now.as_micros() as u64),
        }
    }

    /// When it was created.
    pub fn created_at(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_micros(self.created_at_us)
    }

    /// The statement that creates it again.
    pub fn sql(&self, table: &TableMeta) -> String {
        let mut sql = format!(
            "CREATE QUARANTINE {} ON {}.{} WHERE ({})",
            quoted(&self.name),
            quoted(&table.schema_name),
            quoted(&table.name),
            self.predicate
        );
        if let Some(view) = &self.view {
            sql.push_str(&format!(" INTO {}", quoted(view)));
        }
        sql
    }

    /// Its view. The catalog does not store it: it follows from the quarantine.
    fn view_of(&self, table: &TableMeta) -> Option<ViewMeta> {
        Some(ViewMeta {
            schema_name: table.schema_name.clone(),
            name: self.view.clone()?,
            sql: self.sql(table),
        })
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl Snapshot {
    /// The quarantine of this name in a schema, and its table.
    pub fn quarantine(
        &self,
        schema: &str,
        name: &str,
    ) -> Option<(Arc<TableMeta>, Arc<QuarantineMeta>)> {
        let tables = self.schemas.get(schema)?.tables.values();
        let mut found = tables.filter_map(|table| Some((table, table.quarantines.get(name)?)));
        let (table, quarantine) = found.next()?;
        Some((Arc::clone(table), Arc::clone(quarantine)))
    }

    /// The quarantine whose rows a view shows, and its table; `None` for other views.
    pub fn quarantine_of_view(
        &self,
        schema: &str,
        view: &str,
    ) -> Option<(Arc<TableMeta>, Arc<QuarantineMeta>)> {
        let tables = self.schemas.get(schema)?.tables.values();
        let mut all = tables.flat_map(|table| {
            let quarantines = table.quarantines.values();
            quarantines.map(move |quarantine| (table, quarantine))
        });
        let (table, quarantine) = all.find(|(_, q)| q.view.as_deref() == Some(view))?;
        Some((Arc::clone(table), Arc::clone(quarantine)))
    }

    /// Refuses to change the view of a quarantine as if it were any other.
    pub(crate) fn must_be_plain_view(&self, schema: &str, view: &str) -> Result<()> {
        match self.quarantine_of_view(schema, view) {
            None => Ok(()),
            Some((table, quarantine)) => Err(StorageError::invalid(format_args!(
                "view {} belongs to quarantine {} of table {}: write DROP QUARANTINE {} to drop both",
                qualified(schema, view),
                quarantine.name,
                table.qualified_name(),
                quoted(&quarantine.name)
            ))),
        }
    }

    pub(crate) fn create_quarantine(
        &mut self,
        id: TableId,
        quarantine: &Arc<QuarantineMeta>,
        effects: &mut Effects,
    ) -> Result<()> {
        let table = self.existing(id)?;
        if self
            .quarantine(&table.schema_name, &quarantine.name)
            .is_some()
        {
            let name = qualified(&table.schema_name, &quarantine.name);
            return Err(StorageError::exists(Object::Quarantine, name));
        }
        if let Some(view) = &quarantine.view {
            self.check_free(&table.schema_name, view)?;
        }
        let mut new = TableMeta::clone(&table);
        let name = quarantine.name.clone();
        new.quarantines.insert(name, Arc::clone(quarantine));
        self.insert_table(Arc::new(new));
        self.show_quarantine(&table, quarantine)?;
        effects.rows.push(Row::PutQuarantine {
            table: id,
            quarantine: Arc::clone(quarantine),
        });
        Ok(())
    }

    pub(crate) fn drop_quarantine(
        &mut self,
        id: TableId,
        name: &str,
        effects: &mut Effects,
    ) -> Result<()> {
        let table = self.existing(id)?;
        let mut new = TableMeta::clone(&table);
        let Some(quarantine) = new.quarantines.remove(name) else {
            let name = qualified(&table.schema_name, name);
            return Err(StorageError::not_found(Object::Quarantine, name));
        };
        self.hide_quarantine(&table, &quarantine)?;
        self.insert_table(Arc::new(new));
        effects.rows.push(Row::DeleteQuarantine {
            table: id,
            name: name.to_owned(),
        });
        Ok(())
    }

    /// Makes the view of a quarantine, or writes it anew with the table's new name.
    pub(crate) fn show_quarantine(
        &mut self,
        table: &TableMeta,
        quarantine: &QuarantineMeta,
    ) -> Result<()> {
        if let Some(view) = quarantine.view_of(table) {
            let views = &mut self.contents_mut(&table.schema_name)?.views;
            views.insert(view.name.clone(), Arc::new(view));
        }
        Ok(())
    }

    /// Removes the view of a quarantine.
    pub(crate) fn hide_quarantine(
        &mut self,
        table: &TableMeta,
        quarantine: &QuarantineMeta,
    ) -> Result<()> {
        if let Some(view) = &quarantine.view {
            self.contents_mut(&table.schema_name)?.views.remove(view);
        }
        Ok(())
    }
}
