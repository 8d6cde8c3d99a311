//! The store behind schema `sys`, as the engine uses it.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::error::ArrowError;
use datafusion::catalog::SchemaProvider;
use datafusion::common::{Result, plan_err};
use datafusion::prelude::SessionContext;

use crate::functions;
use crate::imported;
use crate::isolation::expanded::Expansion;
use crate::part_pages;
use crate::planner::Planner;
use crate::present::{CacheEntry, Link, Source};
use crate::query_log::QueryLog;
use crate::recorder::Recorder;
use crate::remote::{RemoteSys, RemoteSysError};
use crate::retention::Retention;
use crate::schema::SysSchema;
use crate::segment::SegmentError;
use crate::store::Store;
use crate::tables::{QueryRow, Table};
use crate::user_detectors::UserDetectors;

/// Why a query could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The rows are not those of the table.
    #[error("they are no rows of sys.{table}: {source}")]
    Rows {
        /// The table.
        table: &'static str,
        /// What is wrong with them.
        source: ArrowError,
    },
    /// They cannot be written.
    #[error(transparent)]
    Write(#[from] SegmentError),
}

/// The store behind schema `sys`.
///
/// Finished queries are readable at once. They are written in the background: to Parquet files
/// in a directory, or, without one, to memory in the same compressed form. Retention is applied
/// then. Dropping the last handle writes what is left.
#[derive(Debug)]
pub struct SysTables {
    store: Arc<Store>,
    schema: SysSchema,
}

impl SysTables {
    /// Opens the store in a directory, which is created when there is something to write, or in
    /// memory.
    ///
    /// Never fails: files that are missing, damaged or unreadable are skipped, now or when they
    /// are scanned, with a [warning](Self::warnings).
    pub fn open(directory: Option<&Path>, retention: Retention) -> Arc<SysTables> {
        let store = Store::open(directory, retention);
        Arc::new(SysTables {
            schema: SysSchema::new(Arc::clone(&store)),
            store,
        })
    }

    /// Takes over the events of a query that ended, however it ended, and adds its row to
    /// `sys.queries`. Its events are readable from now on. Takes no longer than it takes to move
    /// some pointers.
    ///
    /// Events that are handed to the recorder later are lost.
    pub fn finish(&self, recorder: &Recorder, query: QueryRow) {
        self.store.push(QueryLog::of_query(recorder, query));
    }

    /// Takes over the events of the part of a query that a worker ran in this process of its own:
    /// they are readable from now on by whoever [asks](Self::answer). Its times are set back by
    /// `clock_offset_ns`, what its clock is ahead of the master's.
    pub fn finish_on_worker(&self, recorder: &Recorder, clock_offset_ns: i64) {
        let log = QueryLog::of_worker(recorder, clock_offset_ns);
        self.store.push(vec![log]);
    }

    /// Lets `sys.links` have the connections of this process. The first time counts.
    pub fn set_links(&self, links: Arc<dyn Source<Link>>) {
        self.store.present().set_links(links);
    }

    /// Lets `sys.running_operators` have the operators that run in this process. The first time counts.
    pub fn set_running(&self, running: Arc<dyn Source<RecordBatch>>) {
        self.store.present().set_running(running);
    }

    /// Lets `sys.cache` have what `cache` tells. The first time counts.
    pub fn set_cache(&self, cache: Arc<dyn Source<CacheEntry>>) {
        self.store.present().set_cache(cache);
    }

    /// Lets the views of schema `detectors` count as detectors. The first time counts.
    pub fn set_detectors(&self, detectors: Arc<dyn UserDetectors>) {
        self.store.present().set_detectors(detectors);
    }

    /// Answers another process that asks for the rows of a table of the present: the method
    /// [`PRESENT`](crate::present::PRESENT).
    ///
    /// # Errors
    /// If there is no such table.
    pub fn answer_present(&self, table: &[u8]) -> std::result::Result<Vec<u8>, RemoteSysError> {
        self.store.present().answer(table)
    }

    /// Lets the tables have the rows of the workers behind `remote`, too, which it is asked for
    /// when they are scanned. Once, before anything is scanned.
    pub fn set_remote(&self, remote: Arc<dyn RemoteSys>) {
        self.store.set_remote(remote);
    }

