//! Schema `sys` over several processes: every worker keeps what it recorded, and the master asks
//! for it.
//!
//! ```text
//! master                                     worker
//!   a query ends    ── FINISH(query) ──▶       its events become rows of the worker's own part
//!   sys is scanned  ── PART(table, queries) ─▶ a page of rows as they are stored, and where
//!                                              the next page is
//! ```

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::writer::StreamWriter;
use serde::{Deserialize, Serialize};

use crate::chunk_codec;
use crate::query_ids::QueryIds;
use crate::retention::Retention;
use crate::tables::{Table, WorkerRow};

/// Asks a worker to end the recording of a query; the body is a [`FinishRequest`], the answer is
/// empty and comes when the query's rows can be asked for.
pub const FINISH: &str = "sys/finish";

/// Asks a worker for rows of a table.
pub const PART: &str = "sys/part";

/// How the master reaches the workers that have parts of schema `sys`.
#[async_trait]
pub trait RemoteSys: Debug + Send + Sync {
    /// The workers of the cluster as they are now. The master itself is number 0, if it is among
    /// them.
    fn workers(&self) -> Vec<WorkerRow>;

    /// Calls `method` of a worker, which answers with `skewer_cluster::WorkerQueries::call`.
    ///
    /// # Errors
    /// [`RemoteSysError::Lost`] if the worker cannot be reached; whatever the worker says.
    async fn call(
        &self,
        worker_id: i64,
        method: &str,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, RemoteSysError>;
}

/// Why what a worker recorded cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum RemoteSysError {
    /// The worker is gone.
    #[error("it is lost: {0}")]
    Lost(String),
    /// It does not answer.
    #[error("it does not answer within {0:?}")]
    Late(Duration),
    /// It was asked for something that does not exist.
    #[error("there is no method {0}")]
    Method(String),
    /// It was asked for a table that does not exist.
    #[error("there is no table sys.{0}")]
    Table(String),
    /// The rest of an answer, which has not been asked for in time.
    #[error("what it had begun to read is gone")]
    Gone,
    /// A question or an answer that is none.
    #[error("garbled: {0}")]
    Garbled(#[from] postcard::Error),
    /// Rows that are none.
    #[error(transparent)]
    Rows(#[from] ArrowError),
    /// The worker failed.
    #[error("{0}")]
    Failed(String),
}

/// Ends the recording of a query on a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishRequest {
    /// The query.
    pub query_id: i64,
    /// What the worker's clock is ahead of the master's, in nanoseconds: its times are corrected
    /// by that.
    pub clock_offset_ns: i64,
    /// For how long the worker keeps events from now on.
    pub retention: Retention,
}

impl FinishRequest {
    /// The request as bytes.
    ///
    /// # Errors
    /// None for any request.
    pub fn encode(&self) -> Result<Vec<u8>, RemoteSysError> {
        Ok(postcard::to_stdvec(self)?)
    }

    /// The request of some bytes.
    ///
    /// # Errors
    /// If they are not those of a request.
    pub fn decode(bytes: &[u8]) -> Result<Self, RemoteSysError> {
        Ok(postcard::from_bytes(bytes)?)
    }
}

/// Asks for a page of rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PartRequest {
    /// The first page of a table's rows that belong to some queries.
    First { table: String, ids: QueryIds },
    /// The next page of a reading.
    Next(u64),
}

/// A page of rows.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartAnswer {
    /// The reading that has more.
    pub(crate) more: Option<u64>,
    /// Batches as they are stored, in Arrow's stream format; nothing if there are none.
    pub(crate) batches: Vec<u8>,
}

impl PartAnswer {
    pub(crate) fn new(more: Option<u64>, batches: &[RecordBatch]) -> Result<Self, RemoteSysError> {
        let mut bytes = Vec::new();
        if let Some(first) = batches.first() {
            let mut writer = StreamWriter::try_new(&mut bytes, &first.schema())?;
            for batch in batches {
                writer.write(batch)?;
            }
            writer.finish()?;
        }
        Ok(Self {
            more,
            batches: bytes,
        })
    }

    /// The batches, which must be such as the table has in files.
    pub(crate) fn batches(&self, table: Table) -> Result<Vec<RecordBatch>, RemoteSysError> {
        if self.batches.is_empty() {
            return Ok(Vec::new());
        }
        let reader = StreamReader::try_new(self.batches.as_slice(), None)?;
        let expected = chunk_codec::schema(table).unwrap_or_else(|| table.definition().schema());
        if reader.schema() != expected {
            let name = table.name();
            let other = format!("these are not rows of sys.{name} as this version has them");
            return Err(RemoteSysError::Failed(other));
        }
        Ok(reader.collect::<Result<_, _>>()?)
    }
}
