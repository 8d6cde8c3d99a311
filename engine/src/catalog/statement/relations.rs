//! What the names of a statement stand for, as DataFusion reads it.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use skewer_compat::session_zone::zone_of;
use skewer_files::FileTable;
use skewer_sql::Statement;
use skewer_storage::{QuarantineMeta, TableMeta};

use super::StatementCatalog;
use crate::catalog::names::{MAIN, Name, split_row_ids};
use crate::catalog::native_table::NativeTable;
use crate::error::Error;

/// What a name in a user's schema stands for.
pub(in crate::catalog) enum Relation {
    Table(Arc<TableMeta>),
    /// The view that shows the rows of a quarantine.
    Quarantined(Arc<TableMeta>, Arc<QuarantineMeta>),
    View(String),
    External(FileTable),
}

impl StatementCatalog {
    pub(in crate::catalog) fn relation(&self, name: &Name) -> Result<Option<Relation>, Error> {
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

    pub(in crate::catalog) async fn provider(
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
    pub(in crate::catalog) fn registered(&self, name: &Name) -> Option<&Arc<dyn TableProvider>> {
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
}
