//! Predicates over a table's columns that separate expensive records from the others.
//!
//! 1. SQL sums up what each record of a table took (`sql/blame_sample.sql`), and joins the most
//!    expensive records and a sample of the others with the table.
//! 2. [`search`] looks for conditions on one property ([`features`]) that hold for much of the time
//!    and few of the records. [`round_thresholds`] moves each bound to a round number.
//! 3. SQL counts exactly how many rows fulfil each condition, and decides which conditions separate
//!    expensive records (`sql/blame_count.sql`).
//! 4. The best are kept. The query's time without their rows is estimated as for a single record
//!    ([`what_if`](crate::what_if)).
//!
//! `function` is the table function `sys.blame(query_id)`.

mod features;
mod function;
mod missing_rows;
mod predicate;
mod round_thresholds;
mod search;

use std::collections::HashSet;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};

pub use function::{Blame, BlameFunction};
pub use predicate::Predicate;

use skewer_sql::quote::literal;

use crate::error::Error;
use crate::record::table_sql;
use crate::source::{Statements, rows};
use crate::summary::QuerySummary;
use crate::what_if::{Records, query_without};
use features::Feature;
use search::{Condition, FINALISTS, PredicateForm, Sample};

/// The section's title.
pub const SECTION: &str = "What tells them apart";

/// The sample holds this many of the most expensive records …
const DEAREST: i64 = 500;

/// … and about this many of the others.
const OTHERS: i64 = 20_000;

/// The condition under which `records` of a table that took `ns` are separated from all records.
const RULE: &str = include_str!("../sql/blame_rule.sql");

/// A predicate adds something to a better one with fewer rows if its rows took this many times the
/// time.
const ADDS: f64 = 1.05;

/// Predicates that `sys.blame` returns for a query.
const NAMED: usize = 5;

/// Predicates that a report shows.
const SHOWN: usize = 3;

/// The predicates that separate a query's expensive records.
#[derive(Debug, Clone, Default)]
pub struct Predicates {
    /// Best first.
    pub found: Vec<Predicate>,
}

impl Predicates {
    /// Looks for predicates over the tables whose records took much time, and keeps the ones that a
    /// report shows.
    ///
    /// # Errors
    /// If schema `sys` cannot be read. A table that cannot be read is passed over.
    pub async fn worth_showing(
        statements: &mut Statements<'_>,
        summary: &QuerySummary,
    ) -> Result<Self, Error> {
        let tables = measured_tables(statements, summary).await?;
        let mut found = find(statements, summary, &tables, MeasuredTable::is_much, SHOWN).await?;
        found.retain(|one| one.saves_much);
        // Only `sys.blame` names further predicates with the same rows.
        let mut named = HashSet::new();
        found.retain(|one| {
            let time = one.time_share.to_bits();
            named.insert((one.table.clone(), one.matched, time))
        });
        Ok(Self {
            found: without_wider(found),
        })
    }
}

/// Drops predicates that only widen a narrower one.
fn without_wider(found: Vec<Predicate>) -> Vec<Predicate> {
    let is_wider = |one: &Predicate| found.iter().any(|other| one.only_widens(other));
    let says_more: Vec<bool> = found.iter().map(|one| !is_wider(one)).collect();
    let found = found.into_iter().zip(says_more);
    found
        .filter_map(|(one, says)| says.then_some(one))
        .collect()
}

/// Finds at most `at_most` predicates, best first. Looks at the [`measured_tables`] that `looks_at`
/// chooses and that no other table has replaced.
async fn find(
    statements: &mut Statements<'_>,
    summary: &QuerySummary,
    tables: &[MeasuredTable],
    looks_at: fn(&MeasuredTable) -> bool,
    at_most: usize,
) -> Result<Vec<Predicate>, Error> {
    let mut found = Vec::new();
    for table in tables {
        if looks_at(table) && table.records > 1 && !summary.is_replaced(&table.name) {
            found.extend(predicates_of_table(statements, summary, table).await?);
        }
    }
    found.sort_by_key(Predicate::rank);
    let mut kept = without_repetitions(found);
    kept.truncate(at_most);
    if kept.is_empty() {
        return Ok(kept);
    }
    let several = tables.len() > 1 || scanned_tables(statements, summary).await? > 1;
    for blamed in &mut kept {
        let records = Records::Where(&blamed.predicate);
        let without = query_without(statements, SECTION, summary, &blamed.table, records).await?;
        blamed.without_ns = without.map(|without| without.ns);
        blamed.saves_much = without.is_some_and(|without| without.saves_much);
        if summary.is_query() {
            let table = match several {
                true => format!("{} ", table_sql(&blamed.table)),
                false => String::new(),
            };
            blamed.verify = Some(format!(
                "EXPLAIN PROFILE QUERY {} WITHOUT {table}({});",
                summary.query_id, blamed.predicate
            ));
        }
    }
    Ok(kept)
}

/// A table and the time of its records.
struct MeasuredTable {
    /// As the log names it.
    name: String,
    records: i64,
    total_ns: i64,
    is_much: bool,
}

