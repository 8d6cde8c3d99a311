//! CREATE STREAM.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use skewer_compat::suggest::suggest;
use skewer_sql::{CreateStream, ObjectKind, StreamSource, sql_name};

use super::create_table::columns_schema;
use super::{Context, Outcome};
use crate::catalog::names::fold;
use crate::error::Error;
use crate::streams::sources;

/// Creates a stream, and begins to read its source.
pub(crate) async fn execute(
    context: &mut Context,
    mut stream: CreateStream,
) -> Result<Outcome, Error> {
    let name = context.catalog.resolve(&stream.name)?;
    name.must_be_writable()?;
    let snapshot = Arc::clone(context.catalog.snapshot());
    if !snapshot.has_schema(&name.schema) {
        return Err(context.catalog.unknown_table(&name));
    }
    if let Some(table) = snapshot.table(&name.schema, &name.table) {
        let kind = match snapshot.stream(table.id) {
            Some(_) if stream.if_not_exists => return Ok(Outcome::Done),
            Some(_) => ObjectKind::Stream,
            None => ObjectKind::Table,
        };
        let name = name.to_string();
        return Err(Error::AlreadyExists { kind, name });
    }
    if stream.columns.is_empty() {
        return Err(Error::Invalid(
            "a stream needs at least one column".to_owned(),
        ));
    }
    let schema = columns_schema(&context.catalog, &stream.columns).await?;
    let schema = with_time(schema, &stream)?;
    stream.source = sources::checked(&stream.source)?;
    stream.if_not_exists = false;
    let mut transaction = context.storage().begin();
    let sql = stream.to_string();
    let created = transaction.create_stream(&name.schema, &name.table, schema, &sql)?;
    context.commit(transaction).await?;
    let database = context.session.database_inner();
    database.streams.reconcile(database);
    if matches!(stream.source, StreamSource::Socket(..)) {
        // From now on clients can connect.
        database.streams.refresh_source(created.id.0).await?;
    }
    Ok(Outcome::Done)
}

/// The columns, of which the watermark's is NOT NULL: a row without a time would be in no window.
fn with_time(schema: SchemaRef, stream: &CreateStream) -> Result<SchemaRef, Error> {
    let Some(watermark) = &stream.watermark else {
        return Ok(schema);
    };
    let column = fold(&watermark.column);
    let Ok(field) = schema.field_with_name(&column) else {
        let known = schema.fields().iter().map(|field| field.name().as_str());
        return Err(Error::UnknownColumn {
            suggestions: suggest(&column, known),
            name: column,
        });
    };
    if *field.data_type() != DataType::Timestamp(TimeUnit::Nanosecond, None) {
        return Err(Error::Invalid(format!(
            "WATERMARK FOR {column}: the column is {} and must be TIMESTAMP",
            sql_name(field.data_type())
        )));
    }
    let fields = schema.fields().iter().map(|field| {
        let nullable = field.is_nullable() && *field.name() != column;
        field.as_ref().clone().with_nullable(nullable)
    });
    Ok(Arc::new(Schema::new(fields.collect::<Vec<Field>>())))
}
