//! The section about conditions that separate expensive records from others.

use skewer_diagnosis::{Predicates, QuerySummary, predicates};

use crate::document::{Document, Mark};

/// The section; empty if no predicate was found.
pub(crate) fn section(predicates: &Predicates, summary: &QuerySummary) -> Document {
    if predicates.found.is_empty() {
        return Document::default();
    }
    let mut section = Document::titled(predicates::SECTION);
    for predicate in &predicates.found {
        section.push_item(Mark::Predicate, &predicate.sentence(summary));
    }
    section
}
