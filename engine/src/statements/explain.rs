//! EXPLAIN and EXPLAIN ANALYZE.

use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{self, FromTable, UpdateTableFromKind};
use skewer_sql::traits::is_analyze;

use super::delete::Target;
use super::{Context, Outcome, as_statement};
use crate::error::Error;

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
    context.query(explain).await
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
