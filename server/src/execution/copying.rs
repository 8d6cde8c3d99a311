//! COPY between a client and a table or a query.

use datafusion::arrow::array::RecordBatch;
use futures::{SinkExt, StreamExt};
use pgwire::messages::copy::{CopyData, CopyDone, CopyInResponse, CopyOutResponse};
use pgwire::messages::{PgWireBackendMessage as Backend, PgWireFrontendMessage as Frontend};
use skewer::Error;
use tokio::sync::mpsc;

use super::rows::unwritable;
use crate::connection::{Broken, Connection, Failure};
use crate::copy::{Batches, CopyStatement, CopyWriter, Reader, Source};
use crate::error::SqlError;

/// Batches of a COPY that may wait to be written.
const WAITING: usize = 2;

/// What comes from a client's COPY.
enum Incoming {
    Batch(RecordBatch),
    /// All rows have come. Without it the client has gone, and nothing may be kept.
    End,
}

fn incoming(
    receiver: mpsc::Receiver<Incoming>,
) -> impl futures::Stream<Item = Result<RecordBatch, Error>> + Send + 'static {
    futures::stream::unfold(Some(receiver), |receiver| async {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Some(Incoming::Batch(batch)) => Some((Ok(batch), Some(receiver))),
            Some(Incoming::End) => None,
            None => Some((Err(Error::Cancelled), None)),
        }
    })
}

impl Connection {
    /// COPY FROM STDIN: the client's rows go into the table as they come, and are there when the
    /// last has come.
    pub(super) async fn copy_in(
        &mut self,
        copy: &CopyStatement,
        sql: &str,
    ) -> Result<u64, Failure> {
        let Source::Into { table, columns } = &copy.source else {
            return Ok(0);
        };
        let schema = self.session.writable_columns(table, columns).await;
        let schema = schema.map_err(|error| SqlError::of_engine(&error, sql))?;
        let count = schema.fields().len();
        let formats = vec![0; count];
        let response = CopyInResponse::new(0, i16::try_from(count).unwrap_or(i16::MAX), formats);
        self.socket.send(Backend::CopyInResponse(response)).await?;

        let (sender, receiver) = mpsc::channel(WAITING);
        let append = self.session.append(sql, table, columns, incoming(receiver));
        let mut append = std::pin::pin!(append);
        let mut reader = Reader::new(copy.options.clone(), count);
        let mut batches = Batches::new(schema);
        let socket = &mut self.socket;
        let feed = async {
            loop {
                let message = socket.next().await;
                let ended = match message {
                    Some(Ok(Frontend::CopyData(data))) => {
                        reader.push(&data.data, &mut batches.rows)?;
                        false
                    }
                    Some(Ok(Frontend::CopyDone(_))) => {
                        reader.finish(&mut batches.rows)?;
                        true
                    }
                    Some(Ok(Frontend::CopyFail(fail))) => {
                        let text = format!("COPY was ended by the client: {}", fail.message);
                        return Err(Failure::from(SqlError::new("57014", text)));
                    }
                    // Clients send a Sync before they know that COPY has begun.
                    Some(Ok(Frontend::Flush(_) | Frontend::Sync(_))) => false,
                    Some(Ok(_)) => {
                        let text = "only the rows of COPY are expected here";
                        return Err(SqlError::fatal("08P01", text).into());
                    }
                    Some(Err(error)) => return Err(error.into()),
                    None => return Err(Broken::Gone.into()),
                };
                if batches.is_full() || (ended && !batches.rows.is_empty()) {
                    let batch = Incoming::Batch(batches.take()?);
                    // Without a receiver the rows could not be written: `append` says why.
                    if sender.send(batch).await.is_err() {
                        return Ok(());
                    }
                }
                if ended {
                    let _ = sender.send(Incoming::End).await;
                    return Ok(());
                }
            }
        };
        let written = tokio::select! {
            biased;
            fed = feed => {
                fed?;
                append.await
            }
            written = &mut append => written,
        };
        Ok(written.map_err(|error| SqlError::of_engine(&error, sql))?)
    }

    /// COPY TO STDOUT: one message for each row.
    pub(super) async fn copy_out(
        &mut self,
        copy: &CopyStatement,
        sql: &str,
    ) -> Result<u64, Failure> {
        let Source::Query(query) = &copy.source else {
            return Ok(0);
        };
        let stream = self.session.sql(query).await;
        let mut stream = stream.map_err(|error| SqlError::of_engine(&error, sql))?;
        self.notices_of(&stream).await?;
        let schema = stream.schema();
        let count = schema.fields().len();
        let formats = vec![0; count];
        let response = CopyOutResponse::new(0, i16::try_from(count).unwrap_or(i16::MAX), formats);
        self.socket.feed(Backend::CopyOutResponse(response)).await?;
        let writer = CopyWriter::new(copy.options.clone());
        if let Some(header) = writer.header(&schema) {
            self.socket
                .feed(Backend::CopyData(CopyData::new(header)))
                .await?;
        }
        let mut rows = 0;
        while let Some(batch) = stream.next().await {
            let batch = batch.map_err(|error| SqlError::of_engine(&error, sql))?;
            for line in writer.lines(&batch).map_err(unwritable)? {
                self.socket
                    .feed(Backend::CopyData(CopyData::new(line)))
                    .await?;
                rows += 1;
            }
        }
        self.socket.feed(Backend::CopyDone(CopyDone::new())).await?;
        Ok(rows)
    }
}
