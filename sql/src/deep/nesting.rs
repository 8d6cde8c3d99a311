//! How deep a statement is, as far as its text says it.

use skewer_compat::statement::depth::DEEPEST;

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

/// Looks for what is too deep to be parsed; gives it and the byte at which it is.
///
/// Quoted text and comments are passed over. What is open and never closed counts as the parser would take it:
/// to the end of the text.
pub(crate) fn too_deep(sql: &str) -> Option<(TooDeep, usize)> {
    let bytes = sql.as_bytes();
    // For each open bracket how many words and operators stand in a row in it.
    let mut open: Vec<usize> = vec![0];
    // `ARRAY<` of types, which open without being closed by a parenthesis.
    let mut types = 0_usize;
    // `[]` of types in a row, without a comma between them.
    let mut dimensions = 0_usize;
    let mut explains = 0;
    let mut word: &[u8] = b"";
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        at += 1;
        let mut links = 0;
        match byte {
            b'\'' | b'"' | b'`' => {
                let escapes = byte == b'\'' && word.eq_ignore_ascii_case(b"e");
                at = after_quote(bytes, at, byte, escapes);
            }
            b'-' if bytes.get(at) == Some(&b'-') => {
                at = after(bytes, at, b"\n");
                continue;
            }
            b'/' if bytes.get(at) == Some(&b'*') => {
                at = after_comment(bytes, at + 1);
                continue;
            }
            b'$' => {
                if let Some(tag) = dollar_tag(&bytes[start..]) {
                    at = after(bytes, start + tag.len(), tag);
                }
            }
            b'(' | b'[' | b'{' => {
                // The dimensions of a type nest: `INT[][]`.
                if byte == b'[' && bytes.get(at) == Some(&b']') {
                    at += 1;
                    dimensions += 1;
                } else {
                    open.push(0);
                }
            }
            b')' | b']' | b'}' => {
                if open.len() > 1 {
                    open.pop();
                }
                (types, dimensions) = (0, 0);
            }
            b'<' if is(word, &[b"ARRAY", b"STRUCT", b"MAP"]) => types += 1,
            b',' => {
                (explains, dimensions) = (0, 0);
                if let Some(top) = open.last_mut() {
                    *top = 0;
                }
            }
            b';' => {
                open.clear();
                open.push(0);
                (types, dimensions, explains) = (0, 0, 0);
            }
            byte if is_word(byte) => {
                while bytes.get(at).is_some_and(|next| is_word(*next)) {
                    at += 1;
                }
                links = 1;
            }
            byte if byte.is_ascii_whitespace() => continue,
            _ => links = 1,
        }
        word = match is_word(byte) {
            true => &bytes[start..at],
            false => b"",
        };
        if is(word, &[b"EXPLAIN"]) {
            explains += 1;
        } else if is(word, &[b"SELECT", b"FROM", b"VALUES", b"INSERT"]) {
            explains = 0;
        }
        if explains > MOST_EXPLAINS {
            return Some((TooDeep::Explains, start));
        }
        if let Some(top) = open.last_mut() {
            *top += links;
            if *top > LONGEST_CHAIN {
                return Some((TooDeep::Chain, start));
            }
        }
        if open.len() + types + dimensions > DEEPEST {
            return Some((TooDeep::Brackets, start));
        }
    }
    None
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Whether a word is one of these.
fn is(word: &[u8], these: &[&[u8]]) -> bool {
    these.iter().any(|one| word.eq_ignore_ascii_case(one))
}

/// The byte after the next `end`, or the end of the text.
fn after(bytes: &[u8], from: usize, end: &[u8]) -> usize {
    let rest = &bytes[from..];
    let found = rest.windows(end.len()).position(|window| window == end);
    found.map_or(bytes.len(), |found| from + found + end.len())
}

/// The byte after a quoted text whose first byte is at `from`. A doubled quote ends one and begins another.
fn after_quote(bytes: &[u8], from: usize, quote: u8, escapes: bool) -> usize {
    let mut at = from;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        if byte == quote {
            return at;
        }
        if escapes && byte == b'\\' {
            at += 1;
        }
    }
    bytes.len()
}

/// The byte after a comment of `/*`, which nests.
fn after_comment(bytes: &[u8], from: usize) -> usize {
    let mut depth = 1;
    let mut at = from;
    while depth > 0 && at < bytes.len() {
        match bytes.get(at..at + 2) {
            Some(b"*/") => (depth, at) = (depth - 1, at + 2),
            Some(b"/*") => (depth, at) = (depth + 1, at + 2),
            _ => at += 1,
        }
    }
    at
}

/// `$tag$` at the beginning of a text.
fn dollar_tag(bytes: &[u8]) -> Option<&[u8]> {
    let length = bytes[1..].iter().position(|byte| !is_word(*byte))?;
    (bytes[length + 1] == b'$').then(|| &bytes[..length + 2])
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
