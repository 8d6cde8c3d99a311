//! The span of a caller that a statement belongs to, as W3C Trace Context writes it.
//!
//! Clients name it in a comment at the beginning or the end of a statement, as sqlcommenter does:
//! `SELECT 1 /*traceparent='00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'*/`.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::lex::{Kind, Token, tokens};

/// The key in a comment.
const KEY: &str = "traceparent";

/// A span of a caller: the trace that it is part of, its id, and whether anybody records it.
///
/// ```
/// use skewer_sql::TraceParent;
///
/// let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let parent: TraceParent = text.parse().unwrap();
/// assert_eq!(parent.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
/// assert_eq!(parent.span_id(), "00f067aa0ba902b7");
/// assert!(parent.is_sampled());
/// assert_eq!(parent.to_string(), text);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceParent {
    trace: [u8; 16],
    span: [u8; 8],
    flags: u8,
}

/// A text that is no `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("it is a W3C traceparent, as '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'")]
pub struct TraceParentError;

impl TraceParent {
    /// The trace, as 32 hexadecimal digits.
    pub fn trace_id(&self) -> String {
        hex(&self.trace)
    }

    /// The caller's span, as 16 hexadecimal digits.
    pub fn span_id(&self) -> String {
        hex(&self.span)
    }

    /// The flags of the trace.
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// Whether the caller may have recorded its span.
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (self.trace_id(), self.span_id());
        write!(f, "00-{trace}-{span}-{:02x}", self.flags)
    }
}

impl FromStr for TraceParent {
    type Err = TraceParentError;

    /// Reads a `traceparent`. Later versions of the standard may add parts at the end, which are left out.
    fn from_str(text: &str) -> Result<Self, TraceParentError> {
        let mut parts = text.split('-');
        let mut next = || parts.next().ok_or(TraceParentError);
        let [version] = bytes(next()?)?;
        let (trace, span) = (bytes(next()?)?, bytes(next()?)?);
        let [flags] = bytes(next()?)?;
        let is_whole = version > 0 || parts.next().is_none();
        let has_ids = trace != [0; 16] && span != [0; 8];
        match version != 0xff && is_whole && has_ids {
            true => Ok(Self { trace, span, flags }),
            false => Err(TraceParentError),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes as lower-case hexadecimal digits.
fn bytes<const N: usize>(text: &str) -> Result<[u8; N], TraceParentError> {
    let digits = text.as_bytes();
    let is_digit = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != 2 * N || !digits.iter().all(is_digit) {
        return Err(TraceParentError);
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| TraceParentError)?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| TraceParentError)?;
    }
    Ok(bytes)
}

/// The caller's span that a comment at the beginning or the end of `sql` names; `None` if there is no such comment.
///
/// # Errors
/// If a comment has the key and no valid value.
pub fn trace_parent_in_comment(sql: &str) -> Option<Result<TraceParent, TraceParentError>> {
    // Few statements have one, and a statement may have megabytes.
    if !sql.contains(KEY) {
        return None;
    }
    let tokens: Vec<Token<'_>> = tokens(sql)
        .filter(|token| token.kind != Kind::Space && token.text != ";")
        .collect();
    let is_comment = |token: &&Token<'_>| token.kind == Kind::Comment;
    let first = tokens.iter().take_while(is_comment);
    let last = tokens.iter().rev().take_while(is_comment);
    first.chain(last).find_map(|token| in_comment(token.text))
}

/// Whether a closed comment says which span is the caller's.
pub(crate) fn names_trace_parent(token: &Token<'_>) -> bool {
    token.kind == Kind::Comment && token.closed && in_comment(token.text).is_some()
}

/// The value of the key in `/*key='value',traceparent='…'*/`.
fn in_comment(comment: &str) -> Option<Result<TraceParent, TraceParentError>> {
    let content = comment.strip_prefix("/*")?.strip_suffix("*/")?;
    let pairs = content.split(',').filter_map(|pair| pair.split_once('='));
    let mut found = pairs.filter(|(key, _)| key.trim() == KEY);
    let (_, value) = found.next()?;
    let value = value.trim();
    let value = value
        .strip_prefix('\'')
        .and_then(|value| value.strip_suffix('\''));
    Some(value.ok_or(TraceParentError).and_then(str::parse))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn only_what_the_standard_allows_is_a_parent() {
        for text in [
            PARENT,
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03-more",
        ] {
            assert!(text.parse::<TraceParent>().is_ok(), "{text}");
        }
        for text in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47é-00f067aa0ba902b7-01",
            "+0-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(text.parse::<TraceParent>(), Err(TraceParentError), "{text}");
        }
    }

    #[test]
    fn a_comment_at_the_beginning_or_the_end_names_the_parent() {
        let parent = PARENT.parse();
        for sql in [
            format!("SELECT 1 /*traceparent='{PARENT}'*/"),
            format!("SELECT 1 /* action='x' , traceparent='{PARENT}',tracestate='a%3Db' */ ;\n"),
            format!("/*traceparent='{PARENT}'*/ SELECT 1"),
            format!("-- a comment\n/* another */ /*traceparent='{PARENT}'*/ SELECT '/*'"),
        ] {
            assert_eq!(trace_parent_in_comment(&sql), Some(parent), "{sql}");
        }
        for sql in [
            "SELECT 1".to_owned(),
            format!("SELECT '/*traceparent=''{PARENT}''*/'"),
            format!("SELECT /*traceparent='{PARENT}'*/ 1"),
            format!("SELECT 1 -- traceparent='{PARENT}'"),
            format!("SELECT 1 /*traceparent='{PARENT}'"),
            "SELECT traceparent FROM calls /* no parent */".to_owned(),
        ] {
            assert_eq!(trace_parent_in_comment(&sql), None, "{sql}");
        }
        for value in ["", "'", "''", "'00-1-2-3'", PARENT] {
            let sql = format!("SELECT 1 /*traceparent={value}*/");
            let found = trace_parent_in_comment(&sql);
            assert_eq!(found, Some(Err(TraceParentError)), "{sql}");
        }
    }
}
