//! What a statement read.

use std::sync::Arc;

use skewer_diagnosis::TableQuarantine;
use skewer_files::FileTable;
use skewer_storage::TableMeta;

use super::StatementCatalog;

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

impl StatementCatalog {
    pub(crate) fn touched(&self) -> Touched {
        self.touched.lock().clone()
    }

    pub(crate) fn touch_file(&self, file: FileTable) {
        self.touched.lock().files.push(file);
    }

    /// Quarantines leave rows out of the statement.
    pub(in crate::catalog) fn apply(&self, quarantines: impl Iterator<Item = TableQuarantine>) {
        let applied = &mut self.touched.lock().quarantines;
        for quarantine in quarantines {
            if !applied.contains(&quarantine) {
                applied.push(quarantine);
            }
        }
    }
}
