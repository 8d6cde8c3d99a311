//! Rows of a result, as they are sent.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use futures::{FutureExt, SinkExt, StreamExt};
use pgwire::messages::PgWireBackendMessage as Backend;
use pgwire::messages::data::{DataRow, RowDescription};
use skewer::{Error, QueryStream};

use crate::connection::{Connection, Failure};
use crate::encode::types::PgType;
use crate::encode::{Format, Rows};
use crate::error::SqlError;

/// A result that is being sent.
pub(crate) struct Cursor {
    pub(crate) stream: QueryStream,
    formats: Vec<Format>,
    rows: Option<Rows>,
}

impl Cursor {
    pub(crate) fn new(stream: QueryStream, formats: Vec<Format>) -> Self {
        Self {
            stream,
            formats,
            rows: None,
        }
    }

    /// From here on rows are in these formats.
    ///
    /// # Errors
    /// If rows that have been made in other formats wait.
    pub(crate) fn turn_to(&mut self, formats: &[Format]) -> Result<(), SqlError> {
        if self.formats != formats && self.rows.is_some() {
            let text = "fetching from one cursor in several formats";
            return Err(SqlError::unsupported(text));
        }
        self.formats = formats.to_vec();
        Ok(())
    }

    /// The next row; `None` at the end.
    pub(crate) async fn next_row(&mut self, sql: &str) -> Result<Option<DataRow>, Failure> {
        loop {
            if let Some(row) = self.rows.as_mut().and_then(Iterator::next) {
                return Ok(Some(row));
            }
            self.rows = None;
            let Some(batch) = self.stream.next().await else {
                return Ok(None);
            };
            self.take(batch, sql)?;
        }
    }

    fn take(&mut self, batch: Result<RecordBatch, Error>, sql: &str) -> Result<(), SqlError> {
        let batch = batch.map_err(|error| SqlError::of_engine(&error, sql))?;
        self.rows = Some(Rows::new(&batch, &self.formats).map_err(unwritable)?);
        Ok(())
    }
}

impl Connection {
    pub(crate) async fn describe_rows(
        &mut self,
        schema: &Schema,
        formats: &[Format],
    ) -> Result<(), Failure> {
        let fields = schema.fields().iter().zip(formats);
        let fields = fields.map(|(field, format)| PgType::field(field, *format));
        let description = RowDescription::new(fields.collect());
        Ok(self
            .socket
            .feed(Backend::RowDescription(description))
            .await?)
    }

    pub(super) async fn text_row(&mut self, value: &str) -> Result<(), Failure> {
        let length = i32::try_from(value.len()).unwrap_or(i32::MAX);
        let mut row = length.to_be_bytes().to_vec();
        row.extend_from_slice(value.as_bytes());
        let row = DataRow::new(row.as_slice().into(), 1);
        Ok(self.socket.feed(Backend::DataRow(row)).await?)
    }

    /// Sends at most `most` rows; how many they were, and whether there may be more.
    pub(crate) async fn send_rows(
        &mut self,
        cursor: &mut Cursor,
        most: Option<u64>,
        sql: &str,
    ) -> Result<(u64, bool), Failure> {
        let mut sent = 0;
        loop {
            if let Some(rows) = &mut cursor.rows {
                for row in rows.by_ref() {
                    self.socket.feed(Backend::DataRow(row)).await?;
                    sent += 1;
                    if most == Some(sent) {
                        return Ok((sent, true));
                    }
                }
                cursor.rows = None;
            }
            // Rows that are there go out before the next are waited for.
            let batch = match cursor.stream.next().now_or_never() {
                Some(batch) => batch,
                None => {
                    self.socket.flush().await?;
                    cursor.stream.next().await
                }
            };
            let Some(batch) = batch else {
                return Ok((sent, false));
            };
            cursor.take(batch, sql)?;
        }
    }
}

/// The column of SHOW.
pub(crate) fn text_column(name: &str) -> Schema {
    use datafusion::arrow::datatypes::{DataType, Field};
    Schema::new(vec![Field::new(name, DataType::Utf8, true)])
}

pub(super) fn unwritable(error: datafusion::arrow::error::ArrowError) -> SqlError {
    SqlError::new("22000", format!("a value cannot be sent: {error}"))
}
