//! Fitting text into a terminal.

use unicode_width::UnicodeWidthStr;

pub(crate) use skewer_diagnosis::text::{WIDTH, shortened};

/// Text padded with spaces on the right.
pub(crate) fn left(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}

/// Text padded with spaces on the left.
pub(crate) fn right(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(text.width())))
}

/// Units, which stay on the line of their number.
const UNITS: [&str; 11] = [
    "ns", "µs", "ms", "s", "min", "h", "%", "B", "KiB", "MiB", "GiB",
];

/// Words of a sentence; a number and its unit are one word.
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
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_counts_columns_of_the_screen() {
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
