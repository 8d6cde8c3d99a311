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

/// All views that have an answer. One that fails is left out: predicates are not looked for below level `records`,
/// and the rows of a table may be gone. The page says what it lacks.
async fn exported_views(session: &Session, query_id: i64) -> Result<Vec<ExportedView>, Error> {
    let mut exported = Vec::new();
    for Export { view, fixed, each } in EXPORTS {
        let view = find_view(view).map_err(internal)?;
        let mut common = values(view, query_id);
        common.extend(
            fixed
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        );
        let all = match each {
            None => vec![common],
            Some((source, columns)) => {
                let source = find_view(source).map_err(internal)?;
                let sql = source.sql(&values(source, query_id)).map_err(internal)?;
                let batches = match rows(session, &sql).await {
                    Ok((_, batches)) => batches,
                    Err(_) => continue,
                };
                with_rows(&common, &batches, columns)?
            }
        };
        for values in all.into_iter().take(MOST_OF_ONE_VIEW) {
            match export(session, view, values).await {
                Ok(view) => exported.push(view),
                Err(error) => {
                    tracing::debug!(view = view.name, %error, "a view is left out of an export")
                }
            }
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

/// `common` with the values of `columns`, pairs of a parameter and a column, of each different row without NULL.
fn with_rows(
    common: &BTreeMap<String, String>,
    batches: &[RecordBatch],
    columns: &[(&str, &str)],
) -> Result<Vec<BTreeMap<String, String>>, Error> {
    let mut found = Vec::new();
    for batch in batches {
        let arrays: Vec<_> = columns
            .iter()
            .map(|(parameter, column)| {
                Ok((
                    *parameter,
                    batch
                        .column_by_name(column)
                        .ok_or_else(|| internal(column))?,
                ))
            })
            .collect::<Result<_, Error>>()?;
        for row in 0..batch.num_rows() {
            if arrays.iter().any(|(_, array)| array.is_null(row)) {
                continue;
            }
            let mut values = common.clone();
            for (parameter, array) in &arrays {
                values.insert((*parameter).to_owned(), array_value_to_string(array, row)?);
            }
            if !found.contains(&values) {
                found.push(values);
            }
        }
    }
    Ok(found)
}

fn internal(error: impl ToString) -> Error {
    Error::Internal(error.to_string())
}
