//! The section about where the time went.

use skewer_diagnosis::{QuerySummary, TimeSpent};

use crate::document::{Document, Mark};

pub(crate) fn section(time_spent: &TimeSpent, summary: &QuerySummary) -> Document {
    let mut section = Document::titled("Where the time went");
    if time_spent.sentences.is_empty() {
        let nothing = match summary.level.as_str() {
            "off" => "Not recorded: level off keeps no totals of operators.",
            _ => "No operator ran.",
        };
        section.push_item(Mark::Fact, nothing);
    }
    for sentence in &time_spent.sentences {
        section.push_item(Mark::Fact, &sentence.text);
    }
    section
}
