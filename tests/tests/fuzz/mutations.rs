//! The statements of the golden scripts with parts exchanged.

use std::path::Path;

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use skewer_tests::slt::scripts;
use sqllogictest::{DefaultColumnType, Record, parse_file};

/// What may stand in the place of any part.
const STRANGE: [&str; 24] = [
    "NULL",
    "0",
    "-1",
    "9223372036854775807",
    "1e400",
    "''",
    "'\u{0}'",
    "(",
    ")",
    ",",
    ".",
    "*",
    "SELECT",
    "FROM",
    "WITH RECURSIVE",
    "OVER ()",
    "LATERAL",
    "_row_id",
    "AS",
    "ORDER BY ALL",
    "LIMIT 0",
    "$1",
    "::VARCHAR",
    "[1:2]",
];

/// The statements of all golden scripts.
pub(crate) fn statements() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("slt");
    let mut all = Vec::new();
    for script in scripts(&folder).unwrap() {
        let records = parse_file::<DefaultColumnType>(&script).unwrap();
        all.extend(records.into_iter().filter_map(|record| match record {
            Record::Statement { sql, .. } | Record::Query { sql, .. } => Some(sql),
            _ => None,
        }));
    }
    // What is outside of the database stays as it is.
    all.retain(|sql| !sql.contains('$') && !sql.to_uppercase().contains("TEMP_DIRECTORY"));
    all
}

/// A statement with some parts left out, repeated, exchanged or from elsewhere.
pub(crate) fn mutated(statements: &[String], random: &mut ChaCha8Rng) -> String {
    let mut parts = parts(statements.choose(random).unwrap());
    for _ in 0..random.random_range(0..4) {
        if parts.is_empty() {
            break;
        }
        let at = random.random_range(0..parts.len());
        match random.random_range(0..6) {
            0 => {
                parts.remove(at);
            }
            1 => parts.insert(at, parts[at]),
            2 => {
                let other = random.random_range(0..parts.len());
                parts.swap(at, other);
            }
            3 => parts[at] = STRANGE.choose(random).copied().unwrap_or(""),
            4 => {
                let others = self::parts(statements.choose(random).unwrap());
                parts[at] = others.choose(random).copied().unwrap_or("");
            }
            _ => {
                let others = self::parts(statements.choose(random).unwrap());
                let from = random.random_range(0..others.len().max(1));
                let to = (from + random.random_range(0..8)).min(others.len());
                let some = others.get(from..to).unwrap_or_default();
                drop(parts.splice(at..at, some.iter().copied()));
            }
        }
    }
    parts.join(" ")
}

/// Words, numbers, quoted texts and other characters.
fn parts(sql: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = sql.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let length = match first {
            '\'' | '"' => rest[1..].find(first).map_or(rest.len(), |end| end + 2),
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        parts.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    parts
}
