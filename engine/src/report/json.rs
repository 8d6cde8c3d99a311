//! The report for a program. The schema is documented in `docs/explain-profile.md`.

use serde_json::{Value, json};

use super::Report;
use super::blame::Blamed;
use super::expensive_inputs::ExpensiveInput;
use super::plan_tree::Operator;

/// Changes when a field changes its meaning or is removed; new fields do not change it.
const FORMAT_VERSION: i64 = 1;

/// The report as one document, indented.
pub(super) fn lines(report: &Report) -> Vec<String> {
    let text = format!("{:#}", document(report));
    text.lines().map(str::to_owned).collect()
}

fn document(report: &Report) -> Value {
    let Report {
        header,
        plan,
        time_spent,
        inputs,
        predicates,
        left_out,
        deeper,
        ..
    } = report;
    let slowest = time_spent.slowest.as_ref().map(|slowest| {
        json!({
            "output_row": slowest.output_row,
            "total_ns": slowest.total_ns,
            "computation_ns": slowest.computation_ns,
            "shuffle_ns": slowest.shuffle_ns,
            "mean_shuffle_ns": slowest.mean_shuffle_ns,
            "remediated_ns": slowest.remediated_ns,
            "source": slowest.source.as_ref().map(|(table, row_id)| {
                json!({"table": table, "row_id": row_id})
            }),
            "input_records": slowest.records.map(|(records, _)| records),
            "traced_records": slowest.records.map(|(_, traced)| traced),
        })
    });
    let uneven = time_spent.uneven.as_ref().map(|uneven| {
        json!({
            "fragment_id": uneven.fragment_id,
            "tasks": uneven.tasks,
            "max_ns": uneven.max_ns,
            "mean_ns": uneven.mean_ns,
            "imbalance": uneven.imbalance,
            "wasted_ns": uneven.wasted_ns,
            "straggler": uneven.straggler.as_ref().map(|straggler| {
                json!({
                    "operator_id": straggler.operator_id,
                    "partition": straggler.partition,
                    "self_ns": straggler.self_ns,
                    "rows_in": straggler.rows_in,
                    "others_self_ns": straggler.others_ns,
                    "others_rows_in": straggler.others_rows,
                })
            }),
        })
    });
    let sentences: Vec<Value> = time_spent
        .sentences
        .iter()
        .map(|(subject, text)| json!({"subject": subject.name(), "text": text}))
        .collect();
    let records: Vec<Value> = inputs.inputs.iter().map(|i| input(report, i)).collect();
    json!({
        "format_version": FORMAT_VERSION,
        "query": {
            "query_id": header.query_id,
            "sql": header.sql,
            "status": header.status,
            "error": header.error,
            "level": header.level,
            "sample_rate": header.sample_rate,
            "planning_ns": header.planning_ns,
            "execution_ns": header.execution_ns,
            "busy_ns": header.busy_ns,
            "rows_returned": header.rows_returned,
            "events_dropped": header.events_dropped,
            "reservations": header.reservations(),
        },
        "left_out": left_out.json(header),
        "plan": plan.operators.iter().map(operator).collect::<Vec<_>>(),
        "time_spent": {
            "sentences": sentences,
            "slowest_result_row": slowest,
            "least_even_tasks": uneven,
        },
        "expensive_inputs": {
            "recorded": header.has_records(),
            "verdict": inputs.verdict(header),
            "rows_untold": inputs.rows_untold(header),
            "records": records,
        },
        "predicates": predicates.blamed.iter().map(predicate).collect::<Vec<_>>(),
        "deeper": deeper,
    })
}

fn operator(operator: &Operator) -> Value {
    json!({
        "operator_id": operator.operator_id,
        "parent_operator_id": operator.parent_operator_id,
        "name": operator.name,
        "kind": operator.kind.name(),
        "description": operator.description.line(),
        "table": operator.table,
        "partitions": operator.partitions,
        "rows_in": operator.rows_in,
        "rows_out": operator.rows_out,
        "estimated_rows": operator.estimated_rows,
        "self_ns": operator.self_ns,
        "share": operator.share,
        "input_wait_ns": operator.input_wait_ns,
        "peak_memory_bytes": operator.peak_memory_bytes,
        "spilled_bytes": operator.spilled_bytes,
        "row_skew": operator.row_skew,
        "time_skew": operator.time_skew,
    })
}

fn predicate(blamed: &Blamed) -> Value {
    json!({
        "table": blamed.table,
        "predicate": blamed.predicate,
        "matched_rows": blamed.matched,
        "table_rows": blamed.table_rows,
        "row_share": blamed.row_share(),
        "latency_share": blamed.time_share,
        "query_without_ns": blamed.without_ns,
        "verify": blamed.verify,
    })
}

fn input(report: &Report, input: &ExpensiveInput) -> Value {
    let anomalous = input.anomaly.is_some();
    let record: Option<Vec<Value>> = input.record.as_ref().ok().map(|values| {
        values
            .iter()
            .map(|(column, value)| json!({"column": column, "value": value}))
            .collect()
    });
    json!({
        "table": input.table,
        "row_id": input.row_id,
        "anomaly": input.anomaly.map(|anomaly| anomaly.name()),
        "sentence": anomalous.then(|| input.sentence(&report.header)),
        "impact_ns": input.impact_ns,
        "total_ns": input.total_ns,
        "remediated_ns": input.remediated_ns,
        "result_rows": input.result_rows,
        "self_ns": report.header.has_log().then_some(input.self_ns),
        "self_method": input.method,
        "self_error_ns": input.error_ns,
        "median_self_ns": input.median_ns,
        "rows_made": input.fan_out.as_ref().map(|fan_out| fan_out.rows),
        "apportioned_ns": input.fan_out.as_ref().map(|fan_out| fan_out.apportioned_ns),
        "query_without_ns": input.without_ns,
        "record": record,
        "record_error": input.record.as_ref().err().filter(|_| anomalous),
    })
}
