//! Fitting text into a terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns that a report fits into.
pub(super) const WIDTH: usize = 100;

/// A text in at most `width` columns, with `…` for what was cut off. Control characters, which
/// data may hold and a terminal would obey, become `·`.
pub(super) fn shortened(text: &str, width: usize) -> String {
    let visible;
    let mut text = text;
    if text.contains(char::is_control) {
        visible = text.replace(char::is_control, "·");
        text = &visible;
    }
    if text.width() <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut used = 0;
    for character in text.chars() {
        let columns = character.width().unwrap_or(0);
        if used + columns > width.saturating_sub(1) {
            break;
        }
        used += columns;
        short.push(character);
    }
    short.truncate(short.trim_end().len());
    short.push('…');
    short
}

/// Text padded with spaces on the right.
pub(super) fn left(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}

/// Text padded with spaces on the left.
pub(super) fn right(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(text.width())))
}

/// What follows a number and must not be parted from it.
const UNITS: [&str; 11] = [
    "ns", "µs", "ms", "s", "min", "h", "%", "B", "KiB", "MiB", "GiB",
];

/// Words of a sentence; a number and its unit are one.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let end = text.find(' ').unwrap_or(text.len());
        let after = text.get(end + 1..).unwrap_or_default();
        let next = &after[..after.find(' ').unwrap_or(after.len())];
        let unit = UNITS.contains(&next.trim_end_matches([',', ';', '.', ':', ')']));
        let end = match unit && text[..end].ends_with(|c: char| c.is_ascii_digit()) {
            true => end + 1 + next.len(),
            false => end,
        };
        rest = text.get(end + 1..);
        Some(&text[..end])
    })
}

/// Lines of at most `width` columns, broken at spaces.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words(text) {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(shortened(word, width)),
        }
    }
    lines
}

/// A sentence as an item of a list, indented.
pub(super) fn item(mark: &str, text: &str) -> Vec<String> {
    let indent = " ".repeat(3 + mark.width());
    wrapped(text, WIDTH - indent.len())
        .into_iter()
        .enumerate()
        .map(|(number, line)| match number {
            0 => format!("  {mark} {line}"),
            _ => format!("{indent}{line}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_its_width_on_the_screen() {
        assert_eq!(shortened("short", 5), "short");
        assert_eq!(shortened("longer text", 8), "longer…");
        assert_eq!(shortened("日本語日本語", 7), "日本語…");
        assert_eq!(shortened("a\u{1b}[31mb", 9), "a·[31mb");
        assert_eq!(left("é", 3), "é  ");
        assert_eq!(right("é", 3), "  é");
    }

    #[test]
    fn sentences_are_broken_at_spaces() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("overlong word", 6), ["overl…", "word"]);
    }

    #[test]
    fn a_number_and_its_unit_stay_together() {
        assert_eq!(
            wrapped("takes 97.0 ms instead", 10),
            ["takes", "97.0 ms", "instead"]
        );
        assert_eq!(wrapped("in 5 s, 98 %.", 6), ["in", "5 s,", "98 %."]);
        assert_eq!(wrapped("2 of 3 ms s", 4), ["2 of", "3 ms", "s"]);
        assert_eq!(wrapped("", 4), [""]);
        assert_eq!(wrapped("a  b", 4), ["a  b"]);
    }
}
