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
    let why = match known {
        None => "it has none yet".to_owned(),
        Some((first, _)) if (1..first).contains(&query_id) => format!(
            "the oldest that it has is {first}; what is older than profile.retention_age, or more \
             than profile.retention_bytes, has expired"
        ),
        Some((_, last)) if query_id > last => format!("the newest is {last}"),
        Some(_) => "SELECT query_id, sql FROM sys.queries lists those that it has".to_owned(),
    };
    Error::Invalid(format!("sys.queries has no query {query_id}; {why}"))
}
