//! REFRESH CONTINUOUS QUERY and REFRESH STREAM: what waits is processed now.

use std::sync::Arc;
use std::time::Instant;

use datafusion::sql::sqlparser::ast::ObjectName;
use skewer_sql::ObjectKind;

use super::{Context, Outcome};
use crate::catalog::StatementCatalog;
use crate::error::Error;
use crate::streams::{Link, batch, input};
use skewer_compat::suggest::suggest;
use skewer_storage::{ContinuousQueryMeta, TableMeta};

/// Returns when everything that had come before the statement has been processed.
pub(crate) async fn execute(
    context: &mut Context,
    kind: ObjectKind,
    name: &ObjectName,
) -> Result<Outcome, Error> {
    let link = Link::new(context.session.database_inner());
    let held = link.hold().ok_or(Error::Cancelled)?;
    let streams = &link.streams;
    if kind == ObjectKind::Stream {
        let stream = stream(&context.catalog, name)?;
        let before = streams.statuses.get(stream.id.0).rows;
        streams.refresh_source(stream.id.0).await?;
        let after = streams.statuses.get(stream.id.0).rows;
        return Ok(Outcome::Count((after - before).unsigned_abs()));
    }
    let query = continuous_query(&context.catalog, name)?;
    let snapshot = Arc::clone(context.catalog.snapshot());
    let stream = snapshot.table_by_id(query.stream);
    let end = stream.map_or(0, |stream| input::end_of(&stream));
    let mut rows = 0;
    // The driver may be at it, too: micro-batches take turns.
    while let Some(done) = batch::run(&held, query.id, Instant::now()).await? {
        rows += done.rows_out;
        if done.next_row >= end {
            break;
        }
    }
    Ok(Outcome::Count(rows))
}

/// A stream by name.
pub(crate) fn stream(
    catalog: &StatementCatalog,
    name: &ObjectName,
) -> Result<Arc<TableMeta>, Error> {
    let resolved = catalog.resolve(name)?;
    let snapshot = catalog.snapshot();
    let table = snapshot.table(&resolved.schema, &resolved.table);
    match table {
        Some(table) if snapshot.stream(table.id).is_some() => Ok(table),
        Some(_) => Err(Error::Invalid(format!(
            "{resolved} is a table and no stream"
        ))),
        None => {
            let known = snapshot.streams();
            let known = known.filter_map(|stream| snapshot.table_by_id(stream.table));
            let known: Vec<String> = known.map(|table| table.name.clone()).collect();
            Err(Error::UnknownObject {
                kind: ObjectKind::Stream,
                name: resolved.to_string(),
                suggestions: suggest(&resolved.table, known.iter().map(String::as_str)),
            })
        }
    }
}

/// A continuous query by name.
pub(crate) fn continuous_query(
    catalog: &StatementCatalog,
    name: &ObjectName,
) -> Result<Arc<ContinuousQueryMeta>, Error> {
    let resolved = catalog.resolve(name)?;
    let snapshot = catalog.snapshot();
    if let Some(query) = snapshot.continuous_query(&resolved.schema, &resolved.table) {
        return Ok(Arc::clone(query));
    }
    let known = snapshot
        .continuous_queries()
        .map(|query| query.name.as_str());
    Err(Error::UnknownObject {
        kind: ObjectKind::ContinuousQuery,
        name: resolved.to_string(),
        suggestions: suggest(&resolved.table, known),
    })
}
