//! Places in a statement's text.

use datafusion::sql::sqlparser::tokenizer::Location;

/// How many bytes of the text are before a place; all of them if it is behind the end.
pub(crate) fn offset(sql: &str, place: Location) -> usize {
    let before = (place.line as usize).saturating_sub(1);
    let line: usize = sql.split_inclusive('\n').take(before).map(str::len).sum();
    let column = (place.column as usize).saturating_sub(1);
    let rest = sql.get(line..).unwrap_or_default();
    let from = rest
        .char_indices()
        .nth(column)
        .map_or(rest.len(), |(at, _)| at);
    line + from
}

/// The place of a byte of the text.
pub(crate) fn location_of(sql: &str, byte: usize) -> Location {
    let before = String::from_utf8_lossy(&sql.as_bytes()[..byte]);
    let line = before.matches('\n').count() + 1;
    let last = before.rsplit('\n').next().unwrap_or_default();
    Location {
        line: line as u64,
        column: last.chars().count() as u64 + 1,
    }
}

/// The text from a place on, without the semicolon at its end.
pub(crate) fn text_from(sql: &str, place: Location) -> String {
    let rest = &sql[offset(sql, place)..];
    rest.trim_end().trim_end_matches(';').to_owned()
}
