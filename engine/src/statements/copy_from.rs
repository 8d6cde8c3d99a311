//! COPY t FROM 'file'.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::common::Column;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::Ident;
use skewer_compat::suggest::suggest;
use skewer_sql::CopyFrom;
use skewer_storage::{NewSegment, TableMeta};

use super::{Context, Outcome};
use crate::catalog::names::fold;
use crate::catalog::types::{must_be_assignable, rounded};
use crate::error::Error;
use skewer_files::{CsvDialect, FileKind, FileTable};

/// Appends the rows of a file in its order: in a fresh table row n of the file has row id n − 1.
/// CSV fields are the columns by their place, those of Parquet and JSON by their names.
pub(crate) async fn execute(context: &mut Context, copy: CopyFrom) -> Result<Outcome, Error> {
    let table = context.catalog.appendable_table(&copy.table)?;
    let _turn = context.turn_to_append(&table).await;
    let (segments, rows) = read(context, &copy, &table).await?;
    let mut transaction = context.storage().begin();
    transaction.add_segments(table.id, segments)?;
    context.commit(transaction).await?;
    context.session.database_inner().has_grown(table.id);
    Ok(Outcome::Count(rows))
}

/// Writes the rows of a file to new segments of `table`, which are not published yet. Gives the number of rows.
pub(crate) async fn read(
    context: &mut Context,
    copy: &CopyFrom,
    table: &Arc<TableMeta>,
) -> Result<(Vec<NewSegment>, u64), Error> {
    let kind = match (&copy.options.format, FileKind::of_path(&copy.path)) {
        // A folder or a pattern: its files say it.
        (None, None) if FileTable::is_path(&copy.path) && !is_file(&copy.path) => {
            FileTable::from_path(&copy.path)?.kind
        }
        (format, _) => FileKind::of_copy(format.as_deref(), &copy.path)?,
    };
    let csv = CsvDialect::from_options(kind, &copy.options, &[])?;
    let columns = listed_columns(table, &copy.columns)?;
    let schema = match kind {
        FileKind::Parquet => None,
        // NULL where it may not be is found when rows are written, with a better message.
        FileKind::Csv | FileKind::Json => Some(Arc::new(Schema::new(
            columns
                .iter()
                .map(|place| {
                    let field = table.schema.field(*place);
                    Field::new(field.name(), field.data_type().clone(), true)
                })
                .collect::<Vec<_>>(),
        ))),
    };
    let files = FileTable::new(&copy.path, kind, csv, schema);
    context.catalog.touch_file(files.clone());
    context.progress.expect_rows(files.expected_rows()?);
    let provider = files.provider(context.catalog.base(), false).await?;
    let scan = LogicalPlanBuilder::scan("file", provider_as_source(provider), None)?.build()?;
    let plan = arrange(scan, table, &columns)?;
    // One partition reads the file from its beginning to its end.
    let stream = context.stream_in_partitions(&plan, Some(1)).await?;
    context.write(stream, table).await
}

fn is_file(path: &str) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}

/// The places of the listed columns, or of all.
pub(crate) fn listed_columns(table: &TableMeta, listed: &[Ident]) -> Result<Vec<usize>, Error> {
    if listed.is_empty() {
        return Ok((0..table.schema.fields().len()).collect());
    }
    let mut places = Vec::with_capacity(listed.len());
    for column in listed.iter().map(fold) {
        match table.schema.index_of(&column) {
            Ok(place) if places.contains(&place) => {
                return Err(Error::Invalid(format!("column {column} is listed twice")));
            }
            Ok(place) => places.push(place),
            Err(_) => {
                let known = table.schema.fields().iter().map(|f| f.name().as_str());
                return Err(Error::UnknownColumn {
                    suggestions: suggest(&column, known),
                    name: column,
                });
            }
        }
    }
    Ok(places)
}

/// The file's columns as the table's: cast, in its order, NULL where the file has none.
fn arrange(scan: LogicalPlan, table: &TableMeta, columns: &[usize]) -> Result<LogicalPlan, Error> {
    let schema = scan.schema();
    let mut expressions = Vec::with_capacity(table.schema.fields().len());
    for (place, field) in table.schema.fields().iter().enumerate() {
        let expression = if columns.contains(&place) {
            if schema.index_of_column_by_name(None, field.name()).is_none() {
                let known: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
                return Err(Error::Invalid(format!(
                    "the file has no column {}; it has {}",
                    field.name(),
                    known.join(", ")
                )));
            }
            let (qualifier, found) = schema.qualified_field_with_unqualified_name(field.name())?;
            must_be_assignable(field, found.data_type())?;
            let column = Expr::Column(Column::from((qualifier, found)));
            rounded(column, found.data_type(), field.data_type())
        } else {
            Expr::Literal(ScalarValue::Null, None)
        };
        let expression = expression.cast_to(field.data_type(), schema)?;
        expressions.push(expression.alias(field.name()));
    }
    Ok(LogicalPlanBuilder::from(scan)
        .project(expressions)?
        .build()?)
}
