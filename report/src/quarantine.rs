//! The section about a quarantine that is worth creating.

use serde_json::{Value, json};
use skewer_diagnosis::{QuarantineProposal, quarantine};

use crate::document::{Document, Mark, Style};

/// The section; empty without a proposal.
pub(crate) fn section(proposal: Option<&QuarantineProposal>) -> Document {
    let Some(proposal) = proposal else {
        return Document::default();
    };
    let mut section = Document::titled(quarantine::SECTION);
    section.push_item(Mark::Advice, &proposal.gain_sentence());
    for statement in &proposal.statements {
        section.push_styled(format!("    {statement}"), Style::Statement);
    }
    section.push_item(Mark::Advice, &proposal.undo_sentence());
    section
}

/// The section for a program; `null` without a proposal.
pub(crate) fn json(proposal: Option<&QuarantineProposal>) -> Value {
    proposal.map_or(Value::Null, |proposal| {
        json!({
            "table": proposal.table,
            "predicate": proposal.predicate,
            "existing": proposal.existing,
            "statements": proposal.statements,
            "undo": proposal.undo,
            "query_without_ns": proposal.gain.without_ns,
            "query_ns": proposal.gain.with_ns,
            "measured_against": proposal.gain.measured_against,
            "sentence": proposal.gain_sentence(),
        })
    })
}
