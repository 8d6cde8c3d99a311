//! The section about expensive input records.

use skewer_diagnosis::units::{counted, duration, times};
use skewer_diagnosis::{Anomaly, ExpensiveInput, ExpensiveInputs, QuerySummary, expensive_inputs};

use crate::document::{Document, Mark, Style};
use crate::layout::{WIDTH, left, shortened};

/// Columns of a fact's label, and before it.
const LABEL: usize = 20;
const INDENT: usize = 6;

pub(crate) fn section(inputs: &ExpensiveInputs, summary: &QuerySummary) -> Document {
    let mut section = Document::titled(expensive_inputs::SECTION);
    let unattributed = inputs.unattributed_sentence(summary);
    if let Some(verdict) = inputs.verdict(summary) {
        let is_known = summary.has_records() && !inputs.without_ids;
        let mark = if is_known { Mark::Good } else { Mark::Fact };
        section.push_item(mark, &verdict);
    } else {
        for input in inputs.anomalous() {
            section.push_item(Mark::Finding, &input.sentence(summary));
            for (label, text) in facts(input, summary) {
                let indent = " ".repeat(INDENT);
                let line = format!("{indent}{}{text}", left(label, LABEL));
                section.push_styled(line, Style::Plain);
            }
        }
        let next: Vec<String> = inputs
            .notable_ordinary(summary)
            .map(|input| format!("{} ({})", input.reference(), duration(input.impact_ns)))
            .collect();
        if !next.is_empty() {
            section.push_item(Mark::Fact, &format!("Next by impact: {}.", next.join(", ")));
        }
    }
    if let Some(unattributed) = unattributed {
        section.push_item(Mark::Fact, &unattributed);
    }
    section
}

/// What the report tells about an anomalous record below its sentence: labels and texts.
fn facts(input: &ExpensiveInput, summary: &QuerySummary) -> Vec<(&'static str, String)> {
    let mut facts = vec![("the record", record_line(input))];
    if let Some(rows) = input.result_rows {
        facts.push(("affects", counted(rows, "result row")));
    }
    // Latencies are times of expressions, which took little for a fan-out.
    let latencies = input.total_ns.zip(input.remediated_ns);
    let is_slow = input.anomaly != Some(Anomaly::FanOut);
    if let Some((total, remediated)) = latencies.filter(|_| is_slow) {
        let rows = match input.result_rows {
            Some(1) => "of that row",
            _ => "of the slowest of these rows",
        };
        facts.push(("total latency", format!("{} {rows}", duration(total))));
        facts.push((
            "remediated latency",
            format!("{} {rows} without the record", duration(remediated)),
        ));
    }
    if let Some(fan_out) = &input.fan_out {
        let time = duration(fan_out.apportioned_ns);
        facts.push(("time in operators", format!("{time} (apportioned)")));
    }
    if summary.has_log() && input.self_ns > 0 {
        let certainty = match (input.error_ns, input.method.as_deref()) {
            (Some(error), Some(method)) => format!(" ± {} ({method})", duration(error)),
            _ => String::new(),
        };
        let median = input.median_ns.filter(|median| *median > 0).map(|median| {
            let factor = times(input.self_ns as f64 / median as f64);
            format!(", {factor} the median record's {}", duration(median))
        });
        let self_ns = duration(input.self_ns);
        let median = median.unwrap_or_default();
        facts.push(("self time", format!("{self_ns}{certainty}{median}")));
    }
    facts
}

/// The record in one line: `movie: 17, ratings: '1_5,2…'`, or why it cannot be shown.
fn record_line(input: &ExpensiveInput) -> String {
    let text = match &input.record {
        Ok(values) => {
            let values = values
                .iter()
                .map(|(name, value)| format!("{name}: {value}"));
            values.collect::<Vec<_>>().join(", ")
        }
        Err(reason) => format!("({reason})"),
    };
    shortened(&text, WIDTH - INDENT - LABEL)
}
