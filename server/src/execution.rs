//! Carrying out what a statement asks for, and sending what comes of it.

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::{Int64Type, Schema};
use datafusion::common::ScalarValue;
use futures::{FutureExt, SinkExt, StreamExt};
use pgwire::messages::copy::{CopyData, CopyDone, CopyInResponse, CopyOutResponse};
use pgwire::messages::data::{DataRow, RowDescription};
use pgwire::messages::response::{CommandComplete, TransactionStatus};
use pgwire::messages::{PgWireBackendMessage as Backend, PgWireFrontendMessage as Frontend};
use skewer::{Error, QueryStream};
use tokio::sync::mpsc;

use skewer_sql::traits::{CREATE_INDEX, Changes, CommandTag, DROP_INDEX};

use crate::connection::{Broken, Connection, Failure};
use crate::copy::{Batches, CopyStatement, CopyWriter, Reader, Source};
use crate::encode::types::PgType;
use crate::encode::{Format, Rows};
use crate::error::SqlError;
use crate::statement::Command;
use crate::transaction::WARNING;

/// What clients are told that create or drop an index.
const NO_INDEXES: &str = "there are no indexes, and nothing was done";

/// Batches of a COPY that may wait to be written.
const WAITING: usize = 2;

impl Connection {
    /// Carries out a statement and sends all that comes of it, with the columns before the rows.
    pub(crate) async fn carry_out(&mut self, command: &Command, sql: &str) -> Result<(), Failure> {
        match command {
            Command::Sql { text, tag } => {
                let stream = self.session.sql(text).await;
                let stream = stream.map_err(|error| engine(&error, text, sql))?;
                self.notices_of(&stream).await?;
                let tag = self.resolved(tag);
                self.finish(stream, &tag, sql).await
            }
            other => self.carry_out_own(other, sql, None).await,
        }
    }

    /// Carries out a statement that is not the engine's. In the extended protocol it is `bound` to
    /// values and formats, and its columns have been told.
    pub(crate) async fn carry_out_own(
        &mut self,
        command: &Command,
        sql: &str,
        bound: Option<(&[ScalarValue], &[Format])>,
    ) -> Result<(), Failure> {
        let describe = bound.is_none();
        let tag = match command {
            Command::Sql { .. } => return Ok(()),
            Command::Begin => {
                match self.transaction.begin() {
                    true => self.notice("WARNING", "0A000", WARNING).await?,
                    false => {
                        let text = "there is a transaction block already";
                        self.notice("WARNING", "25001", text).await?;
                    }
                }
                "BEGIN".to_owned()
            }
            Command::Commit => {
                self.close_portals();
                match self.transaction.commit()? {
                    Some(true) => "COMMIT".to_owned(),
                    Some(false) => "ROLLBACK".to_owned(),
                    None => {
                        self.no_block().await?;
                        "COMMIT".to_owned()
                    }
                }
            }
            Command::Rollback => {
                self.close_portals();
                if !self.transaction.rollback()? {
                    self.no_block().await?;
                }
                "ROLLBACK".to_owned()
            }
            Command::Set { name, value } => {
                if let Some((name, value)) = self.settings.set(name, value)? {
                    self.parameter(name, value).await?;
                }
                "SET".to_owned()
            }
            Command::Show { name } => {
                let value = self.settings.get(name).unwrap_or_default();
                if describe {
                    self.describe_rows(&text_column(name), &[Format::Text])
                        .await?;
                }
                self.text_row(&value).await?;
                "SHOW".to_owned()
            }
            Command::Declare(declare) => {
                let values = bound.map_or(&[][..], |(values, _)| values);
                self.declare(declare, values, sql).await?;
                "DECLARE CURSOR".to_owned()
            }
            Command::Fetch(fetch) => {
                let formats = bound.map(|(_, formats)| formats);
                self.fetch(fetch, formats, sql).await?
            }
            Command::CloseCursor { name } => {
                self.close_cursor(name.as_deref())?;
                "CLOSE CURSOR".to_owned()
            }
            Command::Deallocate { name } => {
                match name {
                    None => {
                        self.statements.clear();
                        self.engine_only("DEALLOCATE ALL").await?;
                    }
                    Some(name) if self.statements.remove(name).is_some() => {}
                    Some(_) => self.engine_only(sql).await?,
                }
                "DEALLOCATE".to_owned()
            }
            Command::Copy(copy) => {
                let rows = match copy.is_in() {
                    true => self.copy_in(copy, sql).await?,
                    false => self.copy_out(copy, sql).await?,
                };
                if copy.is_in() {
                    self.transaction.has_changed(sql);
                }
                format!("COPY {rows}")
            }
            Command::Nothing { tag } => (*tag).to_owned(),
        };
        self.complete(tag).await
    }

    async fn no_block(&mut self) -> Result<(), Broken> {
        let text = "there is no transaction block";
        self.notice("WARNING", "25P01", text).await
    }

    async fn engine_only(&mut self, sql: &str) -> Result<(), Failure> {
        let outcome = self.session.sql(sql).await;
        outcome.map_err(|error| SqlError::of_engine(&error, sql))?;
        Ok(())
    }

    /// The tag of what an EXECUTE stands for; remembers that of a PREPARE.
    pub(crate) fn resolved(&mut self, tag: &CommandTag) -> CommandTag {
        match tag {
            CommandTag::Prepare(name, prepared) => {
                self.tags.insert(name.clone(), (**prepared).clone());
                CommandTag::Done("PREPARE", Changes::Session)
            }
            CommandTag::Execute(name) => self
                .tags
                .get(name)
                .cloned()
                .unwrap_or(CommandTag::RowsReturned),
            other => other.clone(),
        }
    }

