//! The comparison as JSON.

use serde_json::{Value, json};

use super::super::header::Header;
use super::{Change, Diff};

/// Changes when a field changes its meaning or is removed; new fields do not change it.
const FORMAT_VERSION: i64 = 1;

impl Change {
    fn json(self) -> Value {
        json!({"before": self.before, "after": self.after, "ratio": self.ratio()})
    }
}

impl Diff {
    /// Everything that was read.
    pub(super) fn json(&self) -> Value {
        let query = |header: &Header, fingerprint: &Option<String>| {
            json!({
                "plan_fingerprint": fingerprint,
                "query_id": header.query_id,
                "sql": header.sql,
                "status": header.status,
                "level": header.level,
                "planning_ns": header.planning_ns,
                "execution_ns": header.execution_ns,
                "busy_ns": header.busy_ns,
                "rows_returned": header.rows_returned,
            })
        };
        let operators = self.operators.iter().filter_map(|pair| {
            let operator = pair.either()?;
            Some(json!({
                "name": operator.name,
                "description": operator.description.line(),
                "table": operator.table,
                "operator_id": {
                    "before": pair.before.as_ref().map(|operator| operator.operator_id),
                    "after": pair.after.as_ref().map(|operator| operator.operator_id),
                },
                "rows_out": pair.change(|operator| operator.rows_out).json(),
                "self_ns": pair.change(|operator| operator.self_ns).json(),
                "input_wait_ns": pair.change(|operator| operator.input_wait_ns).json(),
                "spilled_bytes": pair.change(|operator| operator.spilled_bytes).json(),
            }))
        });
        let workers = self
            .workers
            .iter()
            .map(|(worker_id, busy)| json!({"worker_id": worker_id, "busy_ns": busy.json()}));
        let tasks = self.tasks.iter().map(|task| {
            json!({
                "fragment_id": task.fragment_id,
                "worker_id": task.worker_id,
                "partition": task.partition,
                "busy_ns": task.busy.json(),
                "rows": task.rows.json(),
            })
        });
        let records = self.records.as_ref().map(|records| {
            let records = records.iter().map(|record| {
                json!({
                    "table": record.table,
                    "row_id": record.row_id,
                    "self_ns": record.self_ns.json(),
                })
            });
            records.collect::<Vec<_>>()
        });
        json!({
            "format_version": FORMAT_VERSION,
            "before": query(&self.before, &self.fingerprints[0]),
            "after": query(&self.after, &self.fingerprints[1]),
            "same_plan": self.without_plan().is_empty().then_some(self.same_plan),
            "query_ns": self.whole().json(),
            "reservations": self.reservations(),
            "operators": operators.collect::<Vec<_>>(),
            "workers": workers.collect::<Vec<_>>(),
            "tasks": tasks.collect::<Vec<_>>(),
            "records": records,
        })
    }
}
