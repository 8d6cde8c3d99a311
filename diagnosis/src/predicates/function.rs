//! The table function `sys.blame(query_id)`.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::{
    MemTable, Session as PlanningSession, TableFunctionArgs, TableFunctionImpl, TableProvider,
};
use datafusion::common::{DataFusionError, Result, ScalarValue, plan_err};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use skewer_profiling::LineageMode;
use skewer_profiling::documentation::blame_schema;
use skewer_sql::Statement;

use super::missing_rows::{missing_rows, unreadable};
use super::{NAMED, Predicate, find, measured_tables};
use crate::error::Error;
use crate::operator_text::table_name;
use crate::source::{ProfileSource, Statements};
use crate::summary::QuerySummary;
use crate::units::{counted, percent};

/// Returns what runs the function's statements; an error if the session has ended.
pub(crate) type SourceFn = dyn Fn() -> Result<Box<dyn ProfileSource>> + Send + Sync;

/// `sys.blame(query_id)`, for the statements of a session.
#[derive(Clone)]
pub struct BlameFunction {
    source: Arc<SourceFn>,
}

impl BlameFunction {
    /// The function that reads from what `source` returns at each call.
    pub fn new(
        source: impl Fn() -> Result<Box<dyn ProfileSource>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            source: Arc::new(source),
        }
    }
}

impl std::fmt::Debug for BlameFunction {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("BlameFunction")
            .finish_non_exhaustive()
    }
}

impl TableFunctionImpl for BlameFunction {
    fn call_with_args(
        &self,
        arguments: TableFunctionArgs<'_, '_>,
    ) -> Result<Arc<dyn TableProvider>> {
        let query_id = match arguments.exprs() {
            [Expr::Literal(value, _)] => match value.cast_to(&DataType::Int64) {
                Ok(ScalarValue::Int64(query_id)) => query_id,
                _ => None,
            },
            _ => None,
        };
        let Some(query_id) = query_id else {
            return plan_err!(
                "sys.blame takes a query id as a constant: sys.blame(7); last_query_id() is NULL \
                 before the session's first query"
            );
        };
        Ok(Arc::new(BlameTable {
            function: self.clone(),
            query_id,
        }))
    }
}

/// The predicates of one query. The scan looks for them.
#[derive(Debug)]
struct BlameTable {
    function: BlameFunction,
    query_id: i64,
}

#[async_trait]
impl TableProvider for BlameTable {
    fn schema(&self) -> SchemaRef {
        blame_schema()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn PlanningSession,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let source = (self.function.source)()?;
        // Statements that look for predicates are planned while this one is: their futures hold
        // plans within plans, and are on the heap.
        let found = Box::pin(read(&*source, self.query_id)).await;
        let batch = found.map_err(|error| match error {
            Error::Source(error) => error,
            invalid @ Error::Invalid(_) => DataFusionError::External(Box::new(invalid)),
        })?;
        let table = MemTable::try_new(self.schema(), vec![vec![batch]])?;
        table.scan(state, projection, filters, limit).await
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
