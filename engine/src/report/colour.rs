//! Colour for a terminal: the report itself carries none.

use nu_ansi_term::{Color, Style};

/// Titles of sections, which begin in the first column.
const TITLES: [&str; 4] = [
    "Plan",
    "Where the time went",
    "Expensive inputs",
    "To go deeper",
];

/// A line of EXPLAIN PROFILE's text, or several, in colour for a terminal.
///
/// What a line is shows in the line itself, so nothing but the text is needed. Lines of anything
/// else come back as they are, except that box-drawing is dimmed.
///
/// ```
/// assert_eq!(skewer::report::colourize("Plan"), "\u{1b}[1mPlan\u{1b}[0m");
/// assert_eq!(skewer::report::colourize("plain text"), "plain text");
/// ```
pub fn colourize(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(line).collect();
    lines.join("\n")
}

fn line(line: &str) -> String {
    let body = line.trim_start();
    let bold = Style::new().bold();
    let title = TITLES.into_iter().find(|title| {
        let rest = line.strip_prefix(title);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("  "))
    });
    if let Some(title) = title {
        let rest = &line[title.len()..];
        return match rest {
            "" => bold.paint(title).to_string(),
            rest => format!("{}{}", bold.paint(title), Style::new().dimmed().paint(rest)),
        };
    }
    if line.starts_with("Query ") {
        return bold.paint(line).to_string();
    }
    if line.starts_with("  ") {
        if body.starts_with("! ") {
            return Color::Yellow.paint(line).to_string();
        }
        if body.starts_with("● ") {
            return Color::LightRed.bold().paint(line).to_string();
        }
        if body.starts_with("✓ ") {
            return Color::Green.paint(line).to_string();
        }
        if body.starts_with("SELECT ") {
            return Color::Cyan.paint(line).to_string();
        }
    }
    drawn(line)
}

/// Dims the branches of the tree; a bar is the redder the longer it is.
fn drawn(line: &str) -> String {
    let bar_length = line.chars().filter(|c| *c == '█').count();
    let bar = match bar_length {
        0..=1 => Color::Green,
        2..=3 => Color::Yellow,
        _ => Color::Red,
    };
    let mut coloured = String::with_capacity(line.len());
    let mut run = String::new();
    let mut kind = Kind::Text;
    for character in line.chars() {
        let next = Kind::of(character);
        if next != kind {
            push(&mut coloured, &run, kind, bar);
            run.clear();
            kind = next;
        }
        run.push(character);
    }
    push(&mut coloured, &run, kind, bar);
    coloured
}

fn push(coloured: &mut String, run: &str, kind: Kind, bar: Color) {
    match kind {
        _ if run.is_empty() => {}
        Kind::Text => coloured.push_str(run),
        Kind::Branch => coloured.push_str(&Style::new().dimmed().paint(run).to_string()),
        Kind::Bar => coloured.push_str(&bar.paint(run).to_string()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Branch,
    Bar,
}

impl Kind {
    fn of(character: char) -> Self {
        match character {
            '│' | '├' | '└' | '─' => Self::Branch,
            '█' | '▉' | '▊' | '▋' | '▌' | '▍' | '▎' | '▏' => Self::Bar,
            _ => Self::Text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text without its escape sequences.
    fn plain(coloured: &str) -> String {
        let mut plain = String::new();
        let mut rest = coloured;
        while let Some((before, after)) = rest.split_once('\u{1b}') {
            plain.push_str(before);
            rest = after.split_once('m').map_or("", |(_, rest)| rest);
        }
        plain + rest
    }

    #[test]
    fn colour_changes_nothing_but_colour() {
        for text in [
            "Query 12 · 29.4 s",
            "Plan          rows  self",
            "  3 └─ Scan ratings   1,000  28.9 s  98 % ███████▊",
            "  ● row 2 of input cost 28.2 s.",
            "  ! sampled\n  ✓ none\n  SELECT 1;\n\nPlanned",
        ] {
            assert_eq!(plain(&colourize(text)), text);
        }
        let bar = colourize("98 % ███████▊");
        assert!(bar.contains("\u{1b}[31m███████▊\u{1b}[0m"), "{bar:?}");
    }
}
