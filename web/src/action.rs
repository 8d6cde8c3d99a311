//! What has effects: cancelling a statement, and running a query again without some records.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use skewer::datafusion::common::ScalarValue;
use skewer::diagnosis::table_sql;
use skewer::{Database, ReadOnly, Session};

use crate::error::Failure;
use crate::routes::Shared;

/// So many records are left out by their ids at most.
const MOST_RECORDS: usize = 1_000;

/// `sys.blame` reads tables.
const LOOKING_FOR_PREDICATES: ReadOnly = ReadOnly {
    timeout: Duration::from_secs(120),
    memory: 256 << 20,
};

/// What the page sends to cancel.
#[derive(Deserialize)]
pub(crate) struct Cancel {
    query_id: i64,
}

/// `POST /api/cancel`
pub(crate) async fn cancel(
    State(shared): State<Shared>,
    Json(asked): Json<Cancel>,
) -> Result<StatusCode, Failure> {
    match shared.database.cancel(asked.query_id) {
        true => Ok(StatusCode::NO_CONTENT),
        false => {
            let text = format!(
                "query {} does not run: it has ended, or never began",
                asked.query_id
            );
            Err(Failure::new(StatusCode::NOT_FOUND, text))
        }
    }
}

/// What the page sends to verify a what-if: rows by a predicate that `sys.blame` found, or by their ids.
#[derive(Deserialize)]
pub(crate) struct Verify {
    query_id: i64,
    table_name: String,
    #[serde(default)]
    predicates: Vec<String>,
    /// 64-bit integers, as texts since JavaScript has none.
    #[serde(default)]
    row_ids: Vec<String>,
}

/// Both times of a query: with the rows, and without them.
#[derive(Serialize)]
pub(crate) struct Verified {
    statement: String,
    /// The run without the rows.
    query_id: i64,
    before_ns: Option<i64>,
    after_ns: Option<i64>,
    rows_excluded: Option<i64>,
}

/// `POST /api/verify`
pub(crate) async fn verify(
    State(shared): State<Shared>,
    Json(asked): Json<Verify>,
) -> Result<Json<Verified>, Failure> {
    let predicate = predicate(&shared.database, &asked).await?;
    let table = table_sql(&asked.table_name);
    let clause = format!("QUERY {} WITHOUT {table} ({predicate})", asked.query_id);
    let session = shared.database.session();
    // The report has what was left out; its lines are one document.
    let report = format!("EXPLAIN PROFILE (FORMAT json) {clause}");
    let lines: Vec<(String,)> = session.query_as(&report).await?;
    let document: String = lines.into_iter().map(|(line,)| line).collect();
    let document: serde_json::Value = serde_json::from_str(&document)
        .map_err(|error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let (query, left_out) = (&document["query"], &document["left_out"]);
    let total = |parts: [&serde_json::Value; 2]| {
        parts
            .iter()
            .filter_map(|part| part.as_i64())
            .reduce(|a, b| a + b)
    };
    let excluded = left_out["rows"].as_array();
    Ok(Json(Verified {
        statement: format!("EXPLAIN PROFILE {clause}"),
        query_id: query["query_id"].as_i64().unwrap_or_default(),
        before_ns: left_out["with_query_ns"].as_i64(),
        after_ns: left_out["query_ns"]
            .as_i64()
            .or_else(|| total([&query["planning_ns"], &query["execution_ns"]])),
        rows_excluded: excluded
            .map(|rows| rows.iter().filter_map(|row| row["rows"].as_i64()).sum()),
    }))
}

/// The predicate to leave rows out by: any of the predicates, or one of the rows. The page sends none of its own
/// making: `sys.blame` must have each.
async fn predicate(database: &Database, asked: &Verify) -> Result<String, Failure> {
    let refused = |text: String| Failure::new(StatusCode::BAD_REQUEST, text);
    if asked.predicates.is_empty() && asked.row_ids.is_empty() || asked.row_ids.len() > MOST_RECORDS
    {
        return Err(refused(format!(
            "say which rows to leave out: predicates, or 1 to {MOST_RECORDS} row ids"
        )));
    }
    let mut parts = Vec::new();
    let session = database.read_only_session(LOOKING_FOR_PREDICATES);
    for predicate in &asked.predicates {
        let sql = format!(
            "SELECT 1 FROM sys.blame({}) WHERE table_name = $1 AND predicate = $2",
            asked.query_id
        );
        let values = [&asked.table_name, predicate].map(|text| ScalarValue::from(text.as_str()));
        if !has_rows(&session, &sql, &values).await? {
            return Err(refused(format!(
                "sys.blame({}) has no predicate {predicate}",
                asked.query_id
            )));
        }
        parts.push(predicate.clone());
    }
    let ids: Result<Vec<i64>, _> = asked.row_ids.iter().map(|id| id.parse()).collect();
    let ids = ids.map_err(|_| refused("a row id is an integer".to_owned()))?;
    let ids: Vec<_> = ids.iter().map(i64::to_string).collect();
    match ids.as_slice() {
        [] => {}
        [id] => parts.push(format!("_row_id = {id}")),
        _ => parts.push(format!("_row_id IN ({})", ids.join(", "))),
    }
    Ok(match parts.as_slice() {
        [one] => one.clone(),
        _ => parts
            .iter()
            .map(|part| format!("({part})"))
            .collect::<Vec<_>>()
            .join(" OR "),
    })
}

async fn has_rows(session: &Session, sql: &str, values: &[ScalarValue]) -> Result<bool, Failure> {
    let mut stream = session.sql_with(sql, values).await?;
    while let Some(batch) = stream.next().await {
        if batch?.num_rows() > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}
