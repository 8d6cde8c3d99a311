//! EXPORT PROFILE n TO 'x.html' (FORMAT html): the profiler's page with the rows of its views.

use std::collections::BTreeMap;
use std::path::Path;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::util::display::array_value_to_string;
use futures::TryStreamExt;
use skewer_diagnosis::unknown_query;
use skewer_page::file::{EXPORTS, Export, ExportedView, MOST_OF_ONE_VIEW, PIXELS, html};
use skewer_page::rows::arrow_stream;
use skewer_page::views::{View, find_view};

use super::export_profile::{Unfinished, io_error};
use super::untraced::untraced_stream;
use crate::error::Error;
use crate::session::Session;

/// Writes the page to a file; gives the number of views in it.
pub(super) async fn write(session: &Session, query_id: i64, target: &Path) -> Result<u64, Error> {
    let views = exported_views(session, query_id).await?;
    let page = html(query_id, &views);
    let unfinished = Unfinished::beside(target);
    std::fs::write(unfinished.path(), page).map_err(|error| io_error(target, &error))?;
    unfinished.finish()?;
    Ok(views.len() as u64)
}

/// The page with the profile of a query.
pub(crate) async fn page(session: &Session, query_id: i64) -> Result<String, Error> {
    let known = format!("SELECT 1 FROM sys.queries WHERE query_id = {query_id}");
    let known: Vec<_> = untraced_stream(session, &known)
        .await?
        .try_collect()
        .await?;
    if known
        .iter()
        .all(|batch: &RecordBatch| batch.num_rows() == 0)
    {
        return Err(unknown_query(session, query_id).await.into());
    }
    Ok(html(query_id, &exported_views(session, query_id).await?))
}

async fn exported_views(session: &Session, query_id: i64) -> Result<Vec<ExportedView>, Error> {
    let mut exported = Vec::new();
    for Export { view, each } in EXPORTS {
        let view = find_view(view).map_err(internal)?;
        let Some((parameter, source, column)) = each else {
            exported.push(export(session, view, values(view, query_id)).await?);
            continue;
        };
        let source = find_view(source).map_err(internal)?;
        let sql = source.sql(&values(source, query_id)).map_err(internal)?;
        let (_, batches) = rows(session, &sql).await?;
        for value in texts(&batches, column)?.into_iter().take(MOST_OF_ONE_VIEW) {
            let mut values = values(view, query_id);
            values.insert((*parameter).to_owned(), value);
            exported.push(export(session, view, values).await?);
        }
    }
    Ok(exported)
}

/// The values of a view's parameters that do not depend on rows of other views.
fn values(view: View, query_id: i64) -> BTreeMap<String, String> {
    let known = [
        ("query_id", query_id.to_string()),
        ("px", PIXELS.to_owned()),
    ];
    let known = known
        .into_iter()
        .filter(|(name, _)| view.parameters().any(|parameter| parameter.name == *name));
    known
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

async fn export(
    session: &Session,
    view: View,
    values: BTreeMap<String, String>,
) -> Result<ExportedView, Error> {
    let sql = view.sql(&values).map_err(internal)?;
    let (schema, batches) = rows(session, &sql).await?;
    let rows = arrow_stream(view.name, &schema, &batches).map_err(internal)?;
    Ok(ExportedView {
        name: view.name,
        values,
        sql,
        rows,
    })
}

async fn rows(session: &Session, sql: &str) -> Result<(SchemaRef, Vec<RecordBatch>), Error> {
    let stream = untraced_stream(session, sql).await?;
    let schema = stream.schema();
    Ok((schema, stream.try_collect().await?))
}

/// The different values of a column, in their order; NULL is none.
fn texts(batches: &[RecordBatch], column: &str) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    for batch in batches {
        let column = batch
            .column_by_name(column)
            .ok_or_else(|| internal(column))?;
        for row in (0..batch.num_rows()).filter(|row| column.is_valid(*row)) {
            let text = array_value_to_string(column, row)?;
            if !found.contains(&text) {
                found.push(text);
            }
        }
    }
    Ok(found)
}

fn internal(error: impl ToString) -> Error {
    Error::Internal(error.to_string())
}
