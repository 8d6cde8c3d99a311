//! A statement as DataFusion plans it, with columns of one name told apart where it refuses those.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use datafusion::common::{DataFusionError, SchemaError};
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast;
use futures::StreamExt;
use skewer_compat::logical::bag_set_operations::expand_bag_set_operations;
use skewer_compat::logical::with_movable_subqueries;
use skewer_compat::statement::duplicate_column_names::{
    Nameless, ambiguous, may_repeat, shown, tables, tell_apart,
};

use super::names::Name;
use super::statement::StatementCatalog;
use crate::error::Error;
use skewer_compat::session_zone::in_zone;

impl StatementCatalog {
    /// The planner's plan of a statement that is part of `views`. Columns that have one name are told apart if the
    /// planner refuses the statement as it is.
    pub(super) async fn planned(
        self: &Arc<Self>,
        state: &SessionState,
        statement: DFStatement,
        views: &[Name],
    ) -> Result<LogicalPlan, Error> {
        let plan = match inner(&statement).filter(|inner| may_repeat(inner)).cloned() {
            None => Box::pin(state.statement_to_plan(statement)).await?,
            Some(repeating) => match Box::pin(state.statement_to_plan(statement.clone())).await {
                Ok(plan) => plan,
                Err(error) => {
                    self.told_apart(state, statement, &repeating, views, error)
                        .await?
                }
            },
        };
        Ok(with_movable_subqueries(expand_bag_set_operations(plan)?)?)
    }

    /// The plan of a statement of which the planner said `error`.
    async fn told_apart(
        self: &Arc<Self>,
        state: &SessionState,
        statement: DFStatement,
        repeating: &ast::Statement,
        views: &[Name],
        error: DataFusionError,
    ) -> Result<LogicalPlan, Error> {
        let mut columns = HashMap::new();
        for table in tables(repeating) {
            if let Some(names) = self.columns(&table, views).await {
                columns.insert(table, names);
            }
        }
        let columns = |table: &ast::ObjectName| columns.get(table).cloned();
        let mut said = None;
        for nameless in [Nameless::Alike, Nameless::All] {
            let apart = tell_apart(repeating, &columns, nameless).map_err(Error::Invalid)?;
            let Some(apart) = apart else {
                continue;
            };
            let statement = with_inner(statement.clone(), apart.statement);
            match Box::pin(state.statement_to_plan(statement)).await {
                Ok(plan) => return Ok(plan),
                // What else is wrong is so still.
                Err(error) if said.is_none() && !apart.repeated.is_empty() => {
                    said = Some(of_repeated(&error, &apart.repeated).unwrap_or(error.into()));
                }
                Err(_) => {}
            }
        }
        Err(said.unwrap_or(error.into()))
    }
}

/// What is wrong, if it is a reference to a name that several columns had.
fn of_repeated(error: &DataFusionError, repeated: &BTreeSet<String>) -> Option<Error> {
    match error.find_root() {
        DataFusionError::SchemaError(schema_error, _) => match schema_error.as_ref() {
            SchemaError::FieldNotFound { field, .. } if repeated.contains(&field.name) => {
                Some(Error::Invalid(ambiguous(&field.name)))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The statement that is planned, or explained.
fn inner(statement: &DFStatement) -> Option<&ast::Statement> {
    match statement {
        DFStatement::Statement(statement) => Some(statement),
        DFStatement::Explain(explain) => inner(&explain.statement),
        _ => None,
    }
}

fn with_inner(statement: DFStatement, new: ast::Statement) -> DFStatement {
    match statement {
        DFStatement::Explain(mut explain) => {
            *explain.statement = with_inner(*explain.statement, new);
            DFStatement::Explain(explain)
        }
        _ => DFStatement::Statement(Box::new(new)),
    }
}

/// Columns by the names that they are shown by, which several may have.
pub(crate) fn shown_columns(schema: &SchemaRef) -> SchemaRef {
    let is_shown = |field: &FieldRef| shown(field.name()).len() == field.name().len();
    if schema.fields().iter().all(is_shown) {
        return Arc::clone(schema);
    }
    let fields = schema.fields().iter().map(|field| {
        let name = shown(field.name());
        field.as_ref().clone().with_name(name)
    });
    let fields = fields.collect::<Vec<Field>>();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// Rows with the names that their columns are shown by, and their instants in `zone`.
pub(crate) fn shown_rows(
    stream: SendableRecordBatchStream,
    zone: &str,
) -> SendableRecordBatchStream {
    let schema = in_zone(&shown_columns(&stream.schema()), zone);
    if schema == stream.schema() {
        return stream;
    }
    let shown = Arc::clone(&schema);
    let rows = stream.map(move |batch| {
        let batch = batch?;
        let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = batch.columns().iter().zip(shown.fields());
        let columns =
            columns.map(
                |(column, field)| match column.data_type() == field.data_type() {
                    true => Ok(Arc::clone(column)),
                    false => cast(column, field.data_type()),
                },
            );
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(&shown),
            columns,
            &rows,
        )?)
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

/// Refuses columns of one name, of what is to be a table or a view.
pub(crate) fn refuse_repeated(schema: &SchemaRef) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    for field in schema.fields() {
        let name = shown(field.name());
        if !names.insert(name) {
            return Err(Error::Invalid(format!(
                "column {name} is specified more than once: give one of them another name with AS"
            )));
        }
    }
    Ok(())
}
