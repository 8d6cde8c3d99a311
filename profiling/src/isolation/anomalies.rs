//! The SQL of `sys.anomaly_candidates`: which records of a query stand out. It is the same for every
//! query, but for the query's id.
//!
//! It is one statement (`anomaly_candidates.sql`), so that it can be read, copied and run. The common
//! table expression `judged` has the thresholds of impact and self time, `fan_outs` has those of
//! fan-outs. The view runs the expressions as steps, and computes some only once.
//!
//! Readers: `sys.anomalies` (the rows with a reason), through it `sys.diagnoses` and the shell's hint;
//! and `skewer_diagnosis::ExpensiveInputs`, which also shows the candidates without a reason.

use datafusion::common::{Result, internal_err};

use super::steps::{Step, Stepwise, Use};

/// The statement, with `$query_id` for the query's id.
pub(crate) const SQL: &str = include_str!("anomaly_candidates.sql");

/// Expressions that several others name, and that have few rows.
const SHARED: [&str; 8] = [
    "query",
    "expensive",
    "operators",
    "work",
    "path",
    "scans",
    "outstanding",
    "fan_outs",
];

/// The expression that counts the rows of every traced record, for which memory may not do.
const ATTEMPTED: &str = "counted";

/// Expressions that have no rows if there is no costly scan ([`SCANS`]). Most queries have none, and planning
/// these takes longer than all else.
const OF_SCANS: [&str; 3] = ["counted", "outstanding", "fan_outs"];

/// The expression that has the scans whose rows are multiplied, and cost much.
const SCANS: &str = "scans";

/// The statement for one query.
pub(crate) fn stepwise(query_id: i64) -> Result<Stepwise> {
    let sql = SQL.replace("$query_id", &query_id.to_string());
    let mut steps = Vec::new();
    let Some(mut rest) = sql.strip_prefix("WITH\n") else {
        return internal_err!("anomaly_candidates.sql does not begin with WITH");
    };
    // Each expression is between a comment and a parenthesis at the beginning of a line.
    while let Some(commented) = rest.strip_prefix("-- ") {
        let head = commented.split_once(" AS (\n");
        let head = head.and_then(|(head, body)| Some((head.rsplit_once('\n')?, body)));
        let Some(((doc, name), body)) = head else {
            return internal_err!("no expression follows a comment: {commented}");
        };
        let Some((body, after)) = body.split_once("\n)") else {
            return internal_err!("the expression {name} does not end");
        };
        let use_ = if name == ATTEMPTED {
            Use::Attempted
        } else if SHARED.contains(&name) {
            Use::Shared
        } else {
            Use::Inline
        };
        let step = Step::new(use_, name.to_owned(), doc, body.to_owned());
        steps.push(if OF_SCANS.contains(&name) {
            step.with_rows_of(SCANS)
        } else {
            step
        });
        rest = after.strip_prefix(',').unwrap_or(after).trim_start();
    }
    Ok(Stepwise {
        steps,
        answer: rest.trim_end().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_are_the_statement() {
        let stepwise = stepwise(7).unwrap();
        let sql = SQL.replace("$query_id", "7");
        assert_eq!(stepwise.text(), sql.trim_end());
        assert!(stepwise.answer.starts_with("SELECT\n"));
        for name in SHARED.into_iter().chain(OF_SCANS) {
            let named = format!("\n{name} AS (\n");
            assert!(SQL.contains(&named), "{name}");
        }
    }
}
