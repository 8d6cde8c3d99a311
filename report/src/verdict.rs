//! The section about why the query took its time.

use serde_json::{Value, json};
use skewer_diagnosis::units::counted;
use skewer_diagnosis::{Diagnosis, QuerySummary, Verdict};

use crate::document::{Document, Mark};

pub(crate) fn section(verdict: &Verdict, summary: &QuerySummary) -> Document {
    if summary.level == "off" {
        return Document::default();
    }
    let mut section = Document::titled("Verdict");
    let Some(first) = verdict.causes.first() else {
        let nothing =
            "No cause stands out: no finding of sys.diagnoses costs 5 % of the query's time.";
        section.push_item(Mark::Good, nothing);
        return section;
    };
    for (place, cause) in verdict.causes.iter().enumerate() {
        let mark = match place {
            0 => Mark::Cause,
            _ => Mark::Fact,
        };
        let mut sentence = cause.sentence();
        if cause.explains > 0 {
            let findings = counted(cause.explains, "finding");
            sentence.push_str(&format!(" It explains {findings} more."));
        }
        section.push_item(mark, &sentence);
    }
    if !first.advice.is_empty() {
        section.push_item(Mark::Advice, &first.advice);
    }
    section
}

pub(crate) fn json(verdict: &Verdict) -> Vec<Value> {
    verdict.causes.iter().map(cause).collect()
}

fn cause(cause: &Diagnosis) -> Value {
    json!({
        "rule": cause.rule,
        "severity": cause.severity,
        "subject": cause.subject,
        "cause": cause.cause,
        "advice": cause.advice,
        "wasted_ns": cause.wasted_ns,
        "explains": cause.explains,
        "evidence_sql": cause.evidence_sql,
    })
}
