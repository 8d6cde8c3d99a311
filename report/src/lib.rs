//! A [`Profile`] as text, JSON, a graph for Graphviz, or a trace. This crate runs no SQL.
//!
//! ```text
//!   Profile ── text ──────▶ Document ──▶ lines, or lines in colour for a terminal
//!          ├── json ──────▶ one JSON document
//!          ├── graphviz ──▶ a graph for `dot`
//!          └── statements ▶ the SQL behind the profile
//! ```
//!
//! * [`document`]: lines that know what they are; `colour` paints them by that
//! * `summary`, `excluded_rows`, `plan_tree`, `time_spent`, `expensive_inputs`, `predicates`,
//!   `quarantine`: the sections of the text
//! * `json`, `graphviz`, `statements`: the other formats; `diff`: the comparison of two queries
//! * [`trace_events`]: calls of operators for ui.perfetto.dev

mod colour;
mod diff;
pub mod document;
mod excluded_rows;
mod expensive_inputs;
mod graphviz;
mod json;
mod layout;
mod plan_tree;
mod predicates;
mod quarantine;
mod remedies;
mod statements;
mod summary;
mod time_spent;
pub mod trace_events;
mod verdict;

use skewer_diagnosis::{Profile, ProfileDiff};
use skewer_sql::ProfileFormat;

pub use document::{Document, Line, Span, Style};

/// How a report is written.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// For whom.
    pub format: ProfileFormat,
    /// Whether to print the SQL behind each section instead of its result.
    pub as_sql: bool,
}

/// Renders a profile.
pub fn render(profile: &Profile, options: Options) -> Document {
    match options.format {
        _ if options.as_sql => Document::from_texts(statements::lines(&profile.statements)),
        ProfileFormat::Text => text(profile),
        ProfileFormat::Json => Document::from_texts(json::lines(profile)),
        ProfileFormat::Graphviz => {
            let title = summary::first_line(&profile.summary);
            Document::from_texts(graphviz::lines(&profile.plan, &title))
        }
    }
}

/// Renders a comparison; `None` if the format cannot show one.
pub fn render_diff(diff: &ProfileDiff, options: Options) -> Option<Document> {
    match options.format {
        _ if options.as_sql => Some(Document::from_texts(statements::lines(&diff.statements))),
        ProfileFormat::Text => Some(diff::text(diff)),
        ProfileFormat::Json => Some(Document::from_texts(diff::json_lines(diff))),
        ProfileFormat::Graphviz => None,
    }
}

/// Renders a profile as text for a person.
pub fn text(profile: &Profile) -> Document {
    let summary = &profile.summary;
    let mut sections = vec![
        summary::section(summary),
        verdict::section(&profile.verdict, summary),
        remedies::section(&profile.remedies),
        excluded_rows::section(&profile.excluded, summary),
        plan_tree::section(&profile.plan),
        time_spent::section(&profile.time_spent, summary),
        expensive_inputs::section(&profile.expensive_inputs, summary),
        predicates::section(&profile.predicates, summary),
        quarantine::section(profile.quarantine.as_ref()),
    ];
    let mut next_steps = Document::titled("To go deeper");
    for statement in &profile.next_steps {
        next_steps.push_styled(format!("  {statement}"), Style::Statement);
    }
    sections.push(next_steps);
    Document::join_sections(sections)
}

/// Renders a profile as one JSON document, indented. docs/explain-profile.md describes its fields.
pub fn json(profile: &Profile) -> String {
    json::lines(profile).join("\n")
}
