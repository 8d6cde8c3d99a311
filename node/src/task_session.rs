//! The session of tasks: the functions that every node has.

use std::sync::Arc;

use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SessionState, SessionStateBuilder};
use skewer_compat::functions::guarded::GuardedFunction;

use crate::functions::Functions;

/// A session with the functions that tasks have, on every node: SQL's and `functions`. They end when their query
/// does, which the planner of the query sees to elsewhere.
pub fn task_session(environment: &Arc<RuntimeEnv>, functions: &Functions) -> SessionState {
    let mut builder = SessionStateBuilder::new()
        .with_runtime_env(Arc::clone(environment))
        .with_default_features();
    let all = builder.scalar_functions().get_or_insert_default();
    let sized = GuardedFunction::all(all.iter());
    all.extend(sized);
    all.extend(functions.iter().map(Arc::clone));
    for function in all {
        if let Some(interruptible) = skewer_optimizer::interruptible(function) {
            *function = Arc::new(interruptible);
        }
    }
    builder.build()
}
