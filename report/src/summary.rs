//! The report's head: the query, how long it took, and what limits the numbers.

use skewer_diagnosis::QuerySummary;
use skewer_diagnosis::units::{counted, duration};

use crate::document::{Document, Style};
use crate::layout::{WIDTH, shortened};

/// Number, times, rows and level of the query, in one line.
pub(crate) fn first_line(summary: &QuerySummary) -> String {
    let mut facts = vec![
        format!("Query {}", summary.query_id),
        format!(
            "{} (planning {}, execution {})",
            duration(summary.query_ns()),
            duration(summary.planning_ns),
            duration(summary.execution_ns)
        ),
    ];
    facts.extend(summary.rows_returned.map(|rows| counted(rows, "row")));
    facts.push(match &summary.lineage {
        Some(lineage) if summary.has_carried() => format!("level {}, {lineage}", summary.level),
        _ => format!("level {}", summary.level),
    });
    facts.join(" · ")
}

pub(crate) fn section(summary: &QuerySummary) -> Document {
    let mut section = Document::titled(&first_line(summary));
    let sql: Vec<&str> = summary.sql.split_whitespace().collect();
    let sql = shortened(&sql.join(" "), WIDTH - 2);
    section.push_styled(format!("  {sql}"), Style::Plain);
    for caveat in summary.caveats() {
        let caveat = shortened(&caveat, WIDTH - 4);
        section.push_styled(format!("  ! {caveat}"), Style::Caveat);
    }
    section
}
