//! The schema `sys`: its tables and views.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::Result;

use crate::scan::{SysTable, read_only};
use crate::store::Store;
use crate::tables::Table;

/// The schema `sys`.
#[derive(Debug)]
pub(crate) struct SysSchema {
    store: Arc<Store>,
}

impl SysSchema {
    pub(crate) fn new(store: Arc<Store>) -> SysSchema {
        SysSchema { store }
    }
}

#[async_trait]
impl SchemaProvider for SysSchema {
    fn table_names(&self) -> Vec<String> {
        Table::ALL
            .into_iter()
            .map(|table| table.name().to_owned())
            .collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        Ok(Table::named(name).map(|table| {
            Arc::new(SysTable::new(Arc::clone(&self.store), table)) as Arc<dyn TableProvider>
        }))
    }

    fn register_table(
        &self,
        name: String,
        _table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        read_only(&name)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        read_only(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        Table::named(name).is_some()
    }
}