    /// Sends what came of a statement of the engine's.
    async fn finish(
        &mut self,
        stream: QueryStream,
        tag: &CommandTag,
        sql: &str,
    ) -> Result<(), Failure> {
        match tag {
            CommandTag::RowsReturned | CommandTag::Rows(_) => {
                let schema = stream.schema();
                let formats = vec![Format::Text; schema.fields().len()];
                self.describe_rows(&schema, &formats).await?;
                let mut cursor = Cursor::new(stream, formats);
                let (rows, _) = self.send_rows(&mut cursor, None, sql).await?;
                self.complete(tag_text(tag, rows)).await
            }
            CommandTag::RowsCounted(..)
            | CommandTag::Done(..)
            | CommandTag::Execute(_)
            | CommandTag::Prepare(..) => {
                let rows = changed(stream).await;
                let rows = rows.map_err(|error| SqlError::of_engine(&error, sql))?;
                self.end_change(tag, rows, sql).await
            }
        }
    }

    /// Tells the end of a statement that has changed something.
    pub(crate) async fn end_change(
        &mut self,
        tag: &CommandTag,
        rows: u64,
        sql: &str,
    ) -> Result<(), Failure> {
        if tag.changes() {
            self.transaction.has_changed(sql);
        }
        if [CREATE_INDEX, DROP_INDEX].contains(tag) {
            self.notice("NOTICE", "00000", NO_INDEXES).await?;
        }
        if let Some((name, value)) = zone_of(tag, sql) {
            self.parameter(name, value).await?;
        }
        self.complete(tag_text(tag, rows)).await
    }

    pub(crate) async fn complete(&mut self, tag: String) -> Result<(), Failure> {
        let complete = CommandComplete::new(tag);
        Ok(self.socket.feed(Backend::CommandComplete(complete)).await?)
    }

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

    async fn text_row(&mut self, value: &str) -> Result<(), Failure> {
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

    /// COPY FROM STDIN: the client's rows go into the table as they come, and are there when the
    /// last has come.
    async fn copy_in(&mut self, copy: &CopyStatement, sql: &str) -> Result<u64, Failure> {
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
    async fn copy_out(&mut self, copy: &CopyStatement, sql: &str) -> Result<u64, Failure> {
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

    /// Portals live as long as their transaction.
    pub(crate) fn transaction_is_over(&mut self) {
        if self.transaction.status() == TransactionStatus::Idle {
            self.close_portals();
        }
    }

    /// Runs a statement of the engine's with values.
    pub(crate) async fn start(
        &mut self,
        text: &str,
        values: &[ScalarValue],
        sql: &str,
    ) -> Result<QueryStream, Failure> {
        let stream = self.session.sql_with(text, values).await;
        let stream = stream.map_err(|error| engine(&error, text, sql))?;
        self.notices_of(&stream).await?;
        Ok(stream)
    }

    /// Sends what the engine says of a result beside its rows.
    async fn notices_of(&mut self, stream: &QueryStream) -> Result<(), Broken> {
        for notice in stream.notices() {
            self.notice("NOTICE", "00000", notice).await?;
        }
        Ok(())
    }
}

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

/// The count that the engine gives for a change.
pub(crate) async fn changed(mut stream: QueryStream) -> Result<u64, Error> {
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        let counts = batch
            .columns()
            .first()
            .and_then(|c| c.as_primitive_opt::<Int64Type>());
        if let Some(counts) = counts.filter(|counts| counts.len() == 1) {
            rows = u64::try_from(counts.value(0)).unwrap_or(0);
        }
    }
    Ok(rows)
}

pub(crate) fn tag_text(tag: &CommandTag, rows: u64) -> String {
    match tag {
        CommandTag::RowsReturned => format!("SELECT {rows}"),
        CommandTag::RowsCounted(verb, _) => format!("{verb} {rows}"),
        CommandTag::Rows(verb) | CommandTag::Done(verb, _) => (*verb).to_owned(),
        CommandTag::Execute(_) => "EXECUTE".to_owned(),
        CommandTag::Prepare(..) => "PREPARE".to_owned(),
    }
}

/// The column of SHOW.
pub(crate) fn text_column(name: &str) -> Schema {
    use datafusion::arrow::datatypes::{DataType, Field};
    Schema::new(vec![Field::new(name, DataType::Utf8, true)])
}

/// What the engine says of `text`; places are told only if that is the client's own.
fn engine(error: &Error, text: &str, sql: &str) -> SqlError {
    let mut found = SqlError::of_engine(error, text);
    if text != sql {
        found.position = None;
    }
    found
}

fn unwritable(error: datafusion::arrow::error::ArrowError) -> SqlError {
    SqlError::new("22000", format!("a value cannot be sent: {error}"))
}

/// The time zone, which clients are told of, if the statement has set it.
fn zone_of(tag: &CommandTag, sql: &str) -> Option<(&'static str, String)> {
    if !matches!(tag, CommandTag::Done("SET", _)) {
        return None;
    }
    let skewer_sql::Statement::Set { name, value } = skewer_sql::parse(sql).ok()? else {
        return None;
    };
    matches!(name.as_str(), "timezone" | "time.zone").then_some(("TimeZone", value))
}
