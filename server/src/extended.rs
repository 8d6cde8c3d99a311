//! The extended protocol: Parse, Bind, Describe, Execute, Close, Sync.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use futures::SinkExt;
use pgwire::api::Type;
use pgwire::messages::PgWireBackendMessage as Backend;
use pgwire::messages::data::{NoData, ParameterDescription};
use pgwire::messages::extendedquery::{
    Bind, BindComplete, Close, CloseComplete, Describe, Execute, Parse, ParseComplete,
    PortalSuspended, TARGET_TYPE_BYTE_PORTAL, TARGET_TYPE_BYTE_STATEMENT,
};
use pgwire::messages::response::EmptyQueryResponse;
use skewer::QueryStream;

use skewer_sql::traits::CommandTag;

use crate::catalog::parameters::oid_parameters;
use crate::connection::{Connection, Failure};
use crate::decode;
use crate::encode::Format;
use crate::encode::types::{PgType, kinds};
use crate::error::SqlError;
use crate::execution::{Cursor, changed, tag_text, text_column};
use crate::statement::Command;

/// A statement that has been parsed and described.
#[derive(Debug)]
pub(crate) struct Prepared {
    sql: String,
    /// `None` for a statement that is empty.
    command: Option<Command>,
    parameters: Vec<Type>,
    columns: Option<SchemaRef>,
}

/// A prepared statement with values.
pub(crate) struct Portal {
    prepared: Arc<Prepared>,
    values: Vec<ScalarValue>,
    formats: Vec<Format>,
    state: State,
    /// Whether it outlives its transaction, as cursors may.
    held: bool,
}

