//! The SQL behind the report.

use super::answer::Asked;

/// Every statement that the report ran, in its order, under a comment that says for what. Each
/// runs as it stands.
pub(super) fn lines(asked: &[Asked]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut section = "";
    for asked in asked {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        if asked.section != section {
            section = asked.section;
            lines.push(format!("-- # {section}"));
        }
        lines.extend(asked.sql.trim_end().lines().map(str::to_owned));
        if let Some(last) = lines.last_mut() {
            last.push(';');
        }
    }
    lines
}
