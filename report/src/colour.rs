//! Colours of a terminal for the parts of a line.

use nu_ansi_term::{Color, Style as Paint};

use crate::document::{Span, Style};

/// The span's text with the escape sequences of its colour.
pub(crate) fn painted(span: &Span) -> String {
    match paint(span.style) {
        Some(paint) => paint.paint(&span.text).to_string(),
        None => span.text.clone(),
    }
}

fn paint(style: Style) -> Option<Paint> {
    Some(match style {
        Style::Plain => return None,
        Style::Title => Paint::new().bold(),
        Style::Dim => Paint::new().dimmed(),
        Style::Caveat | Style::MediumBar => Color::Yellow.normal(),
        Style::Finding => Color::LightRed.bold(),
        Style::Good | Style::SmallBar => Color::Green.normal(),
        Style::Statement => Color::Cyan.normal(),
        Style::LargeBar => Color::Red.normal(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Line;

    #[test]
    fn parts_are_coloured_by_what_they_are() {
        let mut line = Line::default();
        line.push("98 % ", Style::Plain);
        line.push("███████▊", Style::LargeBar);
        assert_eq!(line.text(), "98 % ███████▊");
        assert_eq!(line.ansi(), "98 % \u{1b}[31m███████▊\u{1b}[0m");
    }
}
