//! Statements to go on with.

use skewer_profiling::LineageMode;

use crate::expensive_inputs::{ExpensiveInput, ExpensiveInputs};
use crate::predicates::Predicates;
use crate::record::table_sql;
use crate::summary::QuerySummary;
use crate::time_spent::TimeSpent;
use crate::verdict::{EXPENSIVE_INPUT, Verdict};

/// Statements that each run as they stand.
pub(crate) fn next_steps(
    summary: &QuerySummary,
    verdict: &Verdict,
    time_spent: &TimeSpent,
    inputs: &ExpensiveInputs,
    predicates: &Predicates,
) -> Vec<String> {
    let query_id = summary.query_id;
    // Expensive inputs have statements of their own below.
    let cause = verdict
        .causes
        .iter()
        .find(|cause| cause.rule != EXPENSIVE_INPUT);
    let evidence = cause.and_then(|cause| Some(format!("{};", cause.evidence_sql.as_ref()?)));
    if !summary.has_records() {
        return match summary.level.as_str() {
            "off" => vec![format!(
                "SELECT * FROM sys.queries WHERE query_id = {query_id};"
            )],
            _ => {
                let mut statements = vec![
                    format!("SELECT * FROM sys.operator_contribution WHERE query_id = {query_id};"),
                    format!("SELECT * FROM sys.diagnoses WHERE query_id = {query_id};"),
                ];
                statements.extend(evidence);
                statements
            }
        };
    }
    let slowest = time_spent.slowest.as_ref();
    let has_rows = summary.status == "finished" && summary.rows_returned > Some(0);
    let output_row = slowest.map(|slowest| slowest.output_row);
    let output_row = output_row.or(has_rows.then_some(0));
    let here = summary.imported_from.is_none();
    let mut statements = vec![format!(
        "SELECT * FROM sys.expensive_inputs WHERE query_id = {query_id} ORDER BY rank;"
    )];
    if summary.has_log() {
        let output_row = output_row.filter(|_| !inputs.without_ids);
        statements.extend(output_row.map(|output_row| {
            format!(
                "SELECT * FROM backward_trace({query_id}, {output_row}) ORDER BY latency_ns DESC;"
            )
        }));
    } else if here {
        // All other steps need the log.
        statements.push(format!("SET profile.lineage = '{}';", LineageMode::Log));
        // A statement that changed something is not run again.
        let again = summary.is_query();
        statements.extend(again.then(|| format!("EXPLAIN PROFILE QUERY {query_id};")));
    }
    let anomalous = inputs.anomalous().next();
    let fan_out = inputs.anomalous().find(|input| input.fan_out.is_some());
    if (anomalous.is_none() || fan_out.is_some())
        && summary.has_log()
        && has_rows
        && !inputs.without_ids
    {
        // Operators that are not timed record by record may have spent their time on one.
        statements.push(format!(
            "SELECT * FROM sys.apportioned_latency WHERE query_id = {query_id} ORDER BY latency_ns DESC LIMIT 5;"
        ));
    }
    // Skips a record that is no longer in its table.
    let is_there = |input: &&ExpensiveInput| here && input.record.is_ok();
    statements.extend(anomalous.filter(is_there).map(|input| {
        format!(
            "SELECT _row_id, * FROM {} WHERE _row_id = {};",
            table_sql(&input.table),
            input.row_id
        )
    }));
    // Offers the run without the rows of a predicate, or without the record.
    let verify = predicates
        .found
        .iter()
        .find_map(|found| found.verify.clone());
    let left_out = fan_out.filter(is_there);
    let left_out = left_out.or(anomalous.filter(is_there).filter(|_| verify.is_none()));
    statements.extend(left_out.filter(|_| summary.is_query()).map(|input| {
        let (table, row_id) = (table_sql(&input.table), input.row_id);
        format!("EXPLAIN PROFILE QUERY {query_id} WITHOUT {table} (_row_id = {row_id});")
    }));
    statements.extend(verify);
    statements.extend(evidence);
    statements
}
