//! The section about remedies for skew.

use serde_json::{Value, json};
use skewer_diagnosis::Remedy;
use skewer_diagnosis::units::duration;

use crate::document::{Document, Mark};

pub(crate) fn section(remedies: &[Remedy]) -> Document {
    if remedies.is_empty() {
        return Document::default();
    }
    let mut section = Document::titled("Remedies");
    for remedy in remedies {
        let mark = match remedy.is_applied {
            true => Mark::Good,
            false => Mark::Fact,
        };
        section.push_item(mark, &sentence(remedy));
    }
    if remedies.iter().any(|remedy| remedy.verdict == "advised") {
        section.push_item(
            Mark::Advice,
            "SET remedies = 'auto'; tries them in later runs of the statement, and keeps what saves time.",
        );
    }
    section
}

/// What the remedy does, why, and what it saves.
fn sentence(remedy: &Remedy) -> String {
    let Remedy {
        subject, because, ..
    } = remedy;
    let action = match remedy.remedy.as_str() {
        "map" => format!("Give {subject} partitions by a map, so that loads are even"),
        "split" => format!("Deal the rows of {subject} over all partitions"),
        "deal NULL" => "Deal rows with a NULL key over all partitions".to_owned(),
        "drop NULL" => "Leave rows with a NULL key out, which match nothing".to_owned(),
        other => format!("{other} for {subject}"),
    };
    let predicted = duration(remedy.predicted_ns);
    let saved = match remedy.measured_ns {
        Some(measured) if measured > 0 => format!(", saves {} so far", duration(measured)),
        Some(_) => ", saves nothing so far".to_owned(),
        None => String::new(),
    };
    let state = match (remedy.verdict.as_str(), remedy.is_applied) {
        ("advised", _) => "not tried",
        ("taken back", _) => "taken back",
        ("kept", true) => "kept, and this run had it",
        ("kept", false) => "kept, but this run went without it to compare",
        (_, true) => "on trial, and this run had it",
        (_, false) => "on trial, but this run went without it to compare",
    };
    format!("{action}: {because}. Predicted to save {predicted}{saved}; {state}.")
}

pub(crate) fn json(remedies: &[Remedy]) -> Vec<Value> {
    let remedies = remedies.iter().map(|remedy| {
        json!({
            "remedy": remedy.remedy,
            "subject": remedy.subject,
            "because": remedy.because,
            "predicted_ns": remedy.predicted_ns,
            "measured_ns": remedy.measured_ns,
            "verdict": remedy.verdict,
            "is_applied": remedy.is_applied,
        })
    });
    remedies.collect()
}
