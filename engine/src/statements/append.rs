//! Rows of a stream into a table.

use std::pin::Pin;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use futures::{Stream, StreamExt};
use skewer_storage::TableMeta;

use super::copy_from::listed_columns;
use super::{Context, Tracing};
use crate::error::Error;
use crate::session::Session;
use skewer_compat::session_zone::{in_zone, zone_of};

/// The rows to append.
pub(crate) type Rows = Pin<Box<dyn Stream<Item = Result<RecordBatch, Error>> + Send>>;

/// The listed columns of a table, or all; any of them may be NULL until it is written.
pub(crate) fn columns(
    session: &Session,
    table: &str,
    columns: &[String],
) -> Result<SchemaRef, Error> {
    let table = session.catalog().appendable_table(&name(table)?)?;
    let places = places(&table, columns)?;
    let zone = session.context().copied_config();
    Ok(in_zone(
        &schema_of(&table, &places),
        zone_of(zone.options()),
    ))
}

/// Appends `rows` and commits.
pub(crate) async fn execute(
    session: &Session,
    sql: &str,
    table: &str,
    columns: &[String],
    rows: Rows,
) -> Result<u64, Error> {
    session.refuse_if_read_only()?;
    let tracing = Tracing::At(*session.inner().profile.lock());
    let mut context = Context::begin(session, session.catalog(), sql, tracing);
    context.admit().await;
    let outcome = write(&mut context, table, columns, rows).await;
    context.progress.finish();
    if let Ok(rows) = &outcome {
        context.record.add_rows(*rows);
    }
    context.record.finish(outcome.as_ref().map(|_| ())).await;
    outcome
}

async fn write(
    context: &mut Context,
    table: &str,
    columns: &[String],
    rows: Rows,
) -> Result<u64, Error> {
    let table = context.catalog.appendable_table(&name(table)?)?;
    let _turn = context.turn_to_append(&table).await;
    let places = places(&table, columns)?;
    let all = schema_of(
        &table,
        &(0..table.schema.fields().len()).collect::<Vec<_>>(),
    );
    let relaxed = in_zone(&all, zone_of(context.catalog.base().config_options()));
    let schema = SchemaRef::clone(&relaxed);
    let batches = rows.map(move |batch| {
        batch
            .and_then(|batch| arrange(&batch, &places, &schema))
            .map_err(Error::into_datafusion)
    });
    let stream = Box::pin(RecordBatchStreamAdapter::new(relaxed, batches));
    let (segments, rows) = context.write(stream, &table).await?;
    let mut transaction = context.storage().begin();
    transaction.add_segments(table.id, segments)?;
    context.commit(transaction).await?;
    context.session.database_inner().has_grown(table.id);
    Ok(rows)
}

/// The batch's columns at their places in the table, NULL in the others.
fn arrange(
    batch: &RecordBatch,
    places: &[usize],
    schema: &SchemaRef,
) -> Result<RecordBatch, Error> {
    let columns: Vec<ArrayRef> = schema
        .fields()
        .iter()
        .enumerate()
        .map(|(place, field)| {
            let given = places.iter().position(|p| *p == place);
            match given.and_then(|n| batch.columns().get(n)) {
                Some(column) => Arc::clone(column),
                None => new_null_array(field.data_type(), batch.num_rows()),
            }
        })
        .collect();
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        SchemaRef::clone(schema),
        columns,
        &rows,
    )?)
}

fn schema_of(table: &TableMeta, places: &[usize]) -> SchemaRef {
    let fields = places.iter().map(|place| {
        let field = table.schema.field(*place);
        Field::new(field.name(), field.data_type().clone(), true)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn places(table: &TableMeta, columns: &[String]) -> Result<Vec<usize>, Error> {
    let idents = columns.iter().map(|column| ident(column));
    listed_columns(table, &idents.collect::<Result<Vec<_>, _>>()?)
}

fn name(text: &str) -> Result<ObjectName, Error> {
    parser(text)?
        .parse_object_name(false)
        .map_err(|_| not_a_name(text))
}

fn ident(text: &str) -> Result<Ident, Error> {
    parser(text)?
        .parse_identifier()
        .map_err(|_| not_a_name(text))
}

fn parser(text: &str) -> Result<Parser<'static>, Error> {
    Parser::new(&GenericDialect {})
        .try_with_sql(text)
        .map_err(|_| not_a_name(text))
}

fn not_a_name(text: &str) -> Error {
    Error::Invalid(format!("{text} is not a name"))
}
