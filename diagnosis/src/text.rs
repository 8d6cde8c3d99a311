//! Text cut to a width on the screen.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns that a report fits into.
pub const WIDTH: usize = 100;

/// Cuts a text to at most `width` columns and puts `…` for what was cut off. Control characters,
/// which data may hold and a terminal would obey, become `·`.
pub fn shortened(text: &str, width: usize) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_its_width_on_the_screen() {
        assert_eq!(shortened("short", 5), "short");
        assert_eq!(shortened("longer text", 8), "longer…");
        assert_eq!(shortened("日本語日本語", 7), "日本語…");
        assert_eq!(shortened("a\u{1b}[31mb", 9), "a·[31mb");
    }
}