impl Portal {
    /// What DECLARE makes.
    pub(crate) fn of_cursor(stream: QueryStream, format: Format, held: bool) -> Self {
        let columns = stream.schema();
        let formats = vec![format; columns.fields().len()];
        let prepared = Prepared {
            sql: String::new(),
            command: None,
            parameters: Vec::new(),
            columns: Some(columns),
        };
        let cursor = Box::new(Cursor::new(stream, formats.clone()));
        Self {
            prepared: Arc::new(prepared),
            values: Vec::new(),
            formats,
            state: State::Suspended(cursor, CommandTag::RowsReturned),
            held,
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    pub(crate) fn columns(&self) -> Option<SchemaRef> {
        self.prepared.columns.clone()
    }

    pub(crate) fn formats(&self) -> &[Format] {
        &self.formats
    }

    /// The rows that are left, if it has been started.
    pub(crate) fn cursor(&mut self) -> Option<&mut Cursor> {
        match &mut self.state {
            State::Suspended(cursor, _) => Some(cursor),
            State::Bound | State::Finished => None,
        }
    }
}

enum State {
    Bound,
    /// Some of its rows have been sent.
    Suspended(Box<Cursor>, CommandTag),
    Finished,
}

impl Connection {
    /// Parse.
    pub(crate) async fn parse(&mut self, parse: Parse) -> Result<(), Failure> {
        let name = parse.name.unwrap_or_default();
        if !name.is_empty() && self.statements.contains_key(&name) {
            let message = format!("there is a prepared statement {name} already");
            return Err(SqlError::new("42P05", message).into());
        }
        let is_empty = skewer::split(&parse.query).is_empty();
        let command = match is_empty {
            true => None,
            false => Some(Command::parse(&parse.query)?),
        };
        if let Some(command) = &command {
            self.check_block(command)?;
        }
        let declared: Vec<Option<Type>> = parse
            .type_oids
            .iter()
            .map(|oid| Type::from_oid(*oid).filter(|kind| *kind != Type::UNKNOWN))
            .collect();
        let sql = parse.query;
        let describing = self.parameters_and_columns(command.as_ref(), &declared, &sql);
        let (parameters, columns) = self.limits().guard(describing).await?;
        let prepared = Prepared {
            sql,
            command,
            parameters,
            columns,
        };
        self.statements.insert(name, Arc::new(prepared));
        let complete = Backend::ParseComplete(ParseComplete::new());
        Ok(self.socket.feed(complete).await?)
    }

    async fn parameters_and_columns(
        &self,
        command: Option<&Command>,
        declared: &[Option<Type>],
        sql: &str,
    ) -> Result<(Vec<Type>, Option<SchemaRef>), Failure> {
        let text = match command {
            Some(Command::Sql { text, .. }) => text,
            Some(Command::Declare(declare)) => &declare.query,
            Some(Command::Fetch(fetch)) => {
                let portal = self.portals.get(&fetch.name);
                let portal = portal.ok_or_else(|| no_portal(&fetch.name))?;
                return Ok((Vec::new(), portal.columns().filter(|_| fetch.shows())));
            }
            Some(Command::Show { name }) => {
                return Ok((Vec::new(), Some(Arc::new(text_column(name)))));
            }
            _ => return Ok((Vec::new(), None)),
        };
        let known = declared.iter().map(|kind| match kind {
            Some(Type::NUMERIC) => Some(DataType::Decimal128(38, 10)),
            kind => kind.as_ref().and_then(decode::arrow_type),
        });
        let described = self
            .session
            .describe(text, &known.collect::<Vec<_>>())
            .await;
        let described = described.map_err(|error| {
            let mut found = SqlError::of_engine(&error, text);
            found.position = found.position.filter(|_| text == sql);
            found
        })?;
        let inferred = described.parameters.iter().enumerate();
        let oids = match text == sql {
            true => BTreeMap::new(),
            false => oid_parameters(sql),
        };
        let parameters = inferred.map(|(n, data_type)| match declared.get(n) {
            Some(Some(kind)) => kind.clone(),
            _ => match oids.get(&(n + 1)) {
                Some(kind) => kind.clone(),
                None => PgType::of_type(data_type).kind,
            },
        });
        let columns = match command {
            // They are those of its FETCHes.
            Some(Command::Declare(_)) => None,
            _ => described.columns,
        };
        Ok((parameters.collect(), columns))
    }

    /// Bind.
    pub(crate) async fn bind(&mut self, bind: Bind) -> Result<(), Failure> {
        let prepared = self.statement(bind.statement_name.as_deref())?;
        let (given, wanted) = (bind.parameters.len(), prepared.parameters.len());
        if given != wanted {
            let message = format!("the statement takes {wanted} parameters, {given} given");
            return Err(SqlError::protocol(message).into());
        }
        let codes = formats(&bind.parameter_format_codes, given)?;
        let mut values = Vec::with_capacity(given);
        let zone = self.session.time_zone();
        let parameters = bind.parameters.iter().zip(&prepared.parameters).zip(codes);
        for (n, ((bytes, kind), format)) in parameters.enumerate() {
            values.push(match bytes {
                None => null(kind),
                Some(bytes) => decode::value(bytes, kind, format, &zone).map_err(|mut error| {
                    error.message = format!("parameter ${}: {}", n + 1, error.message);
                    error
                })?,
            });
        }
        let columns = prepared
            .columns
            .as_ref()
            .map_or(0, |schema| schema.fields().len());
        let portal = Portal {
            formats: formats(&bind.result_column_format_codes, columns)?,
            prepared,
            values,
            state: State::Bound,
            held: false,
        };
        self.portals
            .insert(bind.portal_name.unwrap_or_default(), portal);
        let complete = Backend::BindComplete(BindComplete::new());
        Ok(self.socket.feed(complete).await?)
    }

    /// Describe, of a statement or a portal.
    pub(crate) async fn describe(&mut self, describe: Describe) -> Result<(), Failure> {
        let (columns, formats) = match describe.target_type {
            TARGET_TYPE_BYTE_STATEMENT => {
                let prepared = self.statement(describe.name.as_deref())?;
                let types = prepared.parameters.iter().map(Type::oid).collect();
                let description = ParameterDescription::new(types);
                self.socket
                    .feed(Backend::ParameterDescription(description))
                    .await?;
                let count = prepared
                    .columns
                    .as_ref()
                    .map_or(0, |schema| schema.fields().len());
                (prepared.columns.clone(), vec![Format::Text; count])
            }
            TARGET_TYPE_BYTE_PORTAL => {
                let name = describe.name.unwrap_or_default();
                let portal = self.portals.get(&name).ok_or_else(|| no_portal(&name))?;
                (portal.prepared.columns.clone(), portal.formats.clone())
            }
            _ => return Err(SqlError::protocol("Describe of neither S nor P").into()),
        };
        match columns {
            Some(schema) => self.describe_rows(&schema, &formats).await,
            None => Ok(self.socket.feed(Backend::NoData(NoData::new())).await?),
        }
    }

    /// Execute: all rows, or so many that the portal is suspended.
    pub(crate) async fn execute(&mut self, execute: Execute) -> Result<(), Failure> {
        let name = execute.name.unwrap_or_default();
        let mut portal = self.portals.remove(&name).ok_or_else(|| no_portal(&name))?;
        let most = u64::try_from(execute.max_rows)
            .ok()
            .filter(|most| *most > 0);
        let prepared = Arc::clone(&portal.prepared);
        if let Some(command) = &prepared.command {
            self.check_block(command)?;
        }
        let limits = self.limits();
        let outcome = limits.guard(self.run_portal(&mut portal, most)).await;
        if outcome.is_ok() && !ends(&prepared) {
            self.portals.insert(name, portal);
        }
        outcome
    }

    async fn run_portal(&mut self, portal: &mut Portal, most: Option<u64>) -> Result<(), Failure> {
        let prepared = Arc::clone(&portal.prepared);
        let sql = prepared.sql.as_str();
        let (mut cursor, tag) = match std::mem::replace(&mut portal.state, State::Finished) {
            State::Suspended(cursor, tag) => (cursor, tag),
            State::Finished => {
                let tag = match &prepared.command {
                    Some(Command::Sql { tag, .. }) => tag_text(tag, 0),
                    _ => "SELECT 0".to_owned(),
                };
                return self.complete(tag).await;
            }
            State::Bound => {
                let (text, tag) = match &prepared.command {
                    None => {
                        let empty = Backend::EmptyQueryResponse(EmptyQueryResponse::new());
                        return Ok(self.socket.feed(empty).await?);
                    }
                    Some(Command::Sql { text, tag }) => (text, tag),
                    Some(own) => {
                        let bound = Some((portal.values.as_slice(), portal.formats.as_slice()));
                        return self.carry_out_own(own, sql, bound).await;
                    }
                };
                let stream = self.start(text, &portal.values, sql).await?;
                let tag = self.resolved(tag);
                let Some(columns) = &prepared.columns else {
                    let rows = changed(stream).await;
                    let rows = rows.map_err(|error| SqlError::of_engine(&error, sql))?;
                    return self.end_change(&tag, rows, sql).await;
                };
                if kinds(&stream.schema()) != kinds(columns) {
                    let message =
                        "the columns' types have changed since the statement was prepared";
                    return Err(SqlError::new("0A000", message).into());
                }
                (Box::new(Cursor::new(stream, portal.formats.clone())), tag)
            }
        };
        let (rows, more) = self.send_rows(&mut cursor, most, sql).await?;
        if more {
            portal.state = State::Suspended(cursor, tag);
            let suspended = Backend::PortalSuspended(PortalSuspended::new());
            return Ok(self.socket.feed(suspended).await?);
        }
        self.complete(tag_text(&tag, rows)).await
    }

    /// Close; what is not there is closed already.
    pub(crate) async fn close(&mut self, close: Close) -> Result<(), Failure> {
        let name = close.name.unwrap_or_default();
        match close.target_type {
            TARGET_TYPE_BYTE_STATEMENT => drop(self.statements.remove(&name)),
            TARGET_TYPE_BYTE_PORTAL => drop(self.portals.remove(&name)),
            _ => return Err(SqlError::protocol("Close of neither S nor P").into()),
        }
        let complete = Backend::CloseComplete(CloseComplete::new());
        Ok(self.socket.feed(complete).await?)
    }

    /// Sync: the end of a round.
    pub(crate) async fn sync(&mut self) -> Result<(), Failure> {
        self.transaction_is_over();
        Ok(self.ready().await?)
    }

    fn statement(&self, name: Option<&str>) -> Result<Arc<Prepared>, SqlError> {
        let name = name.unwrap_or_default();
        self.statements.get(name).map(Arc::clone).ok_or_else(|| {
            SqlError::new("26000", format!("there is no prepared statement {name:?}"))
        })
    }
}

/// Whether a statement has ended the transaction, and with it all portals.
fn ends(prepared: &Prepared) -> bool {
    prepared.command.as_ref().is_some_and(Command::ends_block)
}

pub(crate) fn no_portal(name: &str) -> SqlError {
    SqlError::new("34000", format!("there is no cursor {name:?}"))
}

/// One format for all, or one for each; text if nothing is said.
fn formats(codes: &[i16], count: usize) -> Result<Vec<Format>, SqlError> {
    let one = |code: &i16| match code {
        0 => Ok(Format::Text),
        1 => Ok(Format::Binary),
        other => Err(SqlError::protocol(format!("there is no format {other}"))),
    };
    match codes {
        [] => Ok(vec![Format::Text; count]),
        [all] => Ok(vec![one(all)?; count]),
        each if each.len() == count => each.iter().map(one).collect(),
        each => {
            let message = format!("{} formats for {count} values", each.len());
            Err(SqlError::protocol(message))
        }
    }
}

fn null(kind: &Type) -> ScalarValue {
    decode::arrow_type(kind)
        .and_then(|data_type| ScalarValue::try_from(&data_type).ok())
        .unwrap_or(ScalarValue::Null)
}
