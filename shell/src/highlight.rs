//! Colours for SQL: while it is typed, and in the demo's narrative.

use nu_ansi_term::Style;
use reedline::{Highlighter, StyledText};
use skewer_sql::lex::{self, Kind, Token};

use crate::keywords::is_keyword;
use crate::terminal::Palette;

/// Colours the line that is being edited.
pub struct SqlHighlighter {
    palette: Palette,
}

impl SqlHighlighter {
    /// Paints with `palette`.
    pub fn new(palette: Palette) -> SqlHighlighter {
        SqlHighlighter { palette }
    }
}

impl Highlighter for SqlHighlighter {
    fn highlight(&self, line: &str, _cursor: usize) -> StyledText {
        let mut styled = StyledText::new();
        if line.starts_with('.') {
            let end = line.find(char::is_whitespace).unwrap_or(line.len());
            styled.push((self.palette.keyword, line[..end].to_owned()));
            styled.push((Style::new(), line[end..].to_owned()));
            return styled;
        }
        for token in lex::tokens(line) {
            styled.push((style(&token, &self.palette), token.text.to_owned()));
        }
        styled
    }
}

/// `sql` with escape sequences, or as it is if the palette has no colours.
pub fn paint(sql: &str, palette: &Palette) -> String {
    if !palette.enabled {
        return sql.to_owned();
    }
    lex::tokens(sql)
        .map(|token| style(&token, palette).paint(token.text).to_string())
        .collect()
}

fn style(token: &Token<'_>, palette: &Palette) -> Style {
    match token.kind {
        Kind::Word if is_keyword(token.text) => palette.keyword,
        Kind::Text => palette.string,
        Kind::Number => palette.number,
        Kind::Comment => palette.dim,
        Kind::Word | Kind::QuotedName | Kind::Symbol | Kind::Space => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn painting_changes_no_character() {
        let sql = "SELECT 'a', 12 FROM t -- x";
        assert_eq!(paint(sql, &Palette::new(false)), sql);
        let painted = paint(sql, &Palette::new(true));
        assert!(painted.contains("\u{1b}["));
        let highlighter = SqlHighlighter::new(Palette::new(true));
        for line in [sql, ".mode csv", "SELECT 'open"] {
            let raw: String = highlighter
                .highlight(line, 0)
                .buffer
                .iter()
                .map(|(_, text)| text.as_str())
                .collect();
            assert_eq!(raw, line);
        }
    }
}
