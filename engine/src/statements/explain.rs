//! EXPLAIN and EXPLAIN ANALYZE.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{self, FromTable, UpdateTableFromKind};
use futures::{StreamExt, stream};
use skewer_sql::traits::is_analyze;

use super::delete::Target;
use super::{Context, Outcome, as_statement};
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
        && let Some(query) = query_within(statement)?
    {
        if analyze {
            return Err(Error::Unsupported(
                "EXPLAIN ANALYZE of a statement that changes something; EXPLAIN PROFILE carries \
                 it out and says where the time went"
                    .to_owned(),
            ));
        }
        *inner.statement = as_statement(query);
    }
    let planned = context.query(explain).await?;
    let Outcome::Rows(rows) = planned else {
        return Ok(planned);
    };
    if analyze || *context.session.inner().remedies.lock() == RemedyMode::Off {
        return Ok(Outcome::Rows(rows));
    }
    let lines = lines_about(&context.session, explained(context.record.sql())).await?;
    Ok(Outcome::Rows(match lines.is_empty() {
        true => rows,
        false => with_row(rows, "remedies", &lines.join("\n"))?,
    }))
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

/// `rows` of two text columns, and one row more.
fn with_row(
    rows: SendableRecordBatchStream,
    kind: &str,
    text: &str,
) -> Result<SendableRecordBatchStream, Error> {
    let schema = rows.schema();
    let columns: Vec<ArrayRef> = [kind, text]
        .into_iter()
        .map(|text| Arc::new(StringArray::from(vec![text])) as ArrayRef)
        .collect();
    let row = RecordBatch::try_new(SchemaRef::clone(&schema), columns)?;
    let rows = rows.chain(stream::iter([Ok(row)]));
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
}

/// The rows that a statement writes, or changes.
fn query_within(statement: &ast::Statement) -> Result<Option<Box<ast::Query>>, Error> {
    Ok(match statement {
        ast::Statement::Insert(insert) => insert.source.clone(),
        ast::Statement::CreateTable(table) => table.query.clone(),
        ast::Statement::Delete(delete) => {
            let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
            let [from] = from.as_slice() else {
                return Ok(None);
            };
            let others = delete.using.clone().unwrap_or_default();
            let selection = delete.selection.clone();
            Some(Target::from_table(from)?.matching_rows(others, selection)?)
        }
        ast::Statement::Update(update) => {
            let others = match &update.from {
                Some(
                    UpdateTableFromKind::BeforeSet(from) | UpdateTableFromKind::AfterSet(from),
                ) => from.clone(),
                None => Vec::new(),
            };
            let selection = update.selection.clone();
            Some(Target::from_table(&update.table)?.matching_rows(others, selection)?)
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
