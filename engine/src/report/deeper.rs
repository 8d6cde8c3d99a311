//! Statements to go on with.

use skewer_profiling::LineageMode;

use super::base_record::table_sql;
use super::blame::Predicates;
use super::expensive_inputs::{ExpensiveInput, ExpensiveInputs};
use super::header::Header;
use super::time_spent::TimeSpent;

/// Ready statements: each runs as it stands.
pub(super) fn statements(
    header: &Header,
    time_spent: &TimeSpent,
    inputs: &ExpensiveInputs,
    predicates: &Predicates,
) -> Vec<String> {
    let query_id = header.query_id;
    if !header.has_records() {
        return match header.level.as_str() {
            "off" => vec![format!(
                "SELECT * FROM sys.queries WHERE query_id = {query_id};"
            )],
            _ => {
                let mut statements = vec![
                    format!("SELECT * FROM sys.operator_contribution WHERE query_id = {query_id};"),
                    format!("SELECT * FROM sys.diagnoses WHERE query_id = {query_id};"),
                ];
                statements.extend(time_spent.evidence.iter().cloned());
                statements
            }
        };
    }
    let slowest = time_spent.slowest.as_ref();
    let has_rows = header.status == "finished" && header.rows_returned > Some(0);
    let output_row = slowest.map(|slowest| slowest.output_row);
    let output_row = output_row.or(has_rows.then_some(0));
    let here = header.imported_from.is_none();
    let mut statements = vec![format!(
        "SELECT * FROM sys.expensive_inputs WHERE query_id = {query_id} ORDER BY rank;"
    )];
    if header.has_log() {
        let output_row = output_row.filter(|_| !inputs.without_ids);
        statements.extend(output_row.map(|output_row| {
            format!(
                "SELECT * FROM backward_trace({query_id}, {output_row}) ORDER BY latency_ns DESC;"
            )
        }));
    } else if here {
        // What else there is to ask needs the log.
        statements.push(format!("SET profile.lineage = '{}';", LineageMode::Log));
        // A statement that changed something is not run again.
        let again = header.is_query();
        statements.extend(again.then(|| format!("EXPLAIN PROFILE QUERY {query_id};")));
    }
    let anomalous = inputs.anomalous().next();
    let fan_out = inputs.anomalous().find(|input| input.fan_out.is_some());
    if (anomalous.is_none() || fan_out.is_some())
        && header.has_log()
        && has_rows
        && !inputs.without_ids
    {
        // What is not timed record by record may have been spent on one all the same.
        statements.push(format!(
            "SELECT * FROM sys.apportioned_latency WHERE query_id = {query_id} ORDER BY latency_ns DESC LIMIT 5;"
        ));
    }
    // One that is no longer there is not to be looked at.
    let is_there = |input: &&ExpensiveInput| here && input.record.is_ok();
    statements.extend(anomalous.filter(is_there).map(|input| {
        format!(
            "SELECT _row_id, * FROM {} WHERE _row_id = {};",
            table_sql(&input.table),
            input.row_id
        )
    }));
    // Without a record that only this tells apart, and without the rows of a predicate.
    let verify = predicates
        .blamed
        .iter()
        .find_map(|blamed| blamed.verify.clone());
    let left_out = fan_out.filter(is_there);
    let left_out = left_out.or(anomalous.filter(is_there).filter(|_| verify.is_none()));
    statements.extend(left_out.filter(|_| header.is_query()).map(|input| {
        let (table, row_id) = (table_sql(&input.table), input.row_id);
        format!("EXPLAIN PROFILE QUERY {query_id} WITHOUT {table} (_row_id = {row_id});")
    }));
    statements.extend(verify);
    statements.extend(time_spent.evidence.iter().cloned());
    statements
}

/// The section as text.
pub(super) fn lines(statements: &[String]) -> Vec<String> {
    let mut lines = vec!["To go deeper".to_owned()];
    lines.extend(statements.iter().map(|statement| format!("  {statement}")));
    lines
}
