//! Statistics of the tables of a query, from which the sizes of joins are estimated.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::logical_plan::TableScan;

/// Statistics of a table.
#[derive(Debug, Clone, Default)]
pub struct TableSummary {
    /// A hash of the table and the rows that it has; `None` if they may change without notice.
    pub version: Option<u64>,
    /// Number of rows; exact when the query began.
    pub rows: u64,
    /// Statistics of columns, by name. Columns that are missing are not known.
    pub columns: HashMap<String, ColumnSummary>,
    /// Some of the rows.
    pub sample: Option<Sample>,
}

/// Statistics of a column.
#[derive(Debug, Clone, Default)]
pub struct ColumnSummary {
    /// Number of distinct values without NULL.
    pub distinct: Option<f64>,
    /// Number of NULLs.
    pub nulls: Option<u64>,
    /// A value that no other is less than.
    pub min: Option<ScalarValue>,
    /// A value that no other is greater than.
    pub max: Option<ScalarValue>,
    /// Bytes of a value in memory, on average.
    pub bytes: Option<f64>,
}

/// Rows of a table that stand for all of them, with the columns that predicates of the query read.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The rows.
    pub rows: RecordBatch,
    /// So many of them were next to each other in the table, again and again.
    pub run: usize,
}

/// Statistics of the tables that a plan scans.
#[derive(Debug, Clone, Default)]
pub struct Summaries(HashMap<usize, Arc<TableSummary>>);

impl Summaries {
    /// Adds the statistics of the table that `scan` reads.
    pub fn insert(&mut self, scan: &TableScan, summary: Arc<TableSummary>) {
        self.0.insert(identity(scan), summary);
    }

    /// The versions of the tables, as far as they are known.
    pub(super) fn versions(&self) -> impl Iterator<Item = u64> {
        self.0.values().filter_map(|summary| summary.version)
    }

    /// The statistics of the table that `scan` reads, if there are any.
    pub fn get(&self, scan: &TableScan) -> Option<&Arc<TableSummary>> {
        self.0.get(&identity(scan))
    }
}

/// Rewrites of a plan keep the source of each scan.
fn identity(scan: &TableScan) -> usize {
    Arc::as_ptr(&scan.source).cast::<()>() as usize
}

/// A value as a number by which values of its type are ordered, if it has one.
pub(super) fn as_number(value: &ScalarValue) -> Option<f64> {
    use ScalarValue as V;
    let number = match value {
        V::Boolean(value) => f64::from(u8::from((*value)?)),
        V::Int8(value) => f64::from((*value)?),
        V::Int16(value) => f64::from((*value)?),
        V::Int32(value)
        | V::Date32(value)
        | V::Time32Second(value)
        | V::Time32Millisecond(value) => f64::from((*value)?),
        V::Int64(value)
        | V::Date64(value)
        | V::Time64Microsecond(value)
        | V::Time64Nanosecond(value)
        | V::TimestampSecond(value, _)
        | V::TimestampMillisecond(value, _)
        | V::TimestampMicrosecond(value, _)
        | V::TimestampNanosecond(value, _) => (*value)? as f64,
        V::UInt8(value) => f64::from((*value)?),
        V::UInt16(value) => f64::from((*value)?),
        V::UInt32(value) => f64::from((*value)?),
        V::UInt64(value) => (*value)? as f64,
        V::Float32(value) => f64::from((*value)?),
        V::Float64(value) => (*value)?,
        V::Decimal32(value, _, scale) => f64::from((*value)?) / 10_f64.powi((*scale).into()),
        V::Decimal64(value, _, scale) => (*value)? as f64 / 10_f64.powi((*scale).into()),
        V::Decimal128(value, _, scale) => (*value)? as f64 / 10_f64.powi((*scale).into()),
        _ => return None,
    };
    number.is_finite().then_some(number)
}
