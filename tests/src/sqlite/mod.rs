//! Scripts in the dialect of SQLite's sqllogictest, whose corpus was made by running several
//! databases against each other (<https://sqlite.org/sqllogictest>).
//!
//! * `script`: the records of a script
//! * `render`: values as the dialect writes them, in its order, hashed
//! * `known`: what differs for a reason, and the reason
//!
//! [`run`] runs a script on a database in memory and counts.

mod known;
mod render;
mod script;

use std::collections::BTreeMap;
use std::path::Path;

use datafusion::arrow::array::RecordBatch;
use skewer::{Database, Error, Session};

use script::{Query, Record, Statement};

/// What running scripts has shown.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Queries and statements that did what the script says.
    pub equal: usize,
    /// Those that differ for a reason, by the reason.
    pub known: BTreeMap<&'static str, usize>,
    /// Those that differ for no known reason: place and what happened.
    pub wrong: Vec<String>,
}

impl Outcome {
    /// Adds what another script has shown.
    pub fn add(&mut self, other: Self) {
        self.equal += other.equal;
        for (reason, count) in other.known {
            *self.known.entry(reason).or_default() += count;
        }
        self.wrong.extend(other.wrong);
    }

    fn count(&mut self, place: &str, sql: &str, difference: Option<Difference>) {
        let Some(difference) = difference else {
            self.equal += 1;
            return;
        };
        match known::reason(sql, &difference, self.known.keys()) {
            Some(reason) => *self.known.entry(reason).or_default() += 1,
            None => self.wrong.push(format!("{place}: {sql}\n    {difference}")),
        }
    }
}

/// How something differs from what a script says.
#[derive(Debug)]
enum Difference {
    /// It fails.
    Fails(String),
    /// It does not fail, though it should.
    Succeeds,
    /// It has other values: what the script says, and what there is.
    Values { expected: String, got: String },
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fails(error) => write!(f, "fails: {error}"),
            Self::Succeeds => f.write_str("succeeds, and should fail"),
            Self::Values { expected, got } => write!(f, "expected {expected}\n    got      {got}"),
        }
    }
}

/// Runs a script: all its statements, and every `every`th query.
///
/// # Errors
/// If it is no script, or the database cannot be opened.
pub async fn run(path: &Path, every: usize) -> Result<Outcome, String> {
    let text = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let text = String::from_utf8_lossy(&text);
    let records = script::records(&text).map_err(|e| format!("{}:{e}", path.display()))?;
    let db = Database::in_memory().map_err(|e| e.to_string())?;
    let session = db.session();
    let mut outcome = Outcome::default();
    // Results of a label are equal, whatever query they are of.
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    let mut queries = 0;
    for record in records {
        match record {
            Record::Statement(Statement { line, sql, fails }) => {
                let Some(sql) = known::without_constraints(&sql) else {
                    let reason = "there are no indexes";
                    *outcome.known.entry(reason).or_default() += 1;
                    continue;
                };
                let difference = match (execute(&session, &sql).await, fails) {
                    (Ok(_), false) | (Err(_), true) => None,
                    (Ok(_), true) => Some(Difference::Succeeds),
                    (Err(error), false) => Some(Difference::Fails(error.to_string())),
                };
                outcome.count(&format!("{}:{line}", path.display()), &sql, difference);
            }
            Record::Query(query) => {
                queries += 1;
                if queries % every == 0 {
                    let place = format!("{}:{}", path.display(), query.line);
                    let difference = ask(&session, &query, &mut labels).await;
                    outcome.count(&place, &query.sql, difference);
                }
            }
        }
    }
    Ok(outcome)
}

async fn execute(session: &Session, sql: &str) -> Result<Vec<RecordBatch>, Error> {
    session.sql(sql).await?.collect().await
}

/// How a query's result differs.
async fn ask(
    session: &Session,
    query: &Query,
    labels: &mut BTreeMap<String, String>,
) -> Option<Difference> {
    let batches = match execute(session, &query.sql).await {
        Ok(batches) => batches,
        Err(error) => return Some(Difference::Fails(error.to_string())),
    };
    let values = match render::values(&batches, &query.types, query.order) {
        Ok(values) => values,
        Err(error) => return Some(Difference::Fails(error)),
    };
    let hashed = render::hashed(&values);
    let expected = query.expected.join(" ");
    let is_hash = expected.contains(" values hashing to ");
    let got = match is_hash {
        true => hashed.clone(),
        false => values.join(" "),
    };
    if got != expected {
        let shown = match is_hash {
            true => format!("{got}: {}", render::shortened(&values)),
            false => got,
        };
        return Some(Difference::Values {
            expected,
            got: shown,
        });
    }
    let label = query.label.as_ref()?;
    let first = labels
        .entry(label.clone())
        .or_insert_with(|| hashed.clone());
    (*first != hashed).then(|| Difference::Values {
        expected: format!("{first}, as the others of {label}"),
        got: hashed,
    })
}
