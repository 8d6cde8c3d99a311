//! Carrying out what a statement asks for, and sending what comes of it.

mod copying;
mod rows;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::ScalarValue;
use futures::{SinkExt, StreamExt};
use pgwire::messages::PgWireBackendMessage as Backend;
use pgwire::messages::response::{CommandComplete, TransactionStatus};
use skewer::{Error, QueryStream};
use skewer_sql::traits::{CREATE_INDEX, Changes, CommandTag, DROP_INDEX};

pub(crate) use self::rows::{Cursor, text_column};
use crate::connection::{Broken, Connection, Failure};
use crate::encode::Format;
use crate::error::SqlError;
use crate::statement::Command;
use crate::transaction::WARNING;

/// What clients are told that create or drop an index.
const NO_INDEXES: &str = "there are no indexes, and nothing was done";

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

/// What the engine says of `text`; places are told only if that is the client's own.
fn engine(error: &Error, text: &str, sql: &str) -> SqlError {
    let mut found = SqlError::of_engine(error, text);
    if text != sql {
        found.position = None;
    }
    found
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
