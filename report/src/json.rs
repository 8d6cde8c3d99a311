//! The profile for a program. The schema is documented in `docs/explain-profile.md`.

use serde_json::{Value, json};
use skewer_diagnosis::{ExpensiveInput, Operator, Predicate, Profile, QuerySummary};

use crate::{excluded_rows, quarantine, remedies as remedy_section, verdict};

/// Changes when a field changes its meaning or is removed; new fields do not change it.
const FORMAT_VERSION: i64 = 1;

/// The profile as one document, indented.
pub(crate) fn lines(profile: &Profile) -> Vec<String> {
    let text = format!("{:#}", document(profile));
    text.lines().map(str::to_owned).collect()
}

fn document(profile: &Profile) -> Value {
    let Profile {
        summary,
        verdict,
        excluded,
        plan,
        time_spent,
        expensive_inputs: inputs,
        predicates,
        remedies,
        quarantine: proposal,
        next_steps,
        statements: _,
    } = profile;
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
        .map(|sentence| json!({"subject": sentence.subject.name(), "text": sentence.text}))
        .collect();
    let records: Vec<Value> = inputs.inputs.iter().map(|i| input(summary, i)).collect();
    json!({
        "format_version": FORMAT_VERSION,
        "query": {
            "query_id": summary.query_id,
            "sql": summary.sql,
            "status": summary.status,
            "error": summary.error,
            "level": summary.level,
            "sample_rate": summary.sample_rate,
            "planning_ns": summary.planning_ns,
            "execution_ns": summary.execution_ns,
            "busy_ns": summary.busy_ns,
            "rows_returned": summary.rows_returned,
            "events_dropped": summary.events_dropped,
            "reservations": summary.caveats(),
        },
        "verdict": verdict::json(verdict),
        "remedies": remedy_section::json(remedies),
        "left_out": excluded_rows::json(excluded, summary),
        "applied_quarantines": excluded_rows::quarantined_json(excluded),
        "plan": plan.operators.iter().map(operator).collect::<Vec<_>>(),
        "time_spent": {
            "sentences": sentences,
            "slowest_result_row": slowest,
            "least_even_tasks": uneven,
        },
        "expensive_inputs": {
            "recorded": summary.has_records(),
            "verdict": inputs.verdict(summary),
            "rows_untold": inputs.unattributed_sentence(summary),
            "records": records,
        },
        "predicates": predicates.found.iter().map(predicate).collect::<Vec<_>>(),
        "proposed_quarantine": quarantine::json(proposal.as_ref()),
        "deeper": next_steps,
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
        "cache_hits": operator.cache_hits,
        "cache_misses": operator.cache_misses,
        "peak_memory_bytes": operator.peak_memory_bytes,
        "spilled_bytes": operator.spilled_bytes,
        "row_skew": operator.row_skew,
        "time_skew": operator.time_skew,
    })
}

fn predicate(found: &Predicate) -> Value {
    json!({
        "table": found.table,
        "predicate": found.predicate,
        "matched_rows": found.matched,
        "table_rows": found.table_rows,
        "row_share": found.row_share(),
        "latency_share": found.time_share,
        "query_without_ns": found.without_ns,
        "verify": found.verify,
    })
}

fn input(summary: &QuerySummary, input: &ExpensiveInput) -> Value {
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
        "sentence": anomalous.then(|| input.sentence(summary)),
        "impact_ns": input.impact_ns,
        "total_ns": input.total_ns,
        "remediated_ns": input.remediated_ns,
        "result_rows": input.result_rows,
        "self_ns": summary.has_log().then_some(input.self_ns),
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
