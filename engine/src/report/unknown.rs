//! Ids of queries that schema `sys` does not have.

use super::answer::{Ask, rows};
use crate::error::Error;

/// The error for an id that is not in `sys.queries`: whether it never was, or has expired.
pub(crate) async fn unknown_query(source: &dyn Ask, query_id: i64) -> Error {
    let sql = "SELECT min(query_id) AS first, max(query_id) AS last FROM sys.queries";
    let known = source.ask(sql).await.ok();
    let known = known.as_deref().and_then(|answer| {
        let row = rows(answer).next()?;
        row.integer("first").zip(row.integer("last"))
    });
    Error::Invalid(skewer_profiling::unknown_query(known, query_id))
}
