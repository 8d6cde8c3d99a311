//! The workers of a database, and the session of a query that runs on them.

use std::sync::Arc;

use datafusion::common::{Result, exec_datafusion_err};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use datafusion_distributed::{
    ChannelResolver, DistributedConfig, DistributedExt, SessionStateBuilderExt, WorkerResolver,
};
use skewer_profiling::Recorder;
use url::Url;

use crate::local::InProcess;
use crate::placement::Placement;
use crate::profile::QueryProfile;
use crate::task::{TaskPlace, WorkerQuery};

/// What is done with the plan of a task before the task runs.
pub type PrepareTask =
    Arc<dyn Fn(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> + Send + Sync>;

/// What the tasks of one query have in common.
#[derive(Clone)]
pub struct QueryTasks {
    /// The query's session: its functions, options and memory.
    pub state: SessionState,
    /// The recorder of the worker that plans the query; the others have
    /// [their own](Recorder::of_worker) from it.
    pub recorder: Arc<Recorder>,
    /// What is done with the plan of each task.
    pub prepare: PrepareTask,
}

/// How workers are reached.
pub trait Reach: std::fmt::Debug + Send + Sync {
    /// The ways to `workers` for one query. They are held for as long as the query runs, and by
    /// nothing that they hold themselves.
    fn channels(
        &self,
        workers: &Workers,
        query: &QueryTasks,
    ) -> Arc<dyn ChannelResolver + Send + Sync>;
}

/// The workers that queries run on. A worker's number is its place in the list, and
/// `worker_id` in schema `sys`.
#[derive(Debug, Clone)]
pub struct Workers {
    urls: Arc<[Url]>,
    reach: Arc<dyn Reach>,
}

impl Workers {
    /// Workers at `urls`, in the order of their numbers, which are reached by `reach`.
    pub fn new(urls: Vec<Url>, reach: Arc<dyn Reach>) -> Self {
        Self {
            urls: urls.into(),
            reach,
        }
    }

    /// Workers in this process.
    ///
    /// # Errors
    /// None for any number that fits a URL.
    pub fn in_process(count: usize) -> Result<Self> {
        let urls = (0..count)
            .map(|number| Url::parse(&format!("in-process://worker/{number}")))
            .collect::<std::result::Result<_, _>>()
            .map_err(|error| exec_datafusion_err!("{error}"))?;
        Ok(Self::new(urls, Arc::new(InProcess)))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.urls.len()
    }

    /// Where they are, by number.
    pub fn urls(&self) -> &[Url] {
        &self.urls
    }

    /// The number of the worker at `url`.
    pub fn number_of(&self, url: &Url) -> Option<usize> {
        self.urls.iter().position(|known| known == url)
    }

    /// A session for one query, which can be planned on the workers and run on them: `state` with
    /// what that needs. Segments are the files of `store`. Tasks report to `recorder`, each to
    /// that of its worker, and run what `prepare` makes of their plans.
    ///
    /// # Errors
    /// Those of setting options.
    pub fn query(
        &self,
        state: SessionState,
        store: ObjectStoreUrl,
        recorder: &Arc<Recorder>,
        prepare: PrepareTask,
    ) -> Result<SessionState> {
        let mut builder = SessionStateBuilder::new_from_existing(state).with_distributed_planner();
        let config = builder.config().get_or_insert_default();
        // Records of all branches of a UNION are where their segments are.
        config.set_distributed_children_isolator_unions(false)?;
        // Operators are observed by the profiler.
        config.set_distributed_metrics_collection(false)?;
        config.set_distributed_passthrough_headers(QueryProfile::of(recorder).headers())?;
        Placement::new(self.clone(), store).register(config);
        let mut state = builder.build();
        let query = QueryTasks {
            state: state.clone(),
            recorder: Arc::clone(recorder),
            prepare,
        };
        let channels = self.reach.channels(self, &query);
        let config = state.config_mut();
        config.set_distributed_worker_resolver(Known(Arc::clone(&self.urls)));
        config.set_distributed_channel_resolver(channels);
        TaskPlace::new(&WorkerQuery::new(Arc::clone(recorder)), 0).register(config);
        Ok(state)
    }
}

/// Whether queries of a session are planned for several workers.
pub fn has_workers(config: &SessionConfig) -> bool {
    let options = config.options();
    options.extensions.get::<DistributedConfig>().is_some()
}

/// Workers that do not change while the query runs.
struct Known(Arc<[Url]>);

impl WorkerResolver for Known {
    fn get_urls(&self) -> Result<Vec<Url>> {
        Ok(self.0.to_vec())
    }
}
