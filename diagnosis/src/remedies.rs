//! Remedies for skew: what would make later runs of the statement faster, or did so. The view `sys.remedies`
//! decides.

use crate::error::Error;
use crate::plan::Plan;
use crate::source::{Statements, rows};
use crate::summary::QuerySummary;
use skewer_profiling::OperatorKind;

/// The title of the section.
const TITLE: &str = "Remedies";

/// A query that took less has nothing to gain: the view counts from 10 ms.
const SHORTEST_NS: i64 = 10_000_000;

/// One remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    /// What it does, as `sys.operators.remedies` names it.
    pub remedy: String,
    /// The keys that it is for.
    pub subject: String,
    /// What a run without it has shown.
    pub because: String,
    /// Nanoseconds that a run was predicted to take less.
    pub predicted_ns: i64,
    /// Nanoseconds that runs with it took less so far.
    pub measured_ns: Option<i64>,
    /// `advised`, `trial`, `kept` or `taken back`.
    pub verdict: String,
    /// Whether this run had it.
    pub is_applied: bool,
}

/// The remedies of query `summary`; the one that saves most comes first.
///
/// # Errors
/// If `sys` cannot be read.
pub(crate) async fn remedies(
    statements: &mut Statements<'_>,
    summary: &QuerySummary,
    plan: &Plan,
) -> Result<Vec<Remedy>, Error> {
    let mut operators = plan.operators.iter();
    let has_exchange = operators.any(|operator| operator.kind == OperatorKind::Exchange);
    if !has_exchange || summary.execution_ns < SHORTEST_NS {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT remedy, subject, because, predicted_ns, measured_ns, verdict, is_applied\n\
         FROM sys.remedies\n\
         WHERE query_id = {}\n\
         ORDER BY predicted_ns DESC, exchange_id",
        summary.query_id
    );
    let answer = statements.query(TITLE, sql).await?;
    let remedies = rows(&answer).map(|row| Remedy {
        remedy: row.text("remedy").unwrap_or_default(),
        subject: row.text("subject").unwrap_or_default(),
        because: row.text("because").unwrap_or_default(),
        predicted_ns: row.sum("predicted_ns"),
        measured_ns: row.integer("measured_ns"),
        verdict: row.text("verdict").unwrap_or_default(),
        is_applied: row.flag("is_applied"),
    });
    Ok(remedies.collect())
}