impl MeasuredTable {
    /// Whether a report looks for predicates over the table.
    fn is_much(&self) -> bool {
        self.is_much
    }

    /// Share of the time of all records.
    fn share(&self, ns: i64) -> f64 {
        ns as f64 / self.total_ns.max(1) as f64
    }
}

/// The tables whose records were timed, most time first. Returns none if the query has no log of
/// records, or was imported.
async fn measured_tables(
    statements: &mut Statements<'_>,
    summary: &QuerySummary,
) -> Result<Vec<MeasuredTable>, Error> {
    if !summary.has_log() || summary.imported_from.is_some() {
        return Ok(Vec::new());
    }
    let sql = include_str!("../sql/blamed_tables.sql")
        .replace("$query_id", &summary.query_id.to_string());
    let answer = statements.query(SECTION, sql).await?;
    let tables = rows(&answer).filter_map(|row| {
        Some(MeasuredTable {
            name: row.text("table_name")?,
            records: row.sum("records"),
            total_ns: row.sum("total_ns"),
            is_much: row.flag("is_much"),
        })
    });
    Ok(tables.collect())
}

async fn scanned_tables(
    statements: &mut Statements<'_>,
    summary: &QuerySummary,
) -> Result<usize, Error> {
    let sql = include_str!("../sql/scanned_tables.sql")
        .replace("$query_id", &summary.query_id.to_string());
    let answer = statements.query(SECTION, sql).await?;
    let mut tables: Vec<_> = rows(&answer)
        .filter_map(|row| row.text("table_name"))
        .collect();
    tables.sort();
    tables.dedup();
    Ok(tables.len())
}

/// Keeps the predicates, best first, that add something to the ones before them: one for each
/// column, and none with more rows that took no more time. Predicates with the same rows stay.
fn without_repetitions(found: Vec<Predicate>) -> Vec<Predicate> {
    let mut kept: Vec<(Predicate, String)> = Vec::new();
    for blamed in found {
        let column = column_of(&blamed.predicate);
        let repeats = kept.iter().any(|(better, of)| {
            let same_table = better.table == blamed.table;
            let same_rows = better.matched == blamed.matched;
            let adds = blamed.time_share > better.time_share * ADDS || same_rows;
            same_table && (*of == column || (better.matched <= blamed.matched && !adds))
        });
        if !repeats {
            kept.push((blamed, column));
        }
    }
    kept.into_iter().map(|(blamed, _)| blamed).collect()
}

/// The column of a predicate: the text before its operator, without a function.
fn column_of(predicate: &str) -> String {
    let subject = predicate.split([' ', '=']).next().unwrap_or(predicate);
    match subject.split_once('(') {
        Some((_, rest)) => rest.trim_end_matches(')').to_owned(),
        None => subject.to_owned(),
    }
}

/// The predicates over one table that are worth naming, counted exactly.
async fn predicates_of_table(
    statements: &mut Statements<'_>,
    summary: &QuerySummary,
    table: &MeasuredTable,
) -> Result<Vec<Predicate>, Error> {
    let from = table_sql(&table.name);
    let one = format!("SELECT * FROM {from} LIMIT 1");
    let Some(one) = statements.try_query(SECTION, one).await else {
        return Ok(Vec::new());
    };
    let Some(schema) = one
        .iter()
        .find(|batch| batch.num_rows() > 0)
        .map(RecordBatch::schema)
    else {
        return Ok(Vec::new());
    };
    let features = Feature::of_schema(&schema);
    let about = |sql: &str| {
        sql.replace("$query_id", &summary.query_id.to_string())
            .replace("$table_name", &literal(&table.name))
            .replace("$table", &from)
    };
    let conditions = conditions(statements, &about, &features, table.records).await?;
    if conditions.is_empty() {
        return Ok(Vec::new());
    }
    count(statements, &about, table, conditions).await
}

/// Conditions that look good in a sample, best first.
async fn conditions(
    statements: &mut Statements<'_>,
    about: &(dyn Fn(&str) -> String + Sync),
    features: &[Feature],
    records: i64,
) -> Result<Vec<Condition>, Error> {
    let stride = (records / OTHERS).max(1);
    let named = features.iter().enumerate();
    let named: Vec<String> = named
        .map(|(index, feature)| format!("{} AS f{index}", feature.sql()))
        .collect();
    let sql = about(include_str!("../sql/blame_sample.sql"))
        .replace("$dearest", &DEAREST.to_string())
        .replace("$stride", &stride.to_string())
        .replace("$features", &named.join(",\n  "));
    let Some(answer) = statements.try_query(SECTION, sql).await else {
        return Ok(Vec::new());
    };
    let sample = sample(&answer, records)?;
    let mut found: Vec<Condition> = Vec::new();
    for (index, feature) in features.iter().enumerate() {
        let values = feature.values(&answer, index)?;
        found.extend(search::conditions(feature, &values, &sample));
    }
    found.sort_by(|a, b| b.excess.total_cmp(&a.excess));
    found.dedup_by(|a, b| a.predicate == b.predicate);
    found.truncate(FINALISTS);
    Ok(found)
}

