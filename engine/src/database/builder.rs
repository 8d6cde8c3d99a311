//! The options of a database, and how it is opened.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use skewer_cluster::Workers;
use skewer_cluster::write::SegmentDestination;
use skewer_compat::operators::memory_pool::RaisedBy;
use skewer_compat::operators::scheduling::Scheduler;
use skewer_exec::column_cache::ColumnCache;
use skewer_node::Functions;
use skewer_node::environment::{self, Environment};
use skewer_profiling::{Retention, SysTables};
use skewer_storage::{Storage, StorageOptions};

use super::{Database, DatabaseInner, Distribution, TableLocks};
use crate::admission::{AdmissionQueue, DEFAULT_LIMIT};
use crate::cluster::{ClusterOptions, Master};
use crate::compaction;
use crate::detectors::DetectorViews;
use crate::error::Error;
use crate::running_table::{report_cache, report_running_operators};
use crate::statements::export_profile::expect_no_export;
use crate::streams::{InUse, Streams};

/// Options of a database that is about to be opened.
///
/// ```
/// # fn main() -> Result<(), skewer::Error> {
/// let db = skewer::Database::builder()
///     .worker_threads(2)
///     .memory_limit(512 << 20)
///     .temp_directory(std::env::temp_dir())
///     .build()?; // without a path: in memory
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct DatabaseBuilder {
    path: Option<PathBuf>,
    workers: Option<usize>,
    cluster: Option<ClusterOptions>,
    worker_threads: Option<usize>,
    memory_limit: Option<usize>,
    cache_size: Option<usize>,
    temp_directory: Option<PathBuf>,
    running_queries: Option<usize>,
    functions: Functions,
    retention: Retention,
    storage: StorageOptions,
}

impl DatabaseBuilder {
    /// The directory to open, or to create; without it the database is in memory.
    pub fn path(mut self, path: impl Into<PathBuf>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// How many threads run statements, and into how many partitions a query is divided; as many
    /// as the machine has by default. `SET datafusion.execution.target_partitions` changes the
    /// latter for a session.
    pub fn worker_threads(mut self, threads: usize) -> Self {
        self.worker_threads = Some(threads.max(1));
        self
    }

    /// How many workers queries are distributed over; 1 by default, which is no distribution.
    ///
    /// The workers are in this process and share its threads and memory. Each scans its own
    /// segments, and rows go from one to another without being copied. Queries run as they would
    /// on workers of their own, and schema `sys` tells the workers apart. Within one process that
    /// makes nothing faster: it is there to develop and test with.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
    /// let session = skewer::Database::builder().workers(3).build()?.session();
    /// session.sql("CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 9)").await?;
    /// let batches = session.sql("SELECT sum(a) FROM t").await?.collect().await?;
    /// assert_eq!(batches[0].num_rows(), 1);
    /// # Ok(()) }
    /// ```
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Makes the database the master of a cluster, whose workers run queries and have segments of
    /// their own. `skewer cluster init` has made the cluster.
    pub fn cluster(mut self, cluster: ClusterOptions) -> Self {
        self.cluster = Some(cluster);
        self
    }

    /// Bytes that the operators of all queries may hold together. Sorts, aggregations and
    /// sort-merge joins spill to the temp directory before they exceed it; a query that cannot is
    /// refused more with [`Error::OutOfMemory`]. Unlimited by default. `SET memory_limit` changes
    /// it.
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Bytes of decoded columns that are kept in memory for the queries that follow; 0 keeps none. A quarter of
    /// the memory limit by default, or of the machine's memory without a limit. Operators that need the memory get
    /// it. `SET cache_size` changes it. Queries on workers do not use it.
    pub fn cache_size(mut self, bytes: usize) -> Self {
        self.cache_size = Some(bytes);
        self
    }

    /// Where operators spill to, created if it is not there; the system's directory for temporary
    /// files by default.
    pub fn temp_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.temp_directory = Some(directory.into());
        self
    }

    /// How many statements run queries at once, 100 by default: the others wait, in
    /// the order in which they came. A query has its turn until its stream has been read or
    /// dropped. Those that read only schema `sys` do not wait. `SET max_running_queries` changes
    /// it.
    pub fn max_running_queries(mut self, queries: usize) -> Self {
        self.running_queries = Some(queries.max(1));
        self
    }

    /// Functions that every session has. The workers of a cluster need the same ones
    /// ([`WorkerOptions::functions`](crate::WorkerOptions::functions)): queries that call them run
    /// there too. What a session registers for itself runs in this process alone.
    pub fn functions(mut self, functions: Functions) -> Self {
        self.functions = functions;
        self
    }

