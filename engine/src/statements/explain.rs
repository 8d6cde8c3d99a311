//! EXPLAIN and EXPLAIN ANALYZE.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{self, FromTable, ObjectName, UpdateTableFromKind};
use futures::{StreamExt, stream};
use skewer_sql::traits::is_analyze;

use super::delete::Target;
use super::{Context, Outcome, as_statement};
use crate::catalog::quarantine::explanation;
use crate::error::Error;
use crate::remedies::{RemedyMode, lines_about};

/// The plan of a query, or of the query within a statement that changes something: how rows are
/// written is not DataFusion's to plan.
pub(crate) async fn execute(
    context: &mut Context,
    mut explain: DFStatement,
) -> Result<Outcome, Error> {
    let analyze = is_analyze(&explain);
    if let DFStatement::Explain(inner) = &mut explain
        && let DFStatement::Statement(statement) = &*inner.statement
        && let Some(within) = query_within(statement)?
    {
        if let Some(target) = within.target {
            let table = context.catalog.writable_table(&target)?;
            context.catalog.show_all_rows_of(table.id);
        }
        if analyze {
            return Err(Error::Unsupported(
                "EXPLAIN ANALYZE of a statement that changes something; EXPLAIN PROFILE carries \
                 it out and says where the time went"
                    .to_owned(),
            ));
        }
        *inner.statement = as_statement(within.query);
    }
    let outcome = context.query(explain).await?;
    let touched = context.catalog.touched();
    let mut notes: Vec<_> = touched
        .quarantines
        .iter()
        .map(|quarantine| ("quarantine", explanation(quarantine)))
        .collect();
    let corrected = context.corrected.iter();
    notes.extend(corrected.map(|estimate| ("estimate", estimate.to_string())));
    if !analyze && *context.session.inner().remedies.lock() != RemedyMode::Off {
        let lines = lines_about(&context.session, explained(context.record.sql())).await?;
        notes.extend(lines.into_iter().map(|line| ("remedy", line)));
    }
    with_notes(outcome, notes)
}

/// The statement that EXPLAIN explains, as it is written.
fn explained(sql: &str) -> &str {
    let word = |sql: &'_ str| {
        let end = sql.find(|c: char| !c.is_ascii_alphabetic());
        sql[..end.unwrap_or(sql.len())].to_ascii_uppercase()
    };
    let mut rest = sql.trim_start();
    loop {
        let first = word(rest);
        let options = match first.as_str() {
            "EXPLAIN" | "VERBOSE" => 1,
            "FORMAT" => 2,
            _ => return rest,
        };
        for _ in 0..options {
            rest = rest[word(rest).len()..].trim_start();
        }
    }
}

/// A plan, and a row for each note: its kind and its text.
fn with_notes(outcome: Outcome, notes: Vec<(&str, String)>) -> Result<Outcome, Error> {
    let Outcome::Rows(plan) = outcome else {
        return Ok(outcome);
    };
    if notes.is_empty() {
        return Ok(Outcome::Rows(plan));
    }
    let (kinds, texts): (Vec<_>, Vec<_>) = notes.into_iter().unzip();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(kinds)),
        Arc::new(StringArray::from(texts)),
    ];
    let schema = plan.schema();
    let rows = RecordBatch::try_new(SchemaRef::clone(&schema), columns)?;
    let rows = plan.chain(stream::iter([Ok(rows)]));
    Ok(Outcome::Rows(Box::pin(RecordBatchStreamAdapter::new(
        schema, rows,
    ))))
}

/// The query within a statement that changes something.
struct QueryWithin {
    query: Box<ast::Query>,
    /// The table whose rows UPDATE or DELETE changes.
    target: Option<ObjectName>,
}

impl QueryWithin {
    fn of_rows_written(query: Option<&ast::Query>) -> Option<Self> {
        Some(Self {
            query: Box::new(query?.clone()),
            target: None,
        })
    }

    fn of_rows_changed(
        target: Target,
        others: Vec<ast::TableWithJoins>,
        selection: Option<ast::Expr>,
    ) -> Result<Option<Self>, Error> {
        Ok(Some(Self {
            query: target.matching_rows(others, selection)?,
            target: Some(target.name),
        }))
    }
}

/// The rows that a statement writes, or changes.
fn query_within(statement: &ast::Statement) -> Result<Option<QueryWithin>, Error> {
    Ok(match statement {
        ast::Statement::Insert(insert) => QueryWithin::of_rows_written(insert.source.as_deref()),
        ast::Statement::CreateTable(table) => QueryWithin::of_rows_written(table.query.as_deref()),
        ast::Statement::Delete(delete) => {
            let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
            let [from] = from.as_slice() else {
                return Ok(None);
            };
            let others = delete.using.clone().unwrap_or_default();
            let selection = delete.selection.clone();
            QueryWithin::of_rows_changed(Target::from_table(from)?, others, selection)?
        }
        ast::Statement::Update(update) => {
            let others = match &update.from {
                Some(
                    UpdateTableFromKind::BeforeSet(from) | UpdateTableFromKind::AfterSet(from),
                ) => from.clone(),
                None => Vec::new(),
            };
            let selection = update.selection.clone();
            QueryWithin::of_rows_changed(Target::from_table(&update.table)?, others, selection)?
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::explained;

    #[test]
    fn the_explained_statement_is_found() {
        for sql in [
            "EXPLAIN SELECT 1",
            " explain verbose  SELECT 1",
            "EXPLAIN FORMAT tree SELECT 1",
        ] {
            assert_eq!(explained(sql), "SELECT 1", "{sql}");
        }
    }
}