/// What the records of the sample took, and how many records each stands for.
fn sample(answer: &[RecordBatch], records: i64) -> Result<Sample, Error> {
    let mut sample = Sample::default();
    let mut dear = Vec::new();
    for batch in answer {
        let ns = cast(batch.column(0), &DataType::Float64)?;
        let ns = ns.as_primitive::<Float64Type>().iter();
        sample.ns.extend(ns.map(|ns| ns.unwrap_or(0.0)));
        let is_dear = batch.column(1).as_boolean().iter();
        dear.extend(is_dear.map(|is| is == Some(true)));
    }
    let dearest = dear.iter().filter(|is| **is).count() as f64;
    let others = dear.len() as f64 - dearest;
    let weight = ((records as f64 - dearest) / others.max(1.0)).max(1.0);
    let weights = dear.iter().map(|is| if *is { 1.0 } else { weight });
    sample.weight.extend(weights);
    Ok(sample)
}

/// Counts the rows that fulfil each condition in the whole table, and keeps the conditions that
/// separate expensive records.
async fn count(
    statements: &mut Statements<'_>,
    about: &(dyn Fn(&str) -> String + Sync),
    table: &MeasuredTable,
    conditions: Vec<Condition>,
) -> Result<Vec<Predicate>, Error> {
    let counts = conditions.iter().enumerate().map(|(index, condition)| {
        let predicate = condition.qualified();
        format!(
            "count(*) FILTER (WHERE {predicate}) AS rows_{index},\n    \
             count(spent.row_id) FILTER (WHERE {predicate}) AS records_{index},\n    \
             CAST(sum(spent.self_ns) FILTER (WHERE {predicate}) AS BIGINT) AS ns_{index}"
        )
    });
    let counts = counts.collect::<Vec<_>>().join(",\n    ");
    let each = |prefix: &str| {
        let each = (0..conditions.len()).map(|index| format!("{prefix}{index}"));
        each.collect::<Vec<_>>().join(", ")
    };
    let sql = about(include_str!("../sql/blame_count.sql"))
        .replace("$numbers", &each(""))
        .replace("$rows", &each("rows_"))
        .replace("$records", &each("records_"))
        .replace("$times", &each("ns_"))
        .replace("$all_records", &table.records.to_string())
        .replace("$all_ns", &table.total_ns.to_string())
        .replace("$rule", RULE.trim_end())
        .replace("$counts", &counts);
    let Some(answer) = statements.try_query(SECTION, sql).await else {
        return Ok(Vec::new());
    };
    let found = rows(&answer).filter_map(|row| {
        let number = usize::try_from(row.integer("number")?).ok()?;
        let condition = conditions.get(number)?;
        let matched = row.sum("matched_rows");
        Some(Predicate {
            table: table.name.clone(),
            form: if condition.is_equality && matched == 1 {
                PredicateForm::Single
            } else {
                condition.form
            },
            predicate: condition.predicate.clone(),
            matched,
            table_rows: row.sum("table_rows"),
            time_share: table.share(row.sum("ns")),
            without_ns: None,
            saves_much: false,
            verify: None,
        })
    });
    Ok(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn predicate(predicate: &str, matched: i64, time_share: f64) -> Predicate {
        Predicate {
            table: "main.t".to_owned(),
            predicate: predicate.to_owned(),
            matched,
            table_rows: 1000,
            time_share,
            without_ns: None,
            saves_much: false,
            verify: None,
            form: PredicateForm::Natural,
        }
    }

    #[test]
    fn what_holds_for_a_dear_record_and_for_ordinary_ones_is_left_out() {
        let left = |found: &[Predicate]| {
            let left = without_wider(found.to_vec()).into_iter();
            left.map(|one| one.predicate).collect::<Vec<_>>()
        };
        let long = predicate("length(s) > 1000000", 1, 0.8);
        let of_its_kind = predicate("k = 5", 400, 0.9);
        assert_eq!(
            left(&[long.clone(), of_its_kind.clone()]),
            [&*long.predicate]
        );
        assert_eq!(left(&[of_its_kind, long.clone()]), [&*long.predicate]);
        // Others of its kind are dear, too.
        let kind = predicate("k = 5", 40, 0.98);
        assert_eq!(left(&[kind, long.clone()]).len(), 2);
        // They need not be the same rows.
        let others = predicate("id < 300", 300, 0.15);
        assert_eq!(left(&[long.clone(), others]).len(), 2);
        // Nor most of them.
        let (some, more) = (predicate("k = 1", 100, 0.5), predicate("k < 3", 200, 0.55));
        assert_eq!(left(&[more, some]).len(), 2);
        let elsewhere = Predicate {
            table: "main.u".to_owned(),
            ..predicate("k = 5", 400, 0.9)
        };
        assert_eq!(left(&[long, elsewhere]).len(), 2);
    }
}
