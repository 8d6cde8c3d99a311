//! Threads, memory and temporary files of the databases and workers of the process.

use std::path::{Path, PathBuf};

use clap::Args;
use skewer::{ClusterOptions, Database, Error, WorkerOptions};
use skewer::{parse_cache_size, parse_memory_limit};

/// What a database may use.
#[derive(Debug, Clone, Default, Args)]
pub struct Resources {
    /// What queries may hold in memory together, as 512MiB or 4GB; beyond it they spill to disk
    /// or fail [default: unlimited]
    #[arg(long, value_name = "SIZE", value_parser = MemoryLimit::parse)]
    memory_limit: Option<MemoryLimit>,

    /// Decoded columns that are kept in memory for later queries, as 512MiB or 4GB, or 0 for none
    /// [default: a quarter of the memory limit, or of the machine's memory]. Workers keep none
    #[arg(long, value_name = "SIZE", value_parser = CacheSize::parse)]
    cache_size: Option<CacheSize>,

    /// Threads that run queries [default: as many as the machine has]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,

    /// Directory of temporary files, for what the memory limit leaves no room for [default: the
    /// system's]
    #[arg(long, value_name = "DIR")]
    temp_directory: Option<PathBuf>,
}

/// Bytes; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MemoryLimit(Option<usize>);

impl MemoryLimit {
    fn parse(text: &str) -> Result<MemoryLimit, Error> {
        parse_memory_limit(text).map(MemoryLimit)
    }
}

/// Bytes; `None` is the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CacheSize(Option<usize>);

impl CacheSize {
    fn parse(text: &str) -> Result<CacheSize, Error> {
        parse_cache_size(text).map(CacheSize)
    }
}

impl Resources {
    /// Opens the database at `path`, or one in memory; as the master of a cluster, if there is one.
    pub fn open(
        &self,
        path: Option<&Path>,
        cluster: Option<ClusterOptions>,
    ) -> Result<Database, Error> {
        let mut builder = Database::builder();
        if let Some(cluster) = cluster {
            builder = builder.cluster(cluster);
        }
        if let Some(path) = path {
            builder = builder.path(path);
        }
        if let Some(MemoryLimit(Some(bytes))) = self.memory_limit {
            builder = builder.memory_limit(bytes);
        }
        if let Some(CacheSize(Some(bytes))) = self.cache_size {
            builder = builder.cache_size(bytes);
        }
        if let Some(threads) = self.threads {
            builder = builder.worker_threads(usize::from(threads));
        }
        if let Some(directory) = &self.temp_directory {
            builder = builder.temp_directory(directory);
        }
        builder.build()
    }

    /// Limits a worker.
    pub fn limit(&self, worker: &mut WorkerOptions) {
        worker.memory_limit = self.memory_limit.and_then(|MemoryLimit(limit)| limit);
        worker.threads = self.threads.map(usize::from);
        worker.temp_directory.clone_from(&self.temp_directory);
    }
}
