//! Patterns with another escape character than the backslash, and those of SIMILAR TO.

use datafusion::arrow::array::{ArrayRef, AsArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::utils::take_function_args;
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

/// The scalar functions of PostgreSQL that say a pattern in another way:
///
/// * `like_escape(pattern, escape) → TEXT`: the same pattern with the backslash as escape character. An empty
///   escape is none.
/// * `similar_to_escape(pattern, escape) → TEXT`: a pattern of SIMILAR TO as a regular expression.
///
/// # Errors
/// When they run: for an escape of more than one character.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct EscapedPattern {
    signature: Signature,
    kind: PatternKind,
}

/// What a pattern is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PatternKind {
    /// LIKE.
    Like,
    /// SIMILAR TO.
    Similar,
}

impl EscapedPattern {
    /// The function for one kind of patterns.
    pub fn new(kind: PatternKind) -> Self {
        Self {
            signature: Signature::user_defined(Volatility::Immutable),
            kind,
        }
    }

    /// The kind of its patterns.
    pub fn kind(&self) -> PatternKind {
        self.kind
    }

    fn said(&self, pattern: &str, escape: &str) -> Result<String> {
        let mut chars = escape.chars();
        let escape = match (chars.next(), chars.next()) {
            (escape, None) => escape,
            _ => {
                return Err(exec_datafusion_err!(
                    "'{escape}' is no escape: it is one character, or none"
                ));
            }
        };
        Ok(match self.kind {
            PatternKind::Like => like(pattern, escape),
            PatternKind::Similar => similar(pattern, escape),
        })
    }
}

impl ScalarUDFImpl for EscapedPattern {
    fn name(&self) -> &'static str {
        match self.kind {
            PatternKind::Like => "like_escape",
            PatternKind::Similar => "similar_to_escape",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [pattern, escape] = take_function_args(self.name(), types)?;
        for given in [pattern, escape] {
            if !given.is_string() && !given.is_null() {
                return plan_err!("{}() takes texts, not {given}", self.name());
            }
        }
        Ok(vec![DataType::Utf8, DataType::Utf8])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [patterns, escapes] = take_function_args(self.name(), &args.args)?;
        if let (ColumnarValue::Scalar(pattern), ColumnarValue::Scalar(escape)) = (patterns, escapes)
        {
            let both = pattern
                .try_as_str()
                .flatten()
                .zip(escape.try_as_str().flatten());
            let said = both.map(|(pattern, escape)| self.said(pattern, escape));
            return Ok(ColumnarValue::Scalar(ScalarValue::Utf8(said.transpose()?)));
        }
        let texts = |value: &ColumnarValue| -> Result<ArrayRef> {
            Ok(cast(&value.to_array(args.number_rows)?, &DataType::Utf8)?)
        };
        let (patterns, escapes) = (texts(patterns)?, texts(escapes)?);
        let both = patterns.as_string::<i32>().iter();
        let said = both.zip(escapes.as_string::<i32>()).map(|both| match both {
            (Some(pattern), Some(escape)) => self.said(pattern, escape).map(Some),
            _ => Ok(None),
        });
        let said: StringArray = said.collect::<Result<_>>()?;
        Ok(ColumnarValue::Array(std::sync::Arc::new(said)))
    }
}

/// A pattern of LIKE whose escape is the backslash.
fn like(pattern: &str, escape: Option<char>) -> String {
    let mut said = String::with_capacity(pattern.len() + 4);
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if Some(c) == escape {
            said.push('\\');
            said.extend(chars.next());
        } else if c == '\\' {
            said.push_str("\\\\");
        } else {
            said.push(c);
        }
    }
    said
}

/// A pattern of SIMILAR TO as a regular expression, as PostgreSQL makes it: `%` and `_` are `.*` and `.`, and
/// it is about the whole text.
fn similar(pattern: &str, escape: Option<char>) -> String {
    let mut said = String::from("(?s)^(?:");
    let mut chars = pattern.chars();
    let mut in_brackets = false;
    while let Some(c) = chars.next() {
        if Some(c) == escape {
            if let Some(next) = chars.next() {
                literal(&mut said, next);
            }
            continue;
        }
        match c {
            '[' => in_brackets = true,
            ']' => in_brackets = false,
            _ => {}
        }
        match c {
            '\\' => said.push_str("\\\\"),
            other if in_brackets => said.push(other),
            '%' => said.push_str(".*"),
            '_' => said.push('.'),
            '(' => said.push_str("(?:"),
            '.' | '^' | '$' => literal(&mut said, c),
            other => said.push(other),
        }
    }
    said.push_str(")$");
    said
}

fn literal(said: &mut String, c: char) {
    if c.is_ascii_punctuation() {
        said.push('\\');
    }
    said.push(c);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_like_get_the_backslash_as_escape() {
        for (pattern, escape, expected) in [
            ("a/_%", Some('/'), "a\\_%"),
            ("a//b", Some('/'), "a\\/b"),
            ("a\\_b", Some('/'), "a\\\\_b"),
            ("a\\_b", None, "a\\\\_b"),
            ("ää%é%", Some('ä'), "\\ä%é%"),
        ] {
            assert_eq!(like(pattern, escape), expected, "{pattern}");
        }
    }

    #[test]
    fn patterns_of_similar_to_become_regular_expressions() {
        for (pattern, escape, expected) in [
            ("%(b|d)%", Some('\\'), "(?s)^(?:.*(?:b|d).*)$"),
            ("a_c.", Some('\\'), "(?s)^(?:a.c\\.)$"),
            ("[_%]+\\%", Some('\\'), "(?s)^(?:[_%]+\\%)$"),
            ("a#_b\\", Some('#'), "(?s)^(?:a\\_b\\\\)$"),
        ] {
            assert_eq!(similar(pattern, escape), expected, "{pattern}");
        }
    }

    #[test]
    fn an_escape_is_one_character_at_most() {
        let function = EscapedPattern::new(PatternKind::Like);
        assert!(function.said("a", "ab").is_err());
        assert_eq!(function.said("a\\", "").unwrap(), "a\\\\");
    }
}
