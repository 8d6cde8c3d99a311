//! The workers of a database, and the session of a query that runs on them.

use std::any::{Any, TypeId};
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::{FunctionRegistry, SessionState, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::ScalarUDF;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use datafusion_distributed::{
    ChannelResolver, DistributedConfig, DistributedExt, SessionStateBuilderExt, WorkerResolver,
};
use http::HeaderMap;
use skewer_exec::Interruptible;
use skewer_profiling::Recorder;
use url::Url;

use crate::local::InProcess;
use crate::placement::Placement;
use crate::profile::QueryProfile;
use crate::task::{WorkerQuery, WorkerTask};

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
pub trait WorkerTransport: std::fmt::Debug + Send + Sync {
    /// The channels to `workers` for one query. They are held for as long as the query runs, and by
    /// nothing that they hold themselves.
    fn channels(
        &self,
        workers: &Workers,
        query: &QueryTasks,
    ) -> Arc<dyn ChannelResolver + Send + Sync>;

    /// What travels with each plan of a query that has these options, for the sessions of its
    /// tasks.
    ///
    /// # Errors
    /// If an option cannot be sent.
    fn headers(&self, _options: &ConfigOptions) -> Result<HeaderMap> {
        Ok(HeaderMap::new())
    }

    /// A session with the functions that tasks have, if those are not the query's own: what
    /// cannot be decoded with them stays with whoever plans.
    fn probe(&self) -> Option<SessionState> {
        None
    }
}

/// A worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerAddress {
    /// Its number: the owner of its segments, and `worker_id` in schema `sys`.
    pub number: u32,
    /// What `datafusion-distributed` knows it by.
    pub url: Url,
}

/// The workers that queries run on: by ascending number, the master of a cluster last.
#[derive(Debug, Clone)]
pub struct Workers {
    list: Arc<[WorkerAddress]>,
    shares_segments: bool,
    transport: Arc<dyn WorkerTransport>,
}

impl Workers {
    /// Workers that are reached by `transport`, each with segments of its own.
    pub fn new(list: Vec<WorkerAddress>, transport: Arc<dyn WorkerTransport>) -> Self {
        Self {
            list: list.into(),
            shares_segments: false,
            transport,
        }
    }

    /// Workers in this process.
    ///
    /// # Errors
    /// None for any number that fits a URL.
    pub fn in_process(count: usize) -> Result<Self> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let at = |number| {
            let url = Url::parse(&format!("in-process://worker/{number}"))?;
            Ok(WorkerAddress { number, url })
        };
        let list = (0..count)
            .map(at)
            .collect::<Result<_, url::ParseError>>()
            .map_err(|error| exec_datafusion_err!("{error}"))?;
        Ok(Self {
            shares_segments: true,
            ..Self::new(list, Arc::new(InProcess))
        })
    }

    /// Whether all of them can read all segments, which have no owners then: they are in one
    /// process and have one directory.
    pub fn shares_segments(&self) -> bool {
        self.shares_segments
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// The workers. Task *i* of a stage that all of them run is the *i*-th's.
    pub fn list(&self) -> &[WorkerAddress] {
        &self.list
    }

    /// Where they are, in the same order.
    pub fn urls(&self) -> Vec<Url> {
        self.list.iter().map(|worker| worker.url.clone()).collect()
    }

    /// The number of the worker at `url`.
    pub fn number_of(&self, url: &Url) -> Option<u32> {
        let found = self.list.iter().find(|worker| worker.url == *url);
        found.map(|worker| worker.number)
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
        // Otherwise operators are observed by the profiler.
        let collects = config.get_extension::<CollectMetrics>().is_some();
        config.set_distributed_metrics_collection(collects)?;
        let mut headers = QueryProfile::of_recorder(recorder).headers();
        headers.extend(self.transport.headers(config.options())?);
        config.set_distributed_passthrough_headers(headers)?;
        if let Some(probe) = self.transport.probe() {
            config.set_extension(Arc::new(Probe(probe)));
        }
        Placement::new(self.clone(), store).register(config);
        let mut state = builder.build();
        let query = QueryTasks {
            state: state.clone(),
            recorder: Arc::clone(recorder),
            prepare,
        };
        let channels = self.transport.channels(self, &query);
        let config = state.config_mut();
        config.set_distributed_worker_resolver(Known(self.urls()));
        config.set_distributed_channel_resolver(channels);
        WorkerTask::new(&WorkerQuery::new(Arc::clone(recorder)), 0).register(config);
        Ok(state)
    }
}

/// Makes the tasks of a session's query send their operators' metrics, for EXPLAIN ANALYZE.
#[derive(Debug, Clone, Copy)]
pub struct CollectMetrics;

/// Whether queries of a session are planned for several workers.
pub fn has_workers(config: &SessionConfig) -> bool {
    let options = config.options();
    options.extensions.get::<DistributedConfig>().is_some()
}

/// A session with the functions that tasks will have, to try whether a plan can be decoded there.
pub(crate) struct Probe(SessionState);

impl Probe {
    /// A context in which plans of `state` are decoded as on the workers.
    pub(crate) fn context(state: &SessionState) -> Arc<TaskContext> {
        let Some(probe) = state.config().get_extension::<Self>() else {
            return state.task_ctx();
        };
        let mut task = probe.0.clone();
        *task.config_mut() = state.config().clone();
        for function in own_functions(state, &task) {
            // Names that are there are taken away without an error.
            let _ = task.deregister_udf(&function);
        }
        task.task_ctx()
    }
}

/// Names of functions of tasks that mean another one in `session`, which has put its own in their
/// place.
fn own_functions(session: &SessionState, task: &SessionState) -> Vec<String> {
    let options = session.config().options();
    let differs = |own: &Arc<ScalarUDF>, theirs: &Arc<ScalarUDF>| {
        // Tasks have functions that can be interrupted.
        let (own, theirs) = (own.as_ref(), Interruptible::interrupted(theirs));
        // Those that go by options are made anew when options change, in tasks too.
        let same_type = type_of(own) == type_of(theirs);
        let by_options = || same_type && theirs.inner().with_updated_config(options).is_some();
        !Arc::ptr_eq(own.inner(), theirs.inner()) && own != theirs && !by_options()
    };
    let of_tasks = task.scalar_functions().iter();
    let shadowed = of_tasks.filter(|(name, theirs)| {
        let own = session.scalar_functions().get(*name);
        own.is_some_and(|own| differs(own, theirs))
    });
    shadowed.map(|(name, _)| name.clone()).collect()
}

fn type_of(function: &ScalarUDF) -> TypeId {
    let function: &dyn Any = function.inner().as_ref();
    function.type_id()
}

/// Workers that do not change while the query runs.
struct Known(Vec<Url>);

impl WorkerResolver for Known {
    fn get_urls(&self) -> Result<Vec<Url>> {
        Ok(self.0.clone())
    }
}
