//! The comparison as JSON.

use serde_json::{Value, json};
use skewer_diagnosis::diff::Change;
use skewer_diagnosis::{ProfileDiff, QuerySummary};

/// Changes when a field changes its meaning or is removed; new fields do not change it.
const FORMAT_VERSION: i64 = 1;

/// The comparison as one document, indented.
pub(crate) fn lines(diff: &ProfileDiff) -> Vec<String> {
    let text = format!("{:#}", document(diff));
    text.lines().map(str::to_owned).collect()
}

fn change(change: Change) -> Value {
    json!({"before": change.before, "after": change.after, "ratio": change.ratio()})
}

fn document(diff: &ProfileDiff) -> Value {
    let query = |summary: &QuerySummary, fingerprint: &Option<String>| {
        json!({
            "plan_fingerprint": fingerprint,
            "query_id": summary.query_id,
            "sql": summary.sql,
            "status": summary.status,
            "level": summary.level,
            "planning_ns": summary.planning_ns,
            "execution_ns": summary.execution_ns,
            "busy_ns": summary.busy_ns,
            "rows_returned": summary.rows_returned,
        })
    };
    let operators = diff.operators.iter().filter_map(|pair| {
        let operator = pair.either()?;
        Some(json!({
            "name": operator.name,
            "description": operator.description.line(),
            "table": operator.table,
            "operator_id": {
                "before": pair.before.as_ref().map(|operator| operator.operator_id),
                "after": pair.after.as_ref().map(|operator| operator.operator_id),
            },
            "rows_out": change(pair.change(|operator| operator.rows_out)),
            "self_ns": change(pair.change(|operator| operator.self_ns)),
            "input_wait_ns": change(pair.change(|operator| operator.input_wait_ns)),
            "spilled_bytes": change(pair.change(|operator| operator.spilled_bytes)),
        }))
    });
    let workers = diff
        .workers
        .iter()
        .map(|(worker_id, busy)| json!({"worker_id": worker_id, "busy_ns": change(*busy)}));
    let tasks = diff.tasks.iter().map(|task| {
        json!({
            "fragment_id": task.fragment_id,
            "worker_id": task.worker_id,
            "partition": task.partition,
            "busy_ns": change(task.busy),
            "rows": change(task.rows),
        })
    });
    let records = diff.records.as_ref().map(|records| {
        let records = records.iter().map(|record| {
            json!({
                "table": record.table,
                "row_id": record.row_id,
                "self_ns": change(record.self_ns),
            })
        });
        records.collect::<Vec<_>>()
    });
    json!({
        "format_version": FORMAT_VERSION,
        "before": query(&diff.before, &diff.fingerprints[0]),
        "after": query(&diff.after, &diff.fingerprints[1]),
        "same_plan": diff.without_plan().is_empty().then_some(diff.same_plan),
        "query_ns": change(diff.whole()),
        "reservations": diff.caveats(),
        "operators": operators.collect::<Vec<_>>(),
        "workers": workers.collect::<Vec<_>>(),
        "tasks": tasks.collect::<Vec<_>>(),
        "records": records,
    })
}
