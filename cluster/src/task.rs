//! What a task knows of itself.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use datafusion_distributed::NetworkBoundaryExt;
use parking_lot::Mutex;
use skewer_exec::NumberedExec;
use skewer_profiling::Recorder;

/// A task's place in its query, an extension of its session.
#[derive(Debug)]
pub struct TaskPlace {
    /// The recorder of the worker that runs the task.
    pub recorder: Arc<Recorder>,
    /// The number of the task in its stage.
    pub task: usize,
    /// The exchange through which each stage is read, by the stage's number.
    exchanges: Mutex<HashMap<usize, i64>>,
}

impl TaskPlace {
    /// The place of task number `task`, which reports to `recorder`.
    pub fn new(recorder: Arc<Recorder>, task: usize) -> Self {
        Self {
            recorder,
            task,
            exchanges: Mutex::default(),
        }
    }

    /// The place of the task whose session this is.
    pub fn of(config: &SessionConfig) -> Option<Arc<Self>> {
        config.get_extension::<Self>()
    }

    /// Remembers `numbered` if it is an exchange through which the task reads another stage.
    pub fn learn(&self, numbered: &NumberedExec) {
        let observed = numbered.observed();
        if let Some(boundary) = observed.inner.as_network_boundary() {
            let stage = boundary.input_stage().num();
            self.exchanges.lock().insert(stage, observed.operator_id);
        }
    }

    /// Remembers all exchanges of a plan.
    pub fn learn_all(&self, plan: &Arc<dyn ExecutionPlan>) {
        if let Some(numbered) = plan.downcast_ref::<NumberedExec>() {
            self.learn(numbered);
        }
        for child in plan.children() {
            self.learn_all(child);
        }
    }

    /// The number of the exchange through which a stage is read.
    pub fn exchange_of(&self, stage: usize) -> Option<i64> {
        self.exchanges.lock().get(&stage).copied()
    }
}
