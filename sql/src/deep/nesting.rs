//! How deep a statement nests, as far as its text tells.

use skewer_compat::statement::depth::DEEPEST;

use crate::lex::{Kind, tokens};

/// How many words and operators may stand in a row without a comma: the parser makes a tree of them which
/// is as deep, and dropping that takes stack.
const LONGEST_CHAIN: usize = 1_000_000;

/// How many EXPLAIN may stand before a statement, which may have one: a parser calls itself for each.
const MOST_EXPLAINS: usize = 16;

/// What is too much in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TooDeep {
    /// More than [`DEEPEST`] brackets are open.
    Brackets,
    /// More than [`LONGEST_CHAIN`] words and operators stand in a row.
    Chain,
    /// More than [`MOST_EXPLAINS`] EXPLAIN stand before a statement.
    Explains,
}

impl std::fmt::Display for TooDeep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Brackets => write!(
                f,
                "here more than {DEEPEST} brackets are open, and no more are read"
            ),
            Self::Chain => write!(
                f,
                "here more than {LONGEST_CHAIN} words and operators stand without a comma between them, and no \
                 more are read"
            ),
            Self::Explains => write!(
                f,
                "here more than {MOST_EXPLAINS} EXPLAIN stand before a statement, and no more are read"
            ),
        }
    }
}

/// Looks for nesting that is too deep to be parsed; returns it and its byte.
///
/// Passes over quoted text and comments. One that is never closed ends with the text, as for the parser.
pub(crate) fn too_deep(sql: &str) -> Option<(TooDeep, usize)> {
    // For each open bracket how many words and operators stand in a row in it.
    let mut open: Vec<usize> = vec![0];
    // `ARRAY<` of types, which open without being closed by a parenthesis.
    let mut types = 0_usize;
    // `[]` of types in a row, without a comma between them.
    let mut dimensions = 0_usize;
    let mut explains = 0;
    let mut word = "";
    let mut tokens = tokens(sql).peekable();
    while let Some(token) = tokens.next() {
        let mut links = 0;
        match (token.kind, token.text) {
            (Kind::Space | Kind::Comment, _) => continue,
            (Kind::Text | Kind::QuotedName, _) => {}
            (Kind::Word | Kind::Number, _) => links = 1,
            // The dimensions of a type nest: `INT[][]`.
            (_, "[") if tokens.next_if(|next| next.text == "]").is_some() => dimensions += 1,
            (_, "(" | "[" | "{") => open.push(0),
            (_, ")" | "]" | "}") => {
                if open.len() > 1 {
                    open.pop();
                }
                (types, dimensions) = (0, 0);
            }
            (_, "<") if is(word, &["ARRAY", "STRUCT", "MAP"]) => types += 1,
            (_, ",") => {
                (explains, dimensions) = (0, 0);
                if let Some(top) = open.last_mut() {
                    *top = 0;
                }
            }
            (_, ";") => {
                open.clear();
                open.push(0);
                (types, dimensions, explains) = (0, 0, 0);
            }
            (_, "$") => {}
            (Kind::Symbol, _) => links = 1,
        }
        word = match token.kind {
            Kind::Word => token.text,
            _ => "",
        };
        if is(word, &["EXPLAIN"]) {
            explains += 1;
        } else if is(word, &["SELECT", "FROM", "VALUES", "INSERT"]) {
            explains = 0;
        }
        if explains > MOST_EXPLAINS {
            return Some((TooDeep::Explains, token.start));
        }
        if let Some(top) = open.last_mut() {
            *top += links;
            if *top > LONGEST_CHAIN {
                return Some((TooDeep::Chain, token.start));
            }
        }
        if open.len() + types + dimensions > DEEPEST {
            return Some((TooDeep::Brackets, token.start));
        }
    }
    None
}

/// Whether a word is one of these.
fn is(word: &str, these: &[&str]) -> bool {
    these.iter().any(|one| word.eq_ignore_ascii_case(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_and_chains_have_a_limit() {
        for (sql, expected) in [
            (
                format!("SELECT {}", "(".repeat(DEEPEST)),
                Some(TooDeep::Brackets),
            ),
            (
                format!("SELECT {}", "f(".repeat(DEEPEST)),
                Some(TooDeep::Brackets),
            ),
            (
                format!("SELECT a::{}", "ARRAY<".repeat(DEEPEST)),
                Some(TooDeep::Brackets),
            ),
            (
                format!("SELECT a::INT{}", "[]".repeat(DEEPEST)),
                Some(TooDeep::Brackets),
            ),
            (
                format!("SELECT 1{}", "+1".repeat(LONGEST_CHAIN)),
                Some(TooDeep::Chain),
            ),
            (format!("SELECT 1{}", ",1".repeat(LONGEST_CHAIN)), None),
            (
                format!("SELECT {}1", "NOT ".repeat(LONGEST_CHAIN)),
                Some(TooDeep::Chain),
            ),
            (
                format!("{} SELECT 1", "EXPLAIN ".repeat(100)),
                Some(TooDeep::Explains),
            ),
            (
                format!("{} SELECT 1", "EXPLAIN PROFILE (LEVEL calls) ".repeat(100)),
                Some(TooDeep::Explains),
            ),
            (format!("SELECT {} 1", "explain, ".repeat(100)), None),
            (format!("SELECT {}", "(1),".repeat(DEEPEST)), None),
            (format!("SELECT {}", "[],".repeat(DEEPEST)), None),
            (format!("SELECT a {}", "< a ".repeat(DEEPEST)), None),
        ] {
            let found = too_deep(&sql).map(|(what, _)| what);
            assert_eq!(found, expected, "{}…", &sql[..20]);
        }
    }

    #[test]
    fn quoted_text_and_comments_are_passed_over() {
        let brackets = "(".repeat(DEEPEST);
        for sql in [
            format!("SELECT '{brackets}'"),
            format!("SELECT 'it''s {brackets}'"),
            format!("SELECT E'it\\'s {brackets}'"),
            format!("SELECT \"{brackets}\""),
            format!("SELECT $${brackets}$$"),
            format!("SELECT $a$ $$ {brackets} $a$"),
            format!("SELECT 1 -- {brackets}\n+ 2"),
            format!("SELECT 1 /* /* */ {brackets} */"),
        ] {
            assert_eq!(too_deep(&sql), None, "{}…", &sql[..20]);
            let after = format!("{sql} {brackets}");
            let found = too_deep(&after).map(|(what, _)| what);
            assert_eq!(found, Some(TooDeep::Brackets), "{}…", &sql[..20]);
        }
        for odd in [
            "$", "'", "$$", "$a", "/*", "/", "-", "e'\\", "*/", "é$", ")",
        ] {
            assert_eq!(too_deep(odd), None, "{odd}");
        }
    }
}