    /// Ends the recording of a query on workers in processes of their own: when this returns, what
    /// they recorded is readable, but for workers that do not answer, which it says in
    /// `sys.workers`. To be awaited before [`finish`](Self::finish).
    pub async fn finish_on_workers(&self, recorder: &Recorder, workers: &[i64]) {
        let Some(fetched) = self.store.fetched() else {
            return;
        };
        let retention = self.store.retention();
        let query_id = recorder.query_id();
        for worker in fetched.finish(query_id, workers, retention).await {
            recorder.worker(worker);
        }
    }

    /// Adds the rows of a query that was recorded elsewhere, under the id `query_id`, which no
    /// query has: what scans of the tables gave for it there. Columns that may be NULL may be
    /// missing. They are written at once.
    ///
    /// # Errors
    /// If rows are not those of their table, or cannot be written.
    pub fn import(
        &self,
        query_id: i64,
        tables: Vec<(Table, Vec<RecordBatch>)>,
    ) -> std::result::Result<(), ImportError> {
        let mut stored = Vec::with_capacity(tables.len());
        for (table, batches) in tables {
            let batches = batches
                .iter()
                .map(|batch| imported::stored(table, batch, query_id))
                .collect::<std::result::Result<Vec<_>, _>>();
            let batches = batches.map_err(|source| ImportError::Rows {
                table: table.name(),
                source,
            })?;
            stored.push((table, batches));
        }
        Ok(self.store.import(query_id, stored)?)
    }

    /// Answers another process that asks for rows: the method [`PART`](crate::remote::PART).
    ///
    /// # Errors
    /// If that is no question, or about a reading that is gone.
    pub fn answer(&self, question: &[u8]) -> std::result::Result<Vec<u8>, RemoteSysError> {
        part_pages::answer(&self.store, question)
    }

    /// The tables and views of schema `sys`.
    pub fn schema_provider(&self) -> Arc<dyn SchemaProvider> {
        Arc::new(self.schema.clone())
    }

    /// Adds to a session the table functions `backward_trace(query_id, output_row)` and
    /// `forward_trace(query_id, table_name, row_id)`, and the function `is_sampled(row_id, rate)`.
    pub fn register_functions(&self, context: &SessionContext) {
        functions::register(&self.store, context);
    }

    /// The SQL behind one of the views that follow a query's plan (`output_latency`,
    /// `intermediate_latency`, `expensive_inputs`, `anomaly_candidates`): exactly what runs when it
    /// is filtered by this query. It stands on its own wherever schema `sys` is.
    ///
    /// # Errors
    /// If there is no such view, or the log cannot be read.
    pub async fn expanded_sql(&self, view: &str, query_id: i64) -> Result<String> {
        match Expansion::VIEWS
            .into_iter()
            .find(|known| known.name() == view)
        {
            Some(expansion) => self.expand(&expansion, query_id).await,
            None => plan_err!(
                "sys.{view} is not written for each query: output_latency, intermediate_latency, \
                 expensive_inputs and anomaly_candidates are"
            ),
        }
    }

    /// The SQL behind `backward_trace(query_id, output_row)`.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub async fn backward_trace_sql(&self, query_id: i64, output_row: i64) -> Result<String> {
        let expansion = Expansion::BackwardTrace {
            query_id,
            output_row,
        };
        self.expand(&expansion, query_id).await
    }

    /// The SQL behind `forward_trace(query_id, table_name, row_id)`.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub async fn forward_trace_sql(
        &self,
        query_id: i64,
        table_name: &str,
        row_id: i64,
    ) -> Result<String> {
        let expansion = Expansion::ForwardTrace {
            query_id,
            table: table_name.to_owned(),
            row_id,
        };
        self.expand(&expansion, query_id).await
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    async fn expand(&self, expansion: &Expansion, query_id: i64) -> Result<String> {
        expansion.sql(&Planner::new(&self.store), query_id).await
    }

    /// Changes for how long events are kept; applied in the background.
    pub fn set_retention(&self, retention: Retention) {
        self.store.set_retention(retention);
    }

    /// For how long events are kept.
    pub fn retention(&self) -> Retention {
        self.store.retention()
    }

    /// Writes what is only in memory so far.
    ///
    /// # Errors
    /// If a file cannot be written; everything stays readable then, and is tried again.
    pub fn flush(&self) -> std::result::Result<(), SegmentError> {
        self.store.flush()
    }

    /// What was skipped or failed since the store was opened, up to the last 100.
    pub fn warnings(&self) -> Vec<String> {
        self.store.warnings()
    }
}