    /// For how long schema `sys` keeps what queries recorded: 1 GiB and 7 days by default.
    /// `SET profile.retention_bytes` and `profile.retention_age` change it.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// How segments are kept: their size, and for tests the disk, which can be one that fails.
    #[doc(hidden)]
    pub fn storage_options(mut self, options: StorageOptions) -> Self {
        self.storage = options;
        self
    }

    /// Refuses options that contradict each other.
    fn check(&self) -> Result<(), Error> {
        let contradiction = if self.cluster.is_some() && self.workers.is_some() {
            "workers and cluster: a cluster's workers are processes that join its master"
        } else if self.cluster.is_some() && self.path.is_none() {
            "cluster without path: a master keeps its catalog in a directory"
        } else if self.workers == Some(0) {
            "workers(0): a query needs a worker; 1 means no distribution"
        } else {
            return Ok(());
        };
        Err(Error::Invalid(format!(
            "the options of the database contradict each other: {contradiction}"
        )))
    }

    /// Opens the database.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process has it open, [`Error::Corrupt`] if its catalog is
    /// damaged, [`Error::File`] if the directory is an exported profile, [`Error::Io`] if it cannot be
    /// read or written, [`Error::Cluster`] if it cannot be a master, [`Error::Invalid`] if options
    /// contradict each other.
    pub fn build(self) -> Result<Database, Error> {
        self.check()?;
        let threads = environment::threads(self.worker_threads);
        let storage = match &self.path {
            Some(path) => {
                if !Storage::exists(path) {
                    expect_no_export(path)?;
                }
                Storage::open(path, self.storage)?
            }
            None => Storage::in_memory()?,
        };
        let sys_directory = self.path.as_ref().map(|path| path.join("sys"));
        let sys = SysTables::open(sys_directory.as_deref(), self.retention);

        let Environment {
            runtime_env,
            memory,
            spill_directory,
        } = environment::build(
            self.memory_limit,
            RaisedBy::Setting,
            self.temp_directory.as_deref(),
        )?;
        runtime_env
            .register_object_store(storage.object_store_url().as_ref(), storage.object_store());
        skewer_files::register(&runtime_env)?;

        let runtime = environment::runtime(Some(threads))?;
        let scheduler = Scheduler::new(threads);
        let place = SegmentDestination::here(storage.clone());
        let distribution = match (self.cluster, self.workers) {
            (Some(cluster), _) => {
                let _within = runtime.enter();
                let master = skewer_node::Master::start(
                    cluster,
                    &storage,
                    &runtime_env,
                    &self.functions,
                    &place,
                    &sys,
                    &scheduler,
                )?;
                sys.set_remote(master.remote_sys());
                Distribution::Cluster(Master(master))
            }
            (None, Some(workers)) if workers > 1 => {
                Distribution::InProcess(Workers::in_process(workers)?)
            }
            (None, _) => Distribution::None,
        };
        let limit = Some(self.running_queries.unwrap_or(DEFAULT_LIMIT));
        let admission = AdmissionQueue::new(limit);
        report_running_operators(&sys, &admission);
        let cache = ColumnCache::new(&memory, self.cache_size);
        report_cache(&sys, &cache);
        let writers = TableLocks::default();
        let (grown, tables) = compaction::grown();
        let merging = (storage.clone(), writers.clone());
        let streams = Arc::new(Streams::default());
        let database = Database {
            in_use: Some(Arc::new(InUse(Arc::clone(&streams)))),
            inner: Arc::new(DatabaseInner {
                storage,
                sys,
                opened_temp_limit: runtime_env.disk_manager.max_temp_directory_size(),
                runtime_env,
                _spill_directory: spill_directory,
                memory,
                opened_memory_limit: self.memory_limit,
                cache,
                opened_cache_size: self.cache_size,
                writers,
                retention: Mutex::new(self.retention),
                opened_retention: self.retention,
                threads,
                scheduler,
                functions: self.functions,
                admission,
                opened_limit: limit,
                distribution,
                totals: Arc::default(),
                followers: Arc::default(),
                budgets: Arc::default(),
                remedies: Arc::default(),
                known_rows: Arc::default(),
                plans: Arc::default(),
                snapshots: Arc::default(),
                place,
                streams,
                grown,
                running: Arc::default(),
                handle: runtime.handle().clone(),
                runtime: Some(runtime),
            }),
        };
        let detectors = DetectorViews::new(&database.inner);
        database.inner.sys.set_detectors(detectors);
        let (storage, writers) = merging;
        let weak = Arc::downgrade(&database.inner);
        let merge = compaction::run(weak, storage, writers, tables);
        database.inner.handle.spawn(merge);
        database.inner.streams.reconcile(&database.inner);
        Ok(database)
    }
}
