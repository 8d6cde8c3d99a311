//! Plans the SQL of views: in a session of its own, in which only schema `sys` exists, so that
//! neither the tables nor the settings of a user's session change what a view means.

use std::sync::{Arc, LazyLock};

use datafusion::catalog::CatalogProviderList;
use datafusion::catalog::{
    CatalogProvider, MemoryCatalogProvider, MemoryCatalogProviderList, Session,
};
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::context::{SessionContext, SessionState};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;

use crate::schema::SysSchema;
use crate::store::Store;

/// Name of the only catalog.
const CATALOG: &str = "skewer";

/// DataFusion's functions and rules, set up once.
static BASE: LazyLock<SessionState> =
    LazyLock::new(|| SessionStateBuilder::new().with_default_features().build());

/// Plans the SQL of views.
pub(crate) struct Planner {
    store: Arc<Store>,
    state: SessionState,
}

impl Planner {
    /// A planner for plans that need not run.
    pub(crate) fn new(store: &Arc<Store>) -> Planner {
        Planner::with(
            store,
            SessionStateBuilder::new_from_existing(BASE.clone()),
            SessionConfig::new(),
        )
    }

    /// A planner for plans that run with the resources of a session: its partitions, memory and
    /// temporary files.
    pub(crate) fn of_session(store: &Arc<Store>, session: &dyn Session) -> Planner {
        let config = SessionConfig::new()
            .with_target_partitions(session.config().target_partitions())
            .with_batch_size(session.config().batch_size());
        let builder = SessionStateBuilder::new_from_existing(BASE.clone())
            .with_runtime_env(Arc::clone(session.runtime_env()));
        Planner::with(store, builder, config)
    }

    fn with(store: &Arc<Store>, builder: SessionStateBuilder, config: SessionConfig) -> Planner {
        let catalogs = MemoryCatalogProviderList::new();
        let catalog = MemoryCatalogProvider::new();
        let schema = Arc::new(SysSchema::new(Arc::clone(store)));
        if let Err(error) = catalog.register_schema("sys", schema) {
            store.warn(error.to_string());
        }
        catalogs.register_catalog(CATALOG.to_owned(), Arc::new(catalog));
        let mut config = config;
        // A plan for a view becomes a part of a larger plan, whose optimizer may still swap the
        // sides of its joins; that is an error once they have dynamic filters. Scans of schema
        // `sys` have no use for them anyway.
        let optimizer = &mut config.options_mut().optimizer;
        optimizer.enable_dynamic_filter_pushdown = false;
        optimizer.enable_join_dynamic_filter_pushdown = false;
        optimizer.enable_topk_dynamic_filter_pushdown = false;
        optimizer.enable_aggregate_dynamic_filter_pushdown = false;
        let config = config
            .with_create_default_catalog_and_schema(false)
            .with_default_catalog_and_schema(CATALOG, "sys");
        Planner {
            store: Arc::clone(store),
            state: builder
                .with_config(config)
                .with_catalog_list(Arc::new(catalogs))
                .build(),
        }
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Plans SQL; it is neither analysed nor optimised.
    pub(crate) async fn logical(&self, sql: &str) -> Result<LogicalPlan> {
        self.state.create_logical_plan(sql).await
    }

    /// Optimises a plan and makes it runnable.
    pub(crate) async fn physical(&self, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
        self.state.create_physical_plan(plan).await
    }

    /// What a physical plan runs in.
    pub(crate) fn task_context(&self) -> Arc<TaskContext> {
        SessionContext::new_with_state(self.state.clone()).task_ctx()
    }
}
