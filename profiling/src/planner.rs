//! Plans the SQL of views: in a session of its own, in which only schema `sys` exists, so that
//! neither the tables nor the settings of a user's session change what a view means.

use std::sync::{Arc, LazyLock};

use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProvider, MemoryCatalogProviderList,
    MemorySchemaProvider, SchemaProvider, Session, TableProvider,
};
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::context::{SessionContext, SessionState};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;

use crate::sampling::is_sampled;
use crate::schema::SysSchema;
use crate::store::Store;
use crate::user_detectors::WithinDetector;

/// Name of the only catalog.
const CATALOG: &str = "skewer";

/// Name of the schema of steps: what is named without a schema.
const STEPS: &str = "step";

/// DataFusion's functions and rules, and `is_sampled`, set up once.
static BASE: LazyLock<SessionState> = LazyLock::new(|| {
    let mut builder = SessionStateBuilder::new().with_default_features();
    let functions = builder.scalar_functions().get_or_insert_default();
    functions.push(Arc::new(is_sampled()));
    builder.build()
});

/// Plans the SQL of views.
pub(crate) struct Planner {
    schema: SysSchema,
    state: SessionState,
    steps: Arc<MemorySchemaProvider>,
}

impl Planner {
    /// A planner for plans that need not run, or need little.
    pub(crate) fn new(store: &Arc<Store>) -> Planner {
        Planner::within(SysSchema::new(Arc::clone(store)))
    }

    /// The same, which plans each view of a schema once.
    pub(crate) fn within(schema: SysSchema) -> Planner {
        let builder = SessionStateBuilder::new_from_existing(BASE.clone());
        Planner::with(schema, builder.with_config(config(SessionConfig::new())))
    }

    /// A planner for plans that run with the resources of a session: its partitions, memory and
    /// temporary files.
    pub(crate) fn of_session(store: &Arc<Store>, session: &dyn Session) -> Planner {
        let builder = SessionStateBuilder::new_from_existing(BASE.clone())
            .with_runtime_env(Arc::clone(session.runtime_env()))
            .with_config(config_of_session(session));
        Planner::with(SysSchema::new(Arc::clone(store)), builder)
    }

    /// A state for plans without names that run with the resources of a session, and are planned with its rules,
    /// but for one: `ProjectionPushdown` takes a fifth of the time of planning, and spares rows that are few.
    pub(crate) fn state_of_session(store: &Arc<Store>, session: &dyn Session) -> SessionState {
        let Some(state) = session.as_any().downcast_ref::<SessionState>() else {
            return Planner::of_session(store, session).state;
        };
        let rules = state.physical_optimizers().iter();
        let rules = rules.filter(|rule| rule.name() != "ProjectionPushdown");
        SessionStateBuilder::new_from_existing(state.clone())
            .with_config(config_of_session(session))
            .with_physical_optimizer_rules(rules.cloned().collect())
            .build()
    }

    /// The same planner with a place of its own for the steps of one query.
    pub(crate) fn with_steps(&self) -> Planner {
        let builder = SessionStateBuilder::new_from_existing(self.state.clone());
        Planner::with(self.schema.clone(), builder)
    }

    fn with(schema: SysSchema, builder: SessionStateBuilder) -> Planner {
        let steps = Arc::new(MemorySchemaProvider::new());
        let store = schema.store();
        let sys: Arc<dyn SchemaProvider> = Arc::new(schema.clone());
        let step_schema: Arc<dyn SchemaProvider> = Arc::clone(&steps) as _;
        let catalog = MemoryCatalogProvider::new();
        for (name, schema) in [("sys", sys), (STEPS, step_schema)] {
            if let Err(error) = catalog.register_schema(name, schema) {
                store.warn(error.to_string());
            }
        }
        let catalogs = MemoryCatalogProviderList::new();
        catalogs.register_catalog(CATALOG.to_owned(), Arc::new(catalog));
        Planner {
            schema,
            state: builder.with_catalog_list(Arc::new(catalogs)).build(),
            steps,
        }
    }

    /// Plans what needs no names any more, and nothing of this planner's steps.
    pub(crate) fn state(&self) -> &SessionState {
        &self.state
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        self.schema.store()
    }

    /// Gives a name to a step, for SQL that is planned from now on.
    pub(crate) fn add_step(&self, name: &str, step: Arc<dyn TableProvider>) -> Result<()> {
        self.steps.register_table(name.to_owned(), step)?;
        Ok(())
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

/// The settings of a session that concern its resources.
fn config_of_session(session: &dyn Session) -> SessionConfig {
    let given = session.config();
    let mut of_session = config(
        SessionConfig::new()
            .with_target_partitions(given.target_partitions())
            .with_batch_size(given.batch_size()),
    );
    if let Some(within) = given.get_extension::<WithinDetector>() {
        of_session.set_extension(within);
    }
    of_session
}

fn config(config: SessionConfig) -> SessionConfig {
    let mut config = config
        .with_create_default_catalog_and_schema(false)
        .with_default_catalog_and_schema(CATALOG, STEPS);
    // A plan for a view becomes a part of a larger plan, whose optimizer may still swap the
    // sides of its joins; that is an error once they have dynamic filters. Scans of schema
    // `sys` have no use for them anyway.
    let optimizer = &mut config.options_mut().optimizer;
    optimizer.enable_dynamic_filter_pushdown = false;
    optimizer.enable_join_dynamic_filter_pushdown = false;
    optimizer.enable_topk_dynamic_filter_pushdown = false;
    optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    config
}
