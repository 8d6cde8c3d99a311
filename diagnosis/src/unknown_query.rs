//! Ids of queries that schema `sys` does not have.

use crate::error::Error;
use crate::source::{ProfileSource, rows};

/// Returns the error for an id that is not in `sys.queries`. Its text says whether the query never
/// was, or has expired.
pub async fn unknown_query(source: &dyn ProfileSource, query_id: i64) -> Error {
    let sql = "SELECT min(query_id) AS first, max(query_id) AS last FROM sys.queries";
    let known = source.query(sql).await.ok();
    let known = known.as_deref().and_then(|answer| {
        let row = rows(answer).next()?;
        row.integer("first").zip(row.integer("last"))
    });
    Error::Invalid(skewer_profiling::unknown_query(known, query_id))
}
