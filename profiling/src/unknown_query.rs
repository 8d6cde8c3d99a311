//! Ids of queries that schema `sys` does not have.

/// Says that `sys.queries` has no query `query_id`, and why: whether it never was, or has expired.
/// `known` are the least and the greatest id that it has.
pub fn unknown_query(known: Option<(i64, i64)>, query_id: i64) -> String {
    let why = match known {
        None => "it has none yet".to_owned(),
        Some((first, _)) if (1..first).contains(&query_id) => format!(
            "the oldest that it has is {first}; what is older than profile.retention_age, or more \
             than profile.retention_bytes, has expired"
        ),
        Some((_, last)) if query_id > last => format!("the newest is {last}"),
        Some(_) => "SELECT query_id, sql FROM sys.queries lists the queries that it has".to_owned(),
    };
    format!("sys.queries has no query {query_id}; {why}")
}
