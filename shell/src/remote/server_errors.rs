//! A server's errors as the shell shows its own.

use std::error::Error;

use tokio_postgres::error::ErrorPosition;

/// What tokio-postgres says when the server wants a password and there is none; it has no type
/// or code for it.
const NO_PASSWORD: &str = "password missing";
/// The same of a server that authenticates without SCRAM bound to its certificate.
const NOT_BOUND: &str = "server did not use channel binding";

/// Whether the server wants a password, and none was there to give.
pub fn wants_password(error: &tokio_postgres::Error) -> bool {
    error
        .source()
        .is_some_and(|source| source.to_string() == NO_PASSWORD)
}

/// Why a connection could not be made, or broke.
pub fn reason(error: &tokio_postgres::Error) -> String {
    if let Some(refused) = error.as_db_error() {
        let hint = refused.hint().map(|hint| format!("; {hint}"));
        return format!("{}{}", refused.message(), hint.unwrap_or_default());
    }
    if error.is_closed() {
        return "the server has closed the connection".to_owned();
    }
    match error.source() {
        Some(source) if source.to_string() == NOT_BOUND => format!(
            "the server has not proved who it is ({NOT_BOUND}); name its certificate with --certificate"
        ),
        Some(source) if source.to_string() == NO_PASSWORD => {
            "the server asks for a password: give it in PGPASSWORD".to_owned()
        }
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}

/// A statement's error, with the line and a caret if its place is known.
pub fn statement(error: &tokio_postgres::Error, sql: &str) -> String {
    let Some(told) = error.as_db_error() else {
        return reason(error);
    };
    let mut text = told.message().to_owned();
    if let Some(ErrorPosition::Original(position)) = told.position() {
        text.push_str(&caret(sql, *position));
    }
    if let Some(hint) = told.hint() {
        text.push_str(&format!("\n  {hint}"));
    }
    text
}

/// The line of `sql` with the character at `position`, from 1, and a caret below it.
fn caret(sql: &str, position: u32) -> String {
    let before = position.saturating_sub(1) as usize;
    let before: String = sql.chars().take(before).collect();
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = sql[start..].lines().next().unwrap_or_default();
    // Tabs stay tabs, so that the caret stands under its character on any terminal.
    let indent = before[start..].chars();
    let indent: String = indent.map(|c| if c == '\t' { c } else { ' ' }).collect();
    format!("\n  {line}\n  {indent}^")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carets_are_below_the_character_they_mean() {
        assert_eq!(
            caret("SELECT 'ä',\n  nothing FROM t", 15),
            "\n    nothing FROM t\n    ^"
        );
        assert_eq!(caret("SELECT", 7), "\n  SELECT\n        ^");
    }
}
