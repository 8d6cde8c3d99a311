//! The table function `sys.blame(query_id)`.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::Expr;
use skewer_profiling::LineageMode;
use skewer_profiling::documentation::blame_schema;
use skewer_sql::Statement;

use super::missing_rows::{missing_rows, unreadable};
use super::{NAMED, Predicate, find, measured_tables};
use crate::error::Error;
use crate::operator_text::table_name;
use crate::source::{ProfileSource, Statements};
use crate::source_function::{Question, SourceFunction, query_id_of};
use crate::summary::QuerySummary;
use crate::units::{counted, percent};

/// `sys.blame(query_id)`, for the statements of a session.
pub type BlameFunction = SourceFunction<Blame>;

/// Which predicates separate the expensive records of a query.
#[derive(Debug, Clone)]
pub struct Blame {
    query_id: i64,
}

#[async_trait]
impl Question for Blame {
    fn of_arguments(arguments: &[Expr]) -> Result<Self> {
        match query_id_of(arguments) {
            Some(query_id) => Ok(Self { query_id }),
            None => plan_err!(
                "sys.blame takes a query id as a constant: sys.blame(7); last_query_id() is NULL \
                 before the session's first query"
            ),
        }
    }

    fn schema() -> SchemaRef {
        blame_schema()
    }

    async fn answer(&self, source: &dyn ProfileSource) -> std::result::Result<RecordBatch, Error> {
        read(source, self.query_id).await
    }
}

async fn read(
    source: &dyn ProfileSource,
    query_id: i64,
) -> std::result::Result<RecordBatch, Error> {
    let mut statements = Statements::new(source);
    let summary = QuerySummary::read(&mut statements, query_id).await?;
    if !summary.has_records() {
        return Err(Error::Invalid(format!(
            "query {query_id} was recorded at level {}, which keeps no latencies of records: \
             EXPLAIN PROFILE QUERY {query_id} runs it again at level records",
            summary.level
        )));
    }
    if summary.has_carried() {
        return Err(Error::Invalid(format!(
            "query {query_id} ran with profile.lineage = '{}', which keeps no latencies of single \
             records: SET profile.lineage = '{}' and run it again",
            LineageMode::Piggyback,
            LineageMode::Log
        )));
    }
    if let Some(directory) = &summary.imported_from {
        return Err(Error::Invalid(format!(
            "query {query_id} was imported from '{directory}': the tables that it read are not here"
        )));
    }
    let tables = measured_tables(&mut statements, &summary).await?;
    let found = find(&mut statements, &summary, &tables, |_| true, NAMED).await?;
    if !found.is_empty() {
        return rows(&summary, &found);
    }
    if let Some(table) = summary.replaced_tables.first() {
        return Err(Error::Invalid(format!(
            "table {} has been replaced since query {query_id} read it: EXPLAIN PROFILE QUERY \
             {query_id} runs the query on the current tables",
            table_name(table)
        )));
    }
    if let Some(table) = unreadable(&mut statements, &tables).await {
        return Err(Error::Invalid(format!(
            "table {} of query {query_id} was dropped or renamed, so sys.blame cannot read its rows",
            table_name(table)
        )));
    }
    if let Some(missing) = missing_rows(&mut statements, &summary, &tables).await? {
        let again = match skewer_sql::parse(&summary.sql) {
            Ok(Statement::Query(_)) => {
                format!("; EXPLAIN PROFILE QUERY {query_id} runs the query again")
            }
            _ => String::new(),
        };
        return Err(Error::Invalid(format!(
            "{} of {}, which took {} of the time of the table's records in query {query_id}, {} no \
             longer there: deleted, or truncated{again}",
            counted(missing.records, "row"),
            table_name(missing.table),
            percent(missing.time_share),
            if missing.records == 1 { "is" } else { "are" }
        )));
    }
    rows(&summary, &found)
}

fn rows(summary: &QuerySummary, found: &[Predicate]) -> std::result::Result<RecordBatch, Error> {
    fn integers(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
        Arc::new(values.collect::<Int64Array>())
    }
    let texts = |values: Vec<Option<String>>| Arc::new(StringArray::from(values)) as ArrayRef;
    let shares = |values: Vec<f64>| Arc::new(Float64Array::from(values)) as ArrayRef;
    let each = || found.iter();
    let columns: Vec<ArrayRef> = vec![
        integers(each().map(|_| Some(summary.query_id))),
        integers((1..).take(found.len()).map(Some)),
        texts(each().map(|b| Some(b.table.clone())).collect()),
        texts(each().map(|b| Some(b.predicate.clone())).collect()),
        integers(each().map(|b| Some(b.matched))),
        shares(each().map(Predicate::row_share).collect()),
        shares(each().map(|b| b.time_share).collect()),
        integers(each().map(|_| Some(summary.query_ns()))),
        integers(each().map(|b| b.without_ns)),
        texts(each().map(|b| b.verify.clone()).collect()),
    ];
    Ok(RecordBatch::try_new(blame_schema(), columns)?)
}
