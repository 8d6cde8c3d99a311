//! Remedies that the log of a run speaks for.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use skewer_diagnosis::source::{Row, rows};
use skewer_optimizer::remedies::{HeavyKey, Prescription, Remedy};
use skewer_sql::quote::literal;

use crate::error::Error;
use crate::session::Session;
use crate::statements::untraced::untraced_query;

/// A remedy that the log of a run speaks for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) remedy: Remedy,
    /// Number of the exchange among those that hash keys.
    pub(crate) exchange: usize,
    /// The keys that it is for.
    pub(crate) subject: String,
    /// What the run has shown.
    pub(crate) because: String,
    /// The run.
    pub(crate) evidence_query_id: i64,
    pub(crate) predicted_ns: i64,
    /// Rows that the exchange moved; where they carry lists, the values in them.
    pub(crate) rows: f64,
    pub(crate) keys: Vec<HeavyKey>,
}

impl Candidate {
    /// Whether it does the same for the same heaviest key.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        let heaviest = |candidate: &Self| candidate.keys.first().map(|key| key.hash);
        self.remedy == other.remedy
            && self.exchange == other.exchange
            && heaviest(self) == heaviest(other)
    }

    /// What is to be done with the plan.
    pub(super) fn prescription(&self) -> Prescription {
        Prescription {
            exchange: self.exchange,
            remedy: self.remedy,
            rows: self.rows,
            keys: self.keys.clone(),
        }
    }
}

/// What the log of a query speaks for; what saves most comes first.
///
/// # Errors
/// If schema `sys` cannot be read.
pub(super) async fn of_query(session: &Session, query_id: i64) -> Result<Vec<Candidate>, Error> {
    let sql = format!(
        "SELECT remedy, exchange_number, subject, because, predicted_ns, CAST(rows AS DOUBLE) AS rows, exchange_id \
         FROM sys.remedy_candidates WHERE query_id = {query_id} ORDER BY predicted_ns DESC, exchange_id"
    );
    let mut candidates = Vec::new();
    let answer = untraced_query(session, &sql).await?;
    for row in rows(&answer) {
        let exchange_id = number(&row, "exchange_id")?;
        let remedy = text(&row, "remedy")?;
        let remedy = Remedy::from_name(&remedy).ok_or_else(|| missing("remedy"))?;
        candidates.push(Candidate {
            remedy,
            exchange: exchange_number(number(&row, "exchange_number")?)?,
            subject: text(&row, "subject")?,
            because: text(&row, "because")?,
            evidence_query_id: query_id,
            predicted_ns: number(&row, "predicted_ns")?,
            rows: float(&row, "rows")?,
            keys: heavy_keys(session, query_id, exchange_id).await?,
        });
    }
    Ok(candidates)
}

fn exchange_number(number: i64) -> Result<usize, Error> {
    usize::try_from(number).map_err(|_| missing("exchange_number"))
}

/// For each exchange of the last run of a statement one of the remedies that do not change the result, or none, and
/// any of its heavy keys with any weights.
///
/// # Errors
/// If schema `sys` cannot be read.
pub(super) async fn random(
    session: &Session,
    statement: &str,
    seed: u64,
) -> Result<Vec<Candidate>, Error> {
    let sql = format!(
        "SELECT query_id, operator_id, remedies FROM sys.operators \
         WHERE remedies IS NOT NULL AND query_id = (SELECT max(query_id) FROM sys.queries \
         WHERE fingerprint = {} AND status = 'finished') ORDER BY operator_id",
        literal(statement)
    );
    let mut chance = StdRng::seed_from_u64(seed);
    let mut candidates = Vec::new();
    let answer = untraced_query(session, &sql).await?;
    for (exchange, row) in rows(&answer).enumerate() {
        let possible = text(&row, "remedies")?;
        let possible: Vec<_> = possible.split(',').filter_map(Remedy::from_name).collect();
        let chosen = chance.random_range(0..=possible.len());
        let Some(remedy) = possible.get(chosen) else {
            continue;
        };
        let query_id = number(&row, "query_id")?;
        let mut keys = heavy_keys(session, query_id, number(&row, "operator_id")?).await?;
        keys.retain(|_| chance.random_bool(0.7));
        for key in &mut keys {
            key.rows = chance.random_range(0.0..100.0);
        }
        candidates.push(Candidate {
            remedy: *remedy,
            exchange,
            subject: "any keys".to_owned(),
            because: format!("the setting asks for random remedies with seed {seed}"),
            evidence_query_id: query_id,
            predicted_ns: 0,
            rows: 100.0,
            keys,
        });
    }
    Ok(candidates)
}

/// The heavy keys of an exchange.
async fn heavy_keys(
    session: &Session,
    query_id: i64,
    exchange_id: i64,
) -> Result<Vec<HeavyKey>, Error> {
    let sql = format!(
        "SELECT key_hash, CAST(sum(coalesce(list_values, tuples)) AS DOUBLE) AS rows, bool_or(key_has_null) AS has_null \
         FROM sys.key_frequencies \
         WHERE query_id = {query_id} AND exchange_id = {exchange_id} AND input IS NULL AND key_hash IS NOT NULL \
         GROUP BY key_hash ORDER BY rows DESC, key_hash"
    );
    let answer = untraced_query(session, &sql).await?;
    let keys = rows(&answer).map(|row| {
        Ok(HeavyKey {
            hash: number(&row, "key_hash")? as u64,
            rows: float(&row, "rows")?,
            has_null: row.flag("has_null"),
        })
    });
    keys.collect()
}

/// One line for each remedy that the last run of a statement had, or that its log speaks for.
///
/// # Errors
/// If schema `sys` cannot be read.
pub(crate) async fn lines_about(session: &Session, sql: &str) -> Result<Vec<String>, Error> {
    let statement = literal(&skewer_sql::fingerprint(sql));
    let sql = format!(
        "SELECT concat(verdict, ': ', remedy, ' for ', subject, ', since ', because, ' (query ', evidence_query_id, \
         '); predicted to save ', CAST(round(predicted_ns / 1e6) AS BIGINT), ' ms', \
         CASE WHEN measured_ns IS NOT NULL \
         THEN concat(', saves ', CAST(round(measured_ns / 1e6) AS BIGINT), ' ms') ELSE '' END) AS line \
         FROM sys.remedies WHERE query_id = (SELECT max(query_id) FROM sys.queries \
         WHERE fingerprint = {statement} AND status = 'finished') ORDER BY predicted_ns DESC, exchange_id"
    );
    let answer = untraced_query(session, &sql).await?;
    rows(&answer).map(|row| text(&row, "line")).collect()
}

fn missing(column: &str) -> Error {
    Error::Internal(format!(
        "column {column} of a view about remedies has no value"
    ))
}

/// A whole number of a row.
fn number(row: &Row<'_>, column: &str) -> Result<i64, Error> {
    row.integer(column).ok_or_else(|| missing(column))
}

/// A number of a row.
fn float(row: &Row<'_>, column: &str) -> Result<f64, Error> {
    row.float(column).ok_or_else(|| missing(column))
}

/// A text of a row.
fn text(row: &Row<'_>, column: &str) -> Result<String, Error> {
    row.text(column).ok_or_else(|| missing(column))
}
