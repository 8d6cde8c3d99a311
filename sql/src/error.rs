//! Syntax errors that show the line.

use std::fmt;

use datafusion::common::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::Location;

use skewer_compat::statement::depth::DEEPEST;

/// Of lines with more characters, as programs write them, so many are shown on each side of a mistake.
const LONG_LINE: usize = 500;
const AROUND: usize = 60;

/// Text that is not a statement, with the place where it stops being one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// What was expected and what was found.
    pub message: String,
    /// Line of the mistake, from 1; 0 if the parser did not say where.
    pub line: u64,
    /// Column of the mistake in characters, from 1; 0 if the parser did not say where.
    pub column: u64,
    /// The line itself, empty if it is unknown.
    pub source_line: String,
}

impl SyntaxError {
    /// A mistake at `location` of `sql`.
    pub fn at_location(sql: &str, location: Location, message: impl Into<String>) -> Self {
        let source_line = (location.line as usize)
            .checked_sub(1)
            .and_then(|n| sql.lines().nth(n))
            .unwrap_or_default()
            .to_owned();
        Self {
            message: message.into(),
            line: location.line,
            column: location.column,
            source_line,
        }
    }

    /// The line, indented, and below it a caret under the mistake; of a long line what is around the mistake.
    pub fn marked(&self) -> String {
        // Tabs stay tabs, so that the caret stands under its character on any terminal.
        let before = (self.column as usize).saturating_sub(1);
        let length = self.source_line.chars().count();
        let skipped = match length > LONG_LINE {
            true => before.saturating_sub(AROUND),
            false => 0,
        };
        let shown = match length > LONG_LINE {
            true => 2 * AROUND,
            false => length,
        };
        let dots = |are: bool| if are { "…" } else { "" };
        let (left, right) = (dots(skipped > 0), dots(skipped + shown < length));
        let line: String = self.source_line.chars().skip(skipped).take(shown).collect();
        let before = (before - skipped) + left.chars().count();
        let mut indent: String = left
            .chars()
            .chain(line.chars())
            .take(before)
            .map(|c| if c == '\t' { '\t' } else { ' ' })
            .collect();
        let missing = before.saturating_sub(indent.chars().count());
        indent.extend(std::iter::repeat_n(' ', missing));
        format!("  {left}{line}{right}\n  {indent}^")
    }

    /// What sqlparser said about `sql`.
    pub(crate) fn from_parser(sql: &str, error: ParserError) -> Self {
        match error {
            ParserError::TokenizerError(text) | ParserError::ParserError(text) => {
                let (message, location) = split_location(&text);
                Self::at_location(sql, location.unwrap_or_else(|| end_of(sql)), message)
            }
            ParserError::RecursionLimitExceeded => Self::at_location(
                sql,
                Location { line: 0, column: 0 },
                format!(
                    "more than {DEEPEST} expressions, queries and tables are within each other, and no more are \
                     planned"
                ),
            ),
        }
    }

    /// What DataFusion's parser, which wraps sqlparser's, said about `sql`.
    pub(crate) fn from_datafusion(sql: &str, error: DataFusionError) -> Self {
        match error {
            DataFusionError::SQL(parser_error, _) => Self::from_parser(sql, *parser_error),
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
                Self::from_datafusion(sql, *inner)
            }
            other => Self::at_location(
                sql,
                Location { line: 0, column: 0 },
                other.strip_backtrace(),
            ),
        }
    }
}

/// sqlparser gives the place only as the end of its message: ` at Line: 1, Column: 8`.
fn split_location(text: &str) -> (String, Option<Location>) {
    let parse = || {
        let (message, place) = text.rsplit_once(" at Line: ")?;
        let (line, column) = place.split_once(", Column: ")?;
        let location = Location {
            line: line.trim().parse().ok()?,
            column: column.trim().parse().ok()?,
        };
        Some((message.to_owned(), location))
    };
    match parse() {
        Some((message, location)) if location.line > 0 => (message, Some(location)),
        Some((message, _)) => (message, None),
        None => (text.to_owned(), None),
    }
}

/// The place after the last character: where a statement that stops too early stops.
fn end_of(sql: &str) -> Location {
    let text = sql.trim_end();
    let line = text.lines().count().max(1);
    let column = text.lines().last().map_or(0, |l| l.chars().count()) + 1;
    Location {
        line: line as u64,
        column: column as u64,
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return write!(f, "syntax error: {}", self.message);
        }
        writeln!(
            f,
            "syntax error at line {}, column {}: {}",
            self.line, self.column, self.message
        )?;
        f.write_str(&self.marked())
    }
}

impl std::error::Error for SyntaxError {}

#[cfg(test)]
mod tests {
    use crate::parse;

    #[test]
    fn the_caret_stands_under_the_mistake() {
        let error = parse("SELECT 1,\n\tFROM t WHERE").unwrap_err();
        let shown = error.to_string();
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(error.line, 2, "{shown}");
        assert_eq!(lines[1], "  \tFROM t WHERE");
        let caret = lines[2].find('^').unwrap();
        assert_eq!(caret, lines[1].len(), "{shown}");
    }

    #[test]
    fn an_unterminated_string_is_placed_where_it_begins() {
        let error = parse("SELECT 'abc").unwrap_err();
        assert_eq!((error.line, error.column), (1, 8), "{error}");
    }

    #[test]
    fn of_a_long_line_what_is_around_the_mistake_is_shown() {
        let sql = format!("SELECT {}", "1 + ".repeat(1_000));
        let shown = parse(&sql).unwrap_err().marked();
        let lines: Vec<_> = shown.lines().collect();
        assert!(
            lines[0].starts_with("  …") && lines[0].chars().count() < 130,
            "{shown}"
        );
        let caret = lines[1].find('^').unwrap();
        assert!(
            caret >= 60 && caret <= lines[0].chars().count() + 1,
            "{shown}"
        );
        let short = "SELECT 1 FROM t WHERE";
        assert!(parse(short).unwrap_err().marked().contains(short));
    }
}
