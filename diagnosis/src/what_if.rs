//! Estimates of what a query would take without some records of a table, and without the profiler
//! (`sql/query_without_records.sql`).

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field};

use skewer_sql::quote::{identifier, literal};

use crate::error::Error;
use crate::record::table_sql;
use crate::source::{Statements, rows};
use crate::summary::QuerySummary;

/// Records with a smaller share of the bytes that were read count by rows: their share is as small.
const NOTABLE_SHARE: f64 = 0.05;

/// Bytes that an element of a list counts.
const ELEMENT: usize = 8;

/// The share that records have of the bytes that scans of their table read.
#[derive(Debug, Clone)]
pub struct ShareOfBytes {
    /// From 0 to 1.
    pub share: f64,
    /// The ids of these scans.
    pub scans: Vec<i64>,
}

/// Records of a table.
#[derive(Debug, Clone, Copy)]
pub enum Records<'a> {
    /// The one with a row id.
    One(i64),
    /// The ones with row ids.
    Several(&'a [i64]),
    /// The ones for which a predicate over the table's columns is true.
    Where(&'a str),
}

impl Records<'_> {
    /// As a condition over the table.
    pub(crate) fn predicate(self) -> String {
        match self {
            Self::One(row_id) => format!("_row_id = {row_id}"),
            Self::Several(row_ids) => format!("_row_id IN ({})", listed(row_ids, |id| id)),
            Self::Where(predicate) => predicate.to_owned(),
        }
    }

    /// A query that gives their ids.
    fn ids(self, table: &str) -> String {
        match self {
            Self::One(row_id) => format!("SELECT CAST({row_id} AS BIGINT) AS id"),
            Self::Several(row_ids) => format!(
                "SELECT DISTINCT CAST(column1 AS BIGINT) AS id FROM (VALUES {}) AS records",
                listed(row_ids, |id| format!("({id})"))
            ),
            Self::Where(predicate) => format!(
                "SELECT _row_id AS id FROM {} WHERE {predicate}",
                table_sql(table)
            ),
        }
    }
}

/// The ids, each as `shown`, with commas between them.
fn listed(row_ids: &[i64], shown: impl Fn(String) -> String) -> String {
    let texts = row_ids.iter().map(|id| shown(id.to_string()));
    texts.collect::<Vec<_>>().join(", ")
}

/// The estimate.
#[derive(Debug, Clone, Copy)]
pub struct Estimate {
    /// Nanoseconds of the query without the records, at most as many as it took.
    pub ns: i64,
    /// Whether the query saves enough to be worth telling.
    pub saves_much: bool,
}

/// Estimates what the query would take without `records` of `table`. Returns `None` where no
/// estimate is possible, as when the table can no longer be read.
///
/// # Errors
/// If schema `sys` cannot be read.
pub async fn query_without(
    statements: &mut Statements<'_>,
    section: &'static str,
    summary: &QuerySummary,
    table: &str,
    records: Records<'_>,
) -> Result<Option<Estimate>, Error> {
    let share = share_of_bytes(statements, section, summary, table, records).await;
    let sql = estimate_sql(summary.query_id, table, &records.ids(table), share.as_ref());
    let answer = match records {
        Records::One(_) | Records::Several(_) => statements.query(section, sql).await?,
        Records::Where(_) => match statements.try_query(section, sql).await {
            Some(answer) => answer,
            None => return Ok(None),
        },
    };
    let without = rows(&answer).next().and_then(|row| {
        Some(Estimate {
            ns: row.integer("without_ns")?.clamp(0, summary.query_ns()),
            saves_much: row.flag("saves_much"),
        })
    });
    Ok(without)
}

/// Returns the statement of the estimate. The query `own` returns the row ids to leave out.
pub fn estimate_sql(
    query_id: i64,
    table: &str,
    own: &str,
    share_of_bytes: Option<&ShareOfBytes>,
) -> String {
    let (share, scans) = match share_of_bytes {
        Some(bytes) => {
            let scans: Vec<String> = bytes.scans.iter().map(i64::to_string).collect();
            (
                format!("CAST({:.6} AS DOUBLE)", bytes.share),
                scans.join(", "),
            )
        }
        None => ("CAST(NULL AS DOUBLE)".to_owned(), "NULL".to_owned()),
    };
    include_str!("sql/query_without_records.sql")
        .replace("$query_id", &query_id.to_string())
        .replace("$table_name", &literal(table))
        .replace("$share_of_bytes", &share)
        .replace("$scans_by_bytes", &scans)
        .replace("$own", own)
}

