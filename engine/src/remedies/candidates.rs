//! Remedies that the log of a run speaks for.

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{Float64Type, Int64Type};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
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
    /// Rows that the exchange moved.
    pub(crate) rows: f64,
    pub(crate) keys: Vec<HeavyKey>,
}

impl Candidate {
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
    for batch in untraced_query(session, &sql).await? {
        for row in 0..batch.num_rows() {
            let Some(remedy) = Remedy::from_name(&text(&batch, 0, row)) else {
                continue;
            };
            let exchange_id = number(&batch, 6, row);
            candidates.push(Candidate {
                remedy,
                exchange: usize::try_from(number(&batch, 1, row)).unwrap_or(usize::MAX),
                subject: text(&batch, 2, row),
                because: text(&batch, 3, row),
                evidence_query_id: query_id,
                predicted_ns: number(&batch, 4, row),
                rows: batch.column(5).as_primitive::<Float64Type>().value(row),
                keys: heavy_keys(session, query_id, exchange_id).await?,
            });
        }
    }
    Ok(candidates)
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
    let mut exchange = 0;
    for batch in untraced_query(session, &sql).await? {
        for row in 0..batch.num_rows() {
            let possible = text(&batch, 2, row);
            let possible: Vec<_> = possible.split(',').filter_map(Remedy::from_name).collect();
            let chosen = chance.random_range(0..=possible.len());
            let (query_id, exchange_id) = (number(&batch, 0, row), number(&batch, 1, row));
            if let Some(remedy) = possible.get(chosen) {
                let mut keys = heavy_keys(session, query_id, exchange_id).await?;
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
            exchange += 1;
        }
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
        "SELECT key_hash, CAST(sum(tuples) AS DOUBLE), bool_or(key_has_null) FROM sys.key_frequencies \
         WHERE query_id = {query_id} AND exchange_id = {exchange_id} AND input IS NULL AND key_hash IS NOT NULL \
         GROUP BY key_hash ORDER BY 2 DESC, 1"
    );
    let mut keys = Vec::new();
    for batch in untraced_query(session, &sql).await? {
        for row in 0..batch.num_rows() {
            keys.push(HeavyKey {
                hash: number(&batch, 0, row) as u64,
                rows: batch.column(1).as_primitive::<Float64Type>().value(row),
                has_null: batch.column(2).as_boolean().value(row),
            });
        }
    }
    Ok(keys)
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
         THEN concat(', saves ', CAST(round(measured_ns / 1e6) AS BIGINT), ' ms') ELSE '' END) \
         FROM sys.remedies WHERE query_id = (SELECT max(query_id) FROM sys.queries \
         WHERE fingerprint = {statement} AND status = 'finished') ORDER BY predicted_ns DESC, exchange_id"
    );
    let mut lines = Vec::new();
    for batch in untraced_query(session, &sql).await? {
        lines.extend((0..batch.num_rows()).map(|row| text(&batch, 0, row)));
    }
    Ok(lines)
}

fn text(batch: &RecordBatch, column: usize, row: usize) -> String {
    let column = batch.column(column);
    if column.is_null(row) {
        return String::new();
    }
    match column.as_string_opt::<i32>() {
        Some(texts) => texts.value(row).to_owned(),
        None => column
            .as_string_view_opt()
            .map_or_else(String::new, |texts| texts.value(row).to_owned()),
    }
}

fn number(batch: &RecordBatch, column: usize, row: usize) -> i64 {
    let column = batch.column(column);
    match column.as_primitive_opt::<Int64Type>() {
        Some(numbers) if numbers.is_valid(row) => numbers.value(row),
        _ => 0,
    }
}
