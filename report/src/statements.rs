//! The SQL behind a profile.

use skewer_diagnosis::Section;

/// All statements in the order in which they ran, under comments with their sections' titles. Each
/// runs as it stands.
pub(crate) fn lines(statements: &[Section]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut section = "";
    for statement in statements {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        if statement.title != section {
            section = statement.title;
            lines.push(format!("-- # {section}"));
        }
        lines.extend(statement.sql.trim_end().lines().map(str::to_owned));
        if let Some(last) = lines.last_mut() {
            last.push(';');
        }
    }
    lines
}
