//! The schema `sys`: its tables and views.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::Result;
use datafusion::datasource::ViewTable;
use parking_lot::Mutex;

use crate::definition::SysRow;
use crate::isolation::expanded::{ExpandedTable, Expansion};
use crate::kept_view::KeptView;
use crate::planner::Planner;
use crate::present::{PresentProvider, PresentTable};
use crate::store::Store;
use crate::sys_table::{SysTable, read_only};
use crate::tables::Table;
use crate::user_detectors::{UserDetection, UserDetectionsProvider};
use crate::views::{VIEWS, View};

/// The schema `sys`.
#[derive(Debug, Clone)]
pub(crate) struct SysSchema {
    store: Arc<Store>,
    /// The views that were planned, by their names.
    views: Arc<Mutex<HashMap<&'static str, Arc<dyn TableProvider>>>>,
}

impl SysSchema {
    pub(crate) fn new(store: Arc<Store>) -> SysSchema {
        SysSchema {
            store,
            views: Arc::default(),
        }
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// A view, which is planned once.
    async fn view(&self, view: View) -> Result<Arc<dyn TableProvider>> {
        if let Some(planned) = self.views.lock().get(view.name) {
            return Ok(Arc::clone(planned));
        }
        let planner = Planner::within(self.clone());
        // A view may use views: their plans hold more plans, each on the heap.
        let plan = Box::pin(planner.logical(view.sql)).await?;
        let planned: Arc<dyn TableProvider> = if view.is_kept() {
            Arc::new(KeptView::new(Arc::clone(&self.store), view, plan))
        } else {
            Arc::new(ViewTable::new(plan, Some(view.sql.to_owned())))
        };
        let mut views = self.views.lock();
        Ok(Arc::clone(views.entry(view.name).or_insert(planned)))
    }
}

#[async_trait]
impl SchemaProvider for SysSchema {
    fn table_names(&self) -> Vec<String> {
        let tables = Table::ALL.into_iter().map(Table::name);
        let expansions = Expansion::VIEWS.iter().map(Expansion::name);
        let views = VIEWS.iter().map(|view| view.name);
        let present = PresentTable::ALL.map(|table| table.definition().name);
        let users = [UserDetection::TABLE.name];
        let names = tables
            .chain(present)
            .chain(users)
            .chain(expansions)
            .chain(views);
        names.map(str::to_owned).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let store = Arc::clone(&self.store);
        if let Some(table) = Table::by_name(name) {
            return Ok(Some(Arc::new(SysTable::new(store, table))));
        }
        if let Some(table) = PresentTable::by_name(name) {
            return Ok(Some(Arc::new(PresentProvider::new(store, table))));
        }
        if name == UserDetection::TABLE.name {
            return Ok(Some(Arc::new(UserDetectionsProvider::new(store))));
        }
        if let Some(view) = Expansion::VIEWS
            .into_iter()
            .find(|view| view.name() == name)
        {
            return Ok(Some(Arc::new(ExpandedTable::new(store, view))));
        }
        if let Some(view) = View::by_name(name) {
            return Ok(Some(self.view(view).await?));
        }
        Ok(None)
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
        self.table_names().iter().any(|known| known == name)
    }
}
