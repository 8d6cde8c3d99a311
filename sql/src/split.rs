//! A script cut at its semicolons.

/// One statement of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptStatement {
    /// The statement's text without its semicolon and the space around it.
    pub sql: String,
    /// Line of the script on which it begins, from 1.
    pub line: u64,
    /// Whether a semicolon ended it.
    pub terminated: bool,
}

/// What the cutter is inside of.
#[derive(Debug, PartialEq, Eq)]
enum Within {
    Statement,
    /// `'…'`, `"…"`, `` `…` ``: ends at the same character; a doubled one does not end it.
    Quoted(char),
    LineComment,
    /// `/* … */`, which nests.
    BlockComment(usize),
    /// `$tag$ … $tag$`.
    Dollar(String),
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
    let (pieces, within) = cut(text);
    matches!(within, Within::Statement | Within::LineComment)
        && pieces.last().is_some_and(|piece| piece.terminated)
}

fn cut(script: &str) -> (Vec<ScriptStatement>, Within) {
    let mut pieces = Vec::new();
    let mut within = Within::Statement;
    let mut start = None; // byte and line of the first character that counts
    let mut end = 0; // byte after the last character that counts
    let mut line = 1;
    let mut chars = script.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|(_, c)| *c);
        let mut counts = true;
        match &mut within {
            Within::Statement => match c {
                ';' => {
                    counts = false;
                    if let Some((from, line)) = start.take() {
                        pieces.push(piece(script, from, end, line, true));
                    }
                }
                '\'' | '"' | '`' => within = Within::Quoted(c),
                '-' if next == Some('-') => {
                    counts = false;
                    within = Within::LineComment;
                }
                '/' if next == Some('*') => {
                    counts = false;
                    chars.next();
                    within = Within::BlockComment(1);
                }
                '$' => {
                    if let Some(tag) = dollar_tag(&script[at..]) {
                        for _ in 1..tag.len() {
                            chars.next();
                        }
                        within = Within::Dollar(tag);
                    }
                }
                c if c.is_whitespace() => counts = false,
                _ => {}
            },
            Within::Quoted(quote) => {
                if c == *quote {
                    if next == Some(c) {
                        chars.next();
                    } else {
                        within = Within::Statement;
                    }
                }
            }
            Within::LineComment => {
                counts = false;
                if c == '\n' {
                    within = Within::Statement;
                }
            }
            Within::BlockComment(depth) => {
                counts = false;
                if c == '*' && next == Some('/') {
                    chars.next();
                    *depth -= 1;
                    if *depth == 0 {
                        within = Within::Statement;
                    }
                } else if c == '/' && next == Some('*') {
                    chars.next();
                    *depth += 1;
                }
            }
            Within::Dollar(tag) => {
                if c == '$' && script[at..].starts_with(tag.as_str()) {
                    for _ in 1..tag.len() {
                        chars.next();
                    }
                    within = Within::Statement;
                }
            }
        }
        if counts {
            start.get_or_insert((at, line));
            end = chars.peek().map_or(script.len(), |(next, _)| *next);
        }
        if c == '\n' {
            line += 1;
        }
    }
    if let Some((from, line)) = start {
        pieces.push(piece(script, from, end, line, false));
    }
    (pieces, within)
}

fn piece(script: &str, from: usize, to: usize, line: u64, terminated: bool) -> ScriptStatement {
    ScriptStatement {
        sql: script[from..to].to_owned(),
        line,
        terminated,
    }
}

/// `$$` or `$tag$` at the start of `text`; `$1` is a parameter.
fn dollar_tag(text: &str) -> Option<String> {
    let end = text[1..].find('$')? + 1;
    let tag = &text[1..end];
    let is_name = tag.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !tag.starts_with(|c: char| c.is_ascii_digit());
    is_name.then(|| text[..=end].to_owned())
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
        assert!(!is_complete("SELECT 1; SELECT"));
        assert!(!is_complete(""));
    }
}
