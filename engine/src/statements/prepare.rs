//! PREPARE, EXECUTE, DEALLOCATE.

use std::borrow::Cow;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, DataType, Visit};
use skewer_compat::suggest::suggest;
use skewer_sql::{Statement, parameters};

use super::Outcome;
use crate::error::Error;
use crate::session::Session;

/// A statement that waits for its parameters. It is planned anew each time it is executed: tables
/// may have changed.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    types: Vec<DataType>,
    statement: Statement,
}

/// PREPARE.
pub(crate) fn prepare(
    session: &Session,
    name: String,
    types: Vec<DataType>,
    statement: Statement,
) -> Result<Outcome, Error> {
    if !statement.traits().is_preparable {
        return Err(Error::Unsupported(
            "PREPARE of something other than SELECT, INSERT, UPDATE or DELETE".to_owned(),
        ));
    }
    let mut prepared = session.inner().prepared.lock();
    if prepared.contains_key(&name) {
        return Err(Error::Invalid(format!(
            "there is a prepared statement {name} already: DEALLOCATE it first"
        )));
    }
    prepared.insert(name, Prepared { types, statement });
    Ok(Outcome::Done)
}

/// DEALLOCATE of one name or all.
pub(crate) fn deallocate(session: &Session, name: Option<String>) -> Result<Outcome, Error> {
    let mut prepared = session.inner().prepared.lock();
    match name {
        None => prepared.clear(),
        Some(name) => {
            if prepared.remove(&name).is_none() {
                return Err(unknown(&name, prepared.keys().map(String::as_str)));
            }
        }
    }
    Ok(Outcome::Done)
}

/// Text of a query that is longer is not made up: a parameter may be a megabyte.
const LONGEST_TEXT: usize = 64 << 10;

/// The text of a statement whose parameters have been given values, as `sys.queries` is to have it: of a query,
/// with the values, so that it can be run again from there. EXPLAIN PROFILE gets such a text of what it runs.
/// What changes something, which is not run again, keeps the text `sql`.
pub(crate) fn with_values<'a>(sql: &'a str, statement: &mut Statement) -> Cow<'a, str> {
    let text_of = |statement: &Statement| match statement {
        Statement::Query(query) if can_be_written(query) => {
            Some(query.to_string()).filter(|text| text.len() <= LONGEST_TEXT)
        }
        _ => None,
    };
    if let Statement::ExplainProfile(explain) = statement {
        if let Some(text) = text_of(&explain.statement) {
            explain.sql = text;
        }
        return Cow::Borrowed(sql);
    }
    text_of(statement).map_or(Cow::Borrowed(sql), Cow::Owned)
}

/// Whether all texts in it are read again as they are: sqlparser 0.62 writes two quotes, and a quote behind a
/// backslash, as if they were escaped already.
fn can_be_written(query: &ast::Query) -> bool {
    struct Ambiguous;
    impl ast::Visitor for Ambiguous {
        type Break = ();
        fn pre_visit_value(&mut self, value: &ast::ValueWithSpan) -> ControlFlow<()> {
            let is_ambiguous = match &value.value {
                ast::Value::Number(..) | ast::Value::Boolean(_) | ast::Value::Null => false,
                ast::Value::SingleQuotedString(text) => text.contains("''") || text.contains("\\'"),
                other => other.to_string().contains(['\'', '\\']),
            };
            match is_ambiguous {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    query.visit(&mut Ambiguous).is_continue()
}

/// Whether it is an EXECUTE, or runs one.
pub(crate) fn is_execute(statement: &Statement) -> bool {
    match statement {
        Statement::Execute { .. } => true,
        Statement::ExplainProfile(explain) => is_execute(&explain.statement),
        _ => false,
    }
}

/// An EXECUTE becomes the statement it stands for; others stay what they are.
pub(crate) fn resolve(session: &Session, statement: Statement) -> Result<Statement, Error> {
    match statement {
        Statement::Execute { name, parameters } => {
            let prepared = {
                let all = session.inner().prepared.lock();
                match all.get(&name) {
                    Some(prepared) => prepared.clone(),
                    None => return Err(unknown(&name, all.keys().map(String::as_str))),
                }
            };
            let mut statement = prepared.statement;
            parameters::bind(&mut statement, &parameters, &prepared.types)
                .map_err(|error| Error::Invalid(error.to_string()))?;
            Ok(statement)
        }
        Statement::ExplainProfile(mut explain) => {
            *explain.statement = resolve(session, *explain.statement)?;
            Ok(Statement::ExplainProfile(explain))
        }
        other => Ok(other),
    }
}

fn unknown<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Error {
    Error::UnknownPrepared {
        name: name.to_owned(),
        suggestions: suggest(name, known),
    }
}
