//! Threads, memory and temporary files that statements and tasks run with.

use std::path::Path;
use std::sync::Arc;

use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use skewer_compat::operators::memory_pool::{MemoryBudget, RaisedBy};
use tokio::runtime::Runtime;

use crate::error::Error;
use crate::spill_directory::SpillDirectory;

/// How the threads are called.
pub const THREAD: &str = "skewer-worker";

/// How many threads there are unless said otherwise: as many as the machine has.
pub fn threads(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(|| {
        std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
    })
}

/// After so many polls of tasks a thread looks whether something has arrived. A slice of a join may
/// take 150 ms in a poll: at tokio's default of 61, threads that are all busy would look every nine
/// seconds, and connections would end since nobody answers, and nobody would hear who cancels a query.
const EVENT_INTERVAL: u32 = 1;

/// Threads beyond twice as many as compute: a poll of a task may take seconds, as a function of one row may,
/// and keeps its thread for as long.
const SPARE: usize = 8;

/// Threads that run statements and tasks: more than may run queries for long
/// ([`skewer_compat::operators::scheduling`]), so that some are left for statements that begin and for whoever cancels.
///
/// # Errors
/// [`Error::Threads`] if the operating system gives none.
pub fn runtime(asked: Option<usize>) -> Result<Runtime, Error> {
    skewer_compat::operators::scheduling::inherit_queries();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2 * threads(asked) + SPARE)
        .thread_name(THREAD)
        .thread_stack_size(skewer_sql::deep::STACK)
        .event_interval(EVENT_INTERVAL)
        .enable_all()
        .build()
        .map_err(Error::Threads)
}

/// What operators run with: memory with a limit, and a directory to spill to.
#[derive(Debug)]
pub struct Environment {
    /// Has the memory pool and the directory.
    pub runtime_env: Arc<RuntimeEnv>,
    /// The memory pool.
    pub memory: Arc<MemoryBudget>,
    /// Kept for as long as operators may spill. `None` where the system's directory for temporary files
    /// cannot be written: then whoever spills says so.
    pub spill_directory: Option<SpillDirectory>,
}

/// What operators run with that may hold `memory_limit` bytes together, unlimited without; errors say that
/// the limit is `raised_by` this. They spill to `temp_directory`, or to the system's directory for temporary
/// files.
///
/// # Errors
/// [`Error::File`] if `temp_directory` cannot be written.
pub fn build(
    memory_limit: Option<usize>,
    raised_by: RaisedBy,
    temp_directory: Option<&Path>,
) -> Result<Environment, Error> {
    let memory = Arc::new(MemoryBudget::new(memory_limit, raised_by));
    let mut environment = RuntimeEnvBuilder::new()
        // Directories are listed anew by each statement: files come and go.
        .with_object_list_cache_limit(0)
        .with_memory_pool(Arc::clone(&memory) as _);
    let spill_directory = match temp_directory {
        Some(directory) => {
            // Now rather than when the first query spills.
            let created = std::fs::create_dir_all(directory);
            let created = created.and_then(|()| SpillDirectory::create_in(directory));
            Some(created.map_err(|error| {
                let path = directory.display();
                let file = format!("the directory for temporary files, {path}");
                Error::File { file, error }
            })?)
        }
        None => SpillDirectory::create_in(&std::env::temp_dir()).ok(),
    };
    if let Some(directory) = &spill_directory {
        environment = environment.with_temp_file_path(directory.path());
    }
    Ok(Environment {
        runtime_env: environment.build_arc()?,
        memory,
        spill_directory,
    })
}
