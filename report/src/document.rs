//! Lines of a report, each part of which knows what it is.

use crate::colour;
use crate::layout::{WIDTH, wrapped};
use unicode_width::UnicodeWidthStr;

/// What a part of a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Text without emphasis.
    Plain,
    /// A section's title, or the report's first line.
    Title,
    /// A column's title, a branch of the tree.
    Dim,
    /// What limits the numbers.
    Caveat,
    /// A cause that stands out.
    Finding,
    /// Nothing stands out.
    Good,
    /// SQL to run.
    Statement,
    /// A bar of a small share.
    SmallBar,
    /// A bar of a notable share.
    MediumBar,
    /// A bar of a large share.
    LargeBar,
}

impl Style {
    const ALL: [Self; 10] = [
        Self::Plain,
        Self::Title,
        Self::Dim,
        Self::Caveat,
        Self::Finding,
        Self::Good,
        Self::Statement,
        Self::SmallBar,
        Self::MediumBar,
        Self::LargeBar,
    ];

    /// Its letter in [`Document::styles_text`].
    fn letter(self) -> char {
        match self {
            Self::Plain => 'p',
            Self::Title => 't',
            Self::Dim => 'd',
            Self::Caveat => 'c',
            Self::Finding => 'f',
            Self::Good => 'g',
            Self::Statement => 's',
            Self::SmallBar => 'x',
            Self::MediumBar => 'y',
            Self::LargeBar => 'z',
        }
    }
}

/// A part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The text, without a line break.
    pub text: String,
    /// What it is.
    pub style: Style,
}

/// A line: its spans from left to right.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line(pub Vec<Span>);

impl Line {
    /// Adds a span on the right; an empty text adds nothing.
    pub fn push(&mut self, text: impl Into<String>, style: Style) {
        let text = text.into();
        if !text.is_empty() {
            self.0.push(Span { text, style });
        }
    }

    /// Removes spaces at the end.
    pub fn trim_end(&mut self) {
        while let Some(last) = self.0.last_mut() {
            last.text.truncate(last.text.trim_end().len());
            if !last.text.is_empty() {
                break;
            }
            self.0.pop();
        }
    }

    /// The line's text.
    pub fn text(&self) -> String {
        self.0.iter().map(|span| span.text.as_str()).collect()
    }

    /// The line's text with escape sequences that colour it on a terminal.
    pub fn ansi(&self) -> String {
        self.0.iter().map(colour::painted).collect()
    }
}

/// Lines of text with the style of each part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Document {
    lines: Vec<Line>,
}

/// What begins an item of a list.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mark {
    Caveat,
    Finding,
    Good,
    Fact,
    Predicate,
    Excluded,
    Cause,
    Advice,
}

impl Mark {
    fn sign(self) -> &'static str {
        match self {
            Self::Caveat => "!",
            Self::Finding => "●",
            Self::Good => "✓",
            Self::Fact => "·",
            Self::Predicate => "◆",
            Self::Excluded => "◇",
            Self::Cause => "▶",
            Self::Advice => "→",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Caveat => Style::Caveat,
            Self::Finding | Self::Predicate | Self::Cause => Style::Finding,
            Self::Good => Style::Good,
            Self::Fact | Self::Excluded | Self::Advice => Style::Plain,
        }
    }
}

impl Document {
    /// Lines without styles.
    pub fn from_texts(lines: impl IntoIterator<Item = String>) -> Self {
        let mut document = Self::default();
        for line in lines {
            document.push_styled(line, Style::Plain);
        }
        document
    }

    /// A section with nothing but its title.
    pub(crate) fn titled(title: &str) -> Self {
        let mut document = Self::default();
        document.push_styled(title, Style::Title);
        document
    }

    /// Adds a line.
    pub(crate) fn push(&mut self, line: Line) {
        self.lines.push(line);
    }

    /// Adds a line of one style.
    pub(crate) fn push_styled(&mut self, text: impl Into<String>, style: Style) {
        let mut line = Line::default();
        line.push(text, style);
        self.lines.push(line);
    }

    /// Adds a sentence as an item of a list, indented, and broken at the report's width.
    pub(crate) fn push_item(&mut self, mark: Mark, text: &str) {
        let sign = mark.sign();
        let indent = " ".repeat(3 + sign.width());
        for (number, line) in wrapped(text, WIDTH - indent.len()).iter().enumerate() {
            let line = match number {
                0 => format!("  {sign} {line}"),
                _ => format!("{indent}{line}"),
            };
            self.push_styled(line, mark.style());
        }
    }

    /// Whether it has no line.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Puts an empty line between sections; passes over empty ones.
    pub(crate) fn join_sections(sections: Vec<Self>) -> Self {
        let mut lines = Vec::new();
        for section in sections.into_iter().filter(|section| !section.is_empty()) {
            if !lines.is_empty() {
                lines.push(Line::default());
            }
            lines.extend(section.lines);
        }
        Self { lines }
    }

    /// The lines.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The text of each line.
    pub fn texts(&self) -> Vec<String> {
        self.lines.iter().map(Line::text).collect()
    }

    /// The styles of all lines as text, for whoever carries the lines' texts elsewhere:
    /// `t100` is a line whose one span is a title of 100 bytes; `;` ends a line.
    pub fn styles_text(&self) -> String {
        let mut styles = String::new();
        for line in &self.lines {
            for span in &line.0 {
                styles.push(span.style.letter());
                styles.push_str(&span.text.len().to_string());
            }
            styles.push(';');
        }
        styles
    }

    /// Puts texts and [`styles_text`](Self::styles_text) together again; `None` if they do not fit.
    pub fn from_styles<'a>(texts: impl IntoIterator<Item = &'a str>, styles: &str) -> Option<Self> {
        let mut document = Self::default();
        let mut styles = styles.split_terminator(';');
        for text in texts {
            document.push(line_from_styles(text, styles.next()?)?);
        }
        styles.next().is_none().then_some(document)
    }
}

fn line_from_styles(text: &str, styles: &str) -> Option<Line> {
    let mut line = Line::default();
    let (mut text, mut styles) = (text, styles);
    while let Some(letter) = styles.chars().next() {
        let style = Style::ALL.into_iter().find(|one| one.letter() == letter)?;
        let rest = &styles[1..];
        let end = rest.find(|c: char| !c.is_ascii_digit());
        let (length, rest) = rest.split_at(end.unwrap_or(rest.len()));
        let (span, after) = text.split_at_checked(length.parse().ok()?)?;
        line.push(span, style);
        (text, styles) = (after, rest);
    }
    text.is_empty().then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_find_their_texts_again() {
        let mut document = Document::titled("Plan");
        document.push(Line::default());
        document.push_item(Mark::Finding, "row 2 of input kept a result row waiting");
        let mut line = Line::default();
        line.push("└─ ", Style::Dim);
        line.push("scan ", Style::Plain);
        line.push("█", Style::LargeBar);
        document.push(line);
        let texts = document.texts();
        let texts = || texts.iter().map(String::as_str);
        let styles = document.styles_text();
        assert_eq!(Document::from_styles(texts(), &styles), Some(document));
        for broken in ["", "t4;;", "t5;;f1;", "q4;", "t4;;f45;d7p5z3;;"] {
            assert_eq!(Document::from_styles(texts(), broken), None, "{broken}");
        }
    }
}
