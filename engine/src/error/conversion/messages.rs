//! What DataFusion says in its errors, in plain words.

/// How DataFusion begins to tell of a function that takes no such arguments.
pub(super) const NO_SIGNATURE: &str = " failed to match any signature, errors: ";

/// How DataFusion begins to tell of a scalar subquery where it makes no join of one.
pub(super) const NO_JOIN: &str = "Correlated scalar subquery can only be used in ";

pub(super) const CORRELATED: &str = "this correlated subquery; write it as a join";

/// What DataFusion says of wrong arguments, without its attempt at each signature, which it calls
/// an internal error: the function as it was called and the candidates remain, or the first attempt.
pub(super) fn without_attempts(text: &str) -> String {
    if let Some(from) = text.find("No function matches") {
        return text[from..].to_owned();
    }
    let Some((function, attempts)) = text.split_once(NO_SIGNATURE) else {
        return text.to_owned();
    };
    let first = attempts.split(",Error ").next().unwrap_or(attempts);
    format!("{function} does not take these arguments: {}", plain(first))
}

/// How DataFusion begins to tell of arguments and types that do not go together, which it calls internal errors
/// where it has not looked at them before.
pub(super) const WRONG_TYPES: [&str; 9] = [
    "Coercion from ",
    "DISTINCT aggregate should have exactly one argument",
    "Expected a Map type",
    "Failed to coerce types",
    "Min/Max accumulator not implemented",
    "Nth value indices are 1 based",
    "Unavailable default cast",
    "Unsupported data type",
    "could not cast array of type",
];

/// What errors say of themselves that are within others.
const KINDS: [&str; 4] = [
    "Error during planning: ",
    "Execution error: ",
    "Internal error: ",
    "Optimizer rule 'simplify_expressions' failed\ncaused by\n",
];

/// What DataFusion says of a mistake, without the kinds of the errors that it is within.
pub(super) fn plain(text: &str) -> String {
    let mut text = match text.find(".\nThis issue was likely caused by a bug in DataFusion") {
        Some(end) => text[..end].to_owned(),
        None => text.to_owned(),
    };
    if let Some((_, why)) = text
        .strip_prefix("Assertion failed: ")
        .and_then(|assertion| assertion.split_once(": "))
    {
        // What follows is "left: 2, right: 1): why", where values were compared.
        let why = why.rsplit_once("): ").map_or(why, |(_, why)| why);
        text = why.to_owned();
    }
    for kind in KINDS {
        if text.contains(kind) {
            text = text.replace(kind, "");
        }
    }
    text
}

/// A subquery that could not be made a join comes to the operators as an expression.
pub(super) fn physical_plan_gap(text: &str) -> String {
    let subquery = text.starts_with("Physical plan does not support logical expression")
        && ["OuterReferenceColumn", "Subquery", "Exists"]
            .iter()
            .any(|kind| text.contains(kind));
    if subquery {
        CORRELATED.to_owned()
    } else {
        text.to_owned()
    }
}

/// What reading a recursive query's rows says where it is not known to be recursive: the planner does
/// not look for its name in subqueries.
pub(super) const NOT_RECURSIVE: &str = "Unexpected empty work table";