/// The share that records have of the bytes that the scans of their table read. Adds up the lengths
/// of values in the columns that the scans read; `None` where the share is unknown or small.
///
/// A scan's own number of bytes is an estimate that may miss single long values. So the bytes of the
/// whole table are read where the records have many.
async fn share_of_bytes(
    statements: &mut Statements<'_>,
    section: &'static str,
    summary: &QuerySummary,
    table: &str,
    records: Records<'_>,
) -> Option<ShareOfBytes> {
    if summary.imported_from.is_some() || summary.is_replaced(table) {
        return None;
    }
    let scans = include_str!("sql/scanned_bytes.sql")
        .replace("$query_id", &summary.query_id.to_string())
        .replace("$table_name", &literal(table));
    let scans = statements.try_query(section, scans).await?;
    let scans: Vec<(i64, String, i64)> = rows(&scans)
        .filter_map(|row| {
            let (id, details) = (row.integer("operator_id")?, row.text("details")?);
            Some((id, details, row.sum("bytes")))
        })
        .collect();
    let from = table_sql(table);
    let one = format!("SELECT * FROM {from} LIMIT 1");
    let one = statements.try_query(section, one).await?;
    let schema = one.first().map(RecordBatch::schema)?;
    let lengths: Vec<(&str, String)> = schema
        .fields()
        .iter()
        .filter_map(|field| Some((field.name().as_str(), length(field)?)))
        .filter(|(name, _)| scans.iter().any(|(_, details, _)| names(details, name)))
        .collect();
    let (long, lengths): (Vec<&str>, Vec<String>) = lengths.into_iter().unzip();
    // One side of a self-join may read no long column.
    let reads_long = |details: &str| long.iter().any(|name| names(details, name));
    let scans = scans.iter().filter(|(_, details, _)| reads_long(details));
    let (scans, read): (Vec<i64>, Vec<i64>) = scans.map(|(id, _, bytes)| (*id, *bytes)).unzip();
    let read = read.into_iter().max()?;
    let bytes = format!("SELECT sum({}) AS bytes FROM {from}", lengths.join(" + "));
    let own = format!("{bytes} WHERE {}", records.predicate());
    let own = statements.try_query(section, own).await?;
    let own = rows(&own).next()?.integer("bytes")? as f64;
    if own < NOTABLE_SHARE * read as f64 {
        return None;
    }
    let all = statements.try_query(section, bytes).await?;
    let all = rows(&all).next()?.integer("bytes")? as f64;
    let share = (own / all).min(1.0);
    (all > 0.0).then_some(ShareOfBytes { share, scans })
}

/// SQL for the bytes of a column's value; `None` for types of a fixed size.
fn length(field: &Field) -> Option<String> {
    let column = identifier(field.name());
    let length = match field.data_type() {
        DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View
        | DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView => format!("octet_length({column})"),
        DataType::List(_) | DataType::LargeList(_) => {
            format!("{ELEMENT} * array_length({column})")
        }
        _ => return None,
    };
    Some(format!("coalesce(CAST({length} AS BIGINT), 0)"))
}

/// Whether the details of an operator name a column.
fn names(details: &str, column: &str) -> bool {
    let part_of_a_name = |c: char| c.is_alphanumeric() || c == '_';
    details.match_indices(column).any(|(start, _)| {
        let (before, after) = (&details[..start], &details[start + column.len()..]);
        !before.ends_with(part_of_a_name) && !after.starts_with(part_of_a_name)
    })
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn a_column_is_named_by_its_whole_name() {
        let details =
            "file_groups={1 group: [[7.parquet]]}, projection=[id, body@2], file_type=parquet";
        assert!(names(details, "id") && names(details, "body"));
        assert!(!names(details, "bod") && !names(details, "ody") && !names(details, "name"));
    }
}
