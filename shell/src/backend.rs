//! Where statements run: in a database of this process, or at a server.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use futures::StreamExt;
use skewer::{Progress, QueryStream, Session};

use crate::error::ShellError;
use crate::remote::{Remote, RemoteAnswer};

/// A session here or elsewhere; cheap to clone.
#[derive(Clone)]
pub enum Backend {
    /// In this process.
    Local(Session),
    /// At a server.
    Remote(Remote),
}

/// What comes of a statement. Dropping it before its end cancels the statement.
pub enum Answer {
    /// From this process.
    Local(Box<QueryStream>),
    /// From a server.
    Remote(Box<RemoteAnswer>),
}

impl Backend {
    /// Runs one statement.
    pub async fn sql(&self, sql: &str) -> Result<Answer, ShellError> {
        Ok(match self {
            Backend::Local(session) => Answer::Local(Box::new(session.sql(sql).await?)),
            Backend::Remote(remote) => Answer::Remote(Box::new(remote.sql(sql).await?)),
        })
    }

    /// How far the statement is that began last.
    pub fn progress(&self) -> Progress {
        match self {
            Backend::Local(session) => session.progress().now(),
            Backend::Remote(remote) => remote.progress(),
        }
    }
}

impl Answer {
    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        match self {
            Answer::Local(stream) => stream.schema(),
            Answer::Remote(answer) => answer.schema(),
        }
    }

    /// What the session says of the statement beside its rows. A server has said all of it once the last
    /// rows are here.
    pub fn notices(&self) -> Vec<String> {
        match self {
            Answer::Local(stream) => stream.notices().to_vec(),
            Answer::Remote(answer) => answer.notices(),
        }
    }

    /// The next rows.
    pub async fn next(&mut self) -> Option<Result<RecordBatch, ShellError>> {
        match self {
            Answer::Local(stream) => stream.next().await.map(|batch| Ok(batch?)),
            Answer::Remote(answer) => answer.next().await,
        }
    }
}
