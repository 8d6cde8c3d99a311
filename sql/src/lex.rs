//! SQL text cut into tokens: for scripts, limits of nesting, highlighting and completion.
//!
//! Unlike the parser's tokenizer this one accepts any text, also one that is still being typed: an
//! unfinished string is a token that is not closed.

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A keyword or an unquoted name.
    Word,
    /// `"…"` or `` `…` ``.
    QuotedName,
    /// `'…'`, `E'…'` with escapes, or `$tag$…$tag$`.
    Text,
    /// Begins with a digit.
    Number,
    /// `-- …` or `/* … */`.
    Comment,
    /// Any other character.
    Symbol,
    /// White space.
    Space,
}

/// A piece of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    /// What it is.
    pub kind: Kind,
    /// Its text, quotes included.
    pub text: &'a str,
    /// Byte of the whole at which it begins.
    pub start: usize,
    /// False if the text ends before the token does.
    pub closed: bool,
}

/// The tokens of `sql`; together they are exactly `sql`.
pub fn tokens(sql: &str) -> impl Iterator<Item = Token<'_>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = &sql[start..];
        if rest.is_empty() {
            return None;
        }
        let (kind, length, closed) = first(rest);
        let token = Token {
            kind,
            text: &rest[..length],
            start,
            closed,
        };
        start += length;
        Some(token)
    })
}

/// Kind, bytes and whether closed of the first token of a text that is not empty.
fn first(rest: &str) -> (Kind, usize, bool) {
    let c = rest.chars().next().unwrap_or(' ');
    let run = |belongs: fn(char) -> bool| rest.find(|c: char| !belongs(c)).unwrap_or(rest.len());
    match c {
        c if c.is_whitespace() => (Kind::Space, run(char::is_whitespace), true),
        '\'' => quoted(rest, 0, Kind::Text, false),
        'e' | 'E' if rest[1..].starts_with('\'') => quoted(rest, 1, Kind::Text, true),
        '"' | '`' => quoted(rest, 0, Kind::QuotedName, false),
        '-' if rest.starts_with("--") => {
            (Kind::Comment, rest.find('\n').unwrap_or(rest.len()), true)
        }
        '/' if rest.starts_with("/*") => block_comment(rest),
        '$' => dollar_quoted(rest).unwrap_or((Kind::Symbol, 1, true)),
        c if c.is_ascii_digit() => (
            Kind::Number,
            run(|c| c.is_ascii_alphanumeric() || c == '.'),
            true,
        ),
        c if is_word(c) => (Kind::Word, run(|c| is_word(c) || c == '$'), true),
        c => (Kind::Symbol, c.len_utf8(), true),
    }
}

/// Whether a name may contain it.
pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// A token whose quote stands at byte `open`. With `escapes` a backslash takes the next character's
/// meaning away.
fn quoted(rest: &str, open: usize, kind: Kind, escapes: bool) -> (Kind, usize, bool) {
    let bytes = rest.as_bytes();
    let quote = bytes[open];
    let mut at = open + 1;
    while at < bytes.len() {
        if escapes && bytes[at] == b'\\' {
            at += 1;
        } else if bytes[at] == quote {
            if bytes.get(at + 1) == Some(&quote) {
                at += 1;
            } else {
                return (kind, at + 1, true);
            }
        }
        at += 1;
    }
    (kind, rest.len(), false)
}

fn block_comment(rest: &str) -> (Kind, usize, bool) {
    let bytes = rest.as_bytes();
    let (mut at, mut depth) = (2, 1);
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"*/" if depth == 1 => return (Kind::Comment, at + 2, true),
            b"*/" => {
                depth -= 1;
                at += 2;
            }
            b"/*" => {
                depth += 1;
                at += 2;
            }
            _ => at += 1,
        }
    }
    (Kind::Comment, rest.len(), false)
}

fn dollar_quoted(rest: &str) -> Option<(Kind, usize, bool)> {
    let end = 1 + rest[1..].find(|c: char| !is_word(c))?;
    let name = &rest[1..end];
    if !rest[end..].starts_with('$') || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let end = end + 1;
    let tag = &rest[..end];
    match rest[end..].find(tag) {
        Some(close) => Some((Kind::Text, end + close + end, true)),
        None => Some((Kind::Text, rest.len(), false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(sql: &str) -> Vec<(Kind, &str)> {
        tokens(sql)
            .filter(|token| token.kind != Kind::Space)
            .map(|token| (token.kind, token.text))
            .collect()
    }

    #[test]
    fn tokens_cover_the_text_whatever_it_is() {
        for sql in [
            "SELECT 'it''s', \"a b\", 1.5e3 /* x /* y */ z */ FROM t -- end",
            "SELECT 'open",
            "/* open /* */",
            "$a$ text $a$ $1 $ é→",
            "'é''→",
            "E'it\\'s' e'\\",
        ] {
            let joined: String = tokens(sql).map(|token| token.text).collect();
            assert_eq!(joined, sql);
        }
    }

    #[test]
    fn quotes_and_comments_hide_what_is_in_them() {
        assert_eq!(
            kinds("a 'b;''c' E'd\\';' \"d\" /* e /* f */ */ -- g\n$x$ ' $x$ 12"),
            [
                (Kind::Word, "a"),
                (Kind::Text, "'b;''c'"),
                (Kind::Text, "E'd\\';'"),
                (Kind::QuotedName, "\"d\""),
                (Kind::Comment, "/* e /* f */ */"),
                (Kind::Comment, "-- g"),
                (Kind::Text, "$x$ ' $x$"),
                (Kind::Number, "12"),
            ]
        );
    }

    #[test]
    fn an_unfinished_token_is_not_closed() {
        assert!(!tokens("SELECT 'a").last().unwrap().closed);
        assert!(!tokens("/* a").last().unwrap().closed);
        assert!(tokens("SELECT 'a'").last().unwrap().closed);
    }
}
