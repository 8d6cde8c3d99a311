//! What differs from SQLite for a reason.

use super::Difference;

/// A statement without the constraints and indexes that this database refuses; `None` for what makes or
/// drops an index, which changes no result. Scripts violate no constraint but in statements that should
/// fail.
pub(super) fn without_constraints(sql: &str) -> Option<String> {
    let upper = sql.trim_start().to_uppercase();
    let starts = |words: &str| upper.starts_with(words);
    if starts("CREATE INDEX")
        || starts("CREATE UNIQUE INDEX")
        || starts("DROP INDEX")
        || starts("REINDEX")
    {
        return None;
    }
    if starts("CREATE TABLE") {
        return Some(sql.replace(" PRIMARY KEY", "").replace(" UNIQUE", ""));
    }
    Some(sql.to_owned())
}

/// A part of a statement, a part of the message of its error, and why it is one.
const ERRORS: &[(&str, &str, &str)] = &[
    (
        "+",
        "Unary operator '+' only supports",
        "SQLite takes a sign before a text",
    ),
    (
        "IN ()",
        "Expected: an expression, found: )",
        "an empty list is refused, as in PostgreSQL",
    ),
    (
        "TRIGGER",
        "not supported: CREATE TRIGGER",
        "there are no triggers",
    ),
    (
        "TRIGGER",
        "not supported: DROP TRIGGER",
        "there are no triggers",
    ),
    ("REPLACE", "not supported: INSERT", NO_REPLACE),
    ("UPDATE", "is assigned twice", ASSIGNED_ONCE),
    (
        " IN (",
        "Cannot cast string",
        "SQLite looks for a value of any type among others",
    ),
    (
        " IN (",
        "can't cast to",
        "SQLite looks for a value of any type among others",
    ),
];

/// Reasons for which rows are others later in a script.
const NO_REPLACE: &str = "there is no INSERT OR REPLACE, and its rows are missing later";
const ASSIGNED_ONCE: &str =
    "a column is assigned once, as in PostgreSQL, and its values are others later";

/// Why something differs, if that is known; in a script of which these reasons are known so far.
pub(super) fn reason<'a>(
    sql: &str,
    difference: &Difference,
    so_far: impl IntoIterator<Item = &'a &'static str>,
) -> Option<&'static str> {
    match difference {
        Difference::Fails(error) => ERRORS
            .iter()
            .find(|(statement, part, _)| sql.contains(statement) && error.contains(part))
            .map(|(.., reason)| *reason),
        Difference::Values { .. } => so_far
            .into_iter()
            .find(|reason| [NO_REPLACE, ASSIGNED_ONCE].contains(*reason))
            .copied(),
        Difference::Succeeds => None,
    }
}
