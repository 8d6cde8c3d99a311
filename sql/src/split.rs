//! A script cut at its semicolons.

use crate::lex::{Kind, tokens};
use crate::trace_parent::names_trace_parent;

/// One statement of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptStatement {
    /// The statement's text without its semicolon, and without the space and comments around it. A comment that
    /// names the caller's span stays.
    pub sql: String,
    /// Line of the script on which it begins, from 1.
    pub line: u64,
    /// Whether a semicolon ended it.
    pub terminated: bool,
}

/// Cuts a script at the semicolons that end statements.
///
/// Semicolons in strings, quoted names, comments and dollar-quoted text do not. Pieces with
/// nothing but space and comments are left out.
pub fn split(script: &str) -> Vec<ScriptStatement> {
    cut(script).0
}

/// Whether `text` ends outside of strings and comments and its last statement has its semicolon.
///
/// What an interactive shell asks before it runs what was typed.
pub fn is_complete(text: &str) -> bool {
    let (statements, is_closed) = cut(text);
    is_closed && statements.last().is_some_and(|last| last.terminated)
}

/// The statements, and whether the last token is closed.
fn cut(script: &str) -> (Vec<ScriptStatement>, bool) {
    let mut statements = Vec::new();
    let mut is_closed = true;
    // The bytes and the first line of the statement so far.
    let mut current: Option<(usize, usize, u64)> = None;
    // The same of a comment that belongs to the next statement.
    let mut before: Option<(usize, u64)> = None;
    let mut line = 1;
    for token in tokens(script) {
        is_closed = token.closed;
        let end = token.start + token.text.len();
        match token.kind {
            Kind::Comment if names_trace_parent(&token) => match &mut current {
                Some((_, until, _)) => *until = end,
                None => before = before.or(Some((token.start, line))),
            },
            Kind::Space | Kind::Comment => {}
            Kind::Symbol if token.text == ";" => {
                let ended = current.take();
                before = None;
                statements.extend(ended.map(|current| statement(script, current, true)));
            }
            _ => {
                let (from, line) = match (current, before.take()) {
                    (Some((from, _, line)), _) | (None, Some((from, line))) => (from, line),
                    (None, None) => (token.start, line),
                };
                current = Some((from, end, line));
            }
        }
        line += token.text.matches('\n').count() as u64;
    }
    statements.extend(current.map(|current| statement(script, current, false)));
    (statements, is_closed)
}

fn statement(
    script: &str,
    (from, end, line): (usize, usize, u64),
    terminated: bool,
) -> ScriptStatement {
    ScriptStatement {
        sql: script[from..end].to_owned(),
        line,
        terminated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(script: &str) -> Vec<String> {
        split(script).into_iter().map(|p| p.sql).collect()
    }

    #[test]
    fn semicolons_inside_quotes_and_comments_do_not_cut() {
        assert_eq!(
            texts("SELECT ';', \"a;b\" -- no; cut\n; /* ; /* ; */ ; */ SELECT 'it''s;' ;;"),
            ["SELECT ';', \"a;b\"", "SELECT 'it''s;'"]
        );
        assert_eq!(
            texts("SELECT $a$ ; $a$; SELECT $1"),
            ["SELECT $a$ ; $a$", "SELECT $1"]
        );
        assert_eq!(
            texts("SELECT E'it\\'s; one'; SELECT 2"),
            ["SELECT E'it\\'s; one'", "SELECT 2"]
        );
    }

    #[test]
    fn comments_that_name_the_callers_span_stay() {
        let parent = "/*traceparent='00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'*/";
        let script = format!(
            "/* x */ {parent} SELECT 1 /* y */; SELECT 2 /* z */ {parent} ; {parent} ; SELECT 3"
        );
        assert_eq!(
            texts(&script),
            [
                format!("{parent} SELECT 1"),
                format!("SELECT 2 /* z */ {parent}"),
                "SELECT 3".to_owned()
            ]
        );
    }

    #[test]
    fn pieces_know_their_line() {
        let pieces = split("SELECT 1;\n\n-- two\nSELECT\n2;\nSELECT 3");
        let lines: Vec<_> = pieces.iter().map(|p| p.line).collect();
        assert_eq!(lines, [1, 4, 6]);
        assert!(!pieces[2].terminated);
    }

    #[test]
    fn a_statement_is_complete_at_its_semicolon_outside_of_quotes() {
        assert!(is_complete("SELECT 1;"));
        assert!(is_complete("SELECT 1; -- done"));
        assert!(!is_complete("SELECT 1"));
        assert!(!is_complete("SELECT ';"));
        assert!(!is_complete("SELECT 1; /* more"));
        assert!(!is_complete("SELECT 1; SELECT"));
        assert!(!is_complete(""));
    }
}
