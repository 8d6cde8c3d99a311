//! The table function `sys.blame(query_id)`.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::{
    MemTable, Session as PlanningSession, TableFunctionArgs, TableFunctionImpl, TableProvider,
};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use skewer_profiling::LineageMode;
use skewer_profiling::documentation::blame_schema;
use skewer_sql::Statement;

use super::super::answer::Inquiry;
use super::super::details::table_name;
use super::super::header::Header;
use super::super::units::{counted, percent};
use super::{Blamed, NAMED, find, gone, measured_tables, unreadable};
use crate::error::Error;
use crate::session::{Session, WeakSession};

/// `sys.blame(query_id)`, for the statements of a session.
#[derive(Debug)]
pub(crate) struct Blame {
    session: Arc<WeakSession>,
}

impl Blame {
    pub(crate) fn new(session: WeakSession) -> Self {
        Self {
            session: Arc::new(session),
        }
    }
}

impl TableFunctionImpl for Blame {
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
            session: Arc::clone(&self.session),
            query_id,
        }))
    }
}

/// The predicates of one query, looked for when they are asked for.
#[derive(Debug)]
struct BlameTable {
    session: Arc<WeakSession>,
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
        let session = self.session.upgrade().ok_or(Error::Cancelled);
        let session = session.map_err(Error::into_datafusion)?;
        // The statements that look for them are planned while this one is: their futures hold
        // plans within plans, and are on the heap.
        let found = Box::pin(read(&session, self.query_id)).await;
        let batch = found.map_err(Error::into_datafusion)?;
        let table = MemTable::try_new(self.schema(), vec![vec![batch]])?;
        table.scan(state, projection, filters, limit).await
    }
}

async fn read(session: &Session, query_id: i64) -> std::result::Result<RecordBatch, Error> {
    let mut inquiry = Inquiry::new(session);
    let header = Header::read(&mut inquiry, query_id).await?;
    if !header.has_records() {
        return Err(Error::Invalid(format!(
            "query {query_id} was recorded at level {}, which keeps no latencies of records: \
             EXPLAIN PROFILE QUERY {query_id} runs it again at level records",
            header.level
        )));
    }
    if header.has_carried() {
        return Err(Error::Invalid(format!(
            "query {query_id} ran with profile.lineage = '{}', which keeps no latencies of single \
             records: SET profile.lineage = '{}' and run it again",
            LineageMode::Piggyback,
            LineageMode::Log
        )));
    }
    if let Some(directory) = &header.imported_from {
        return Err(Error::Invalid(format!(
            "query {query_id} was imported from '{directory}': the tables that it read are not here"
        )));
    }
    let tables = measured_tables(&mut inquiry, &header).await?;
    let found = find(&mut inquiry, &header, &tables, |_| true, NAMED).await?;
    if !found.is_empty() {
        return rows(&header, &found);
    }
    if let Some(table) = header.replaced_tables().first() {
        return Err(Error::Invalid(format!(
            "table {} is another than the one that query {query_id} read, so its rows tell nothing \
             about that query: EXPLAIN PROFILE QUERY {query_id} runs it on the tables of now",
            table_name(table)
        )));
    }
    if let Some(table) = unreadable(&mut inquiry, &tables).await {
        return Err(Error::Invalid(format!(
            "table {} of query {query_id} cannot be read any more, so nothing can be said of its rows: \
             dropped, or renamed",
            table_name(table)
        )));
    }
    if let Some(gone) = gone(&mut inquiry, &header, &tables).await? {
        let again = match skewer_sql::parse(&header.sql) {
            Ok(Statement::Query(_)) => {
                format!("; EXPLAIN PROFILE QUERY {query_id} runs the query again")
            }
            _ => String::new(),
        };
        return Err(Error::Invalid(format!(
            "{} of {}, which took {} of the time of the table's records in query {query_id}, {} no \
             longer there: deleted, or truncated{again}",
            counted(gone.records, "row"),
            table_name(gone.table),
            percent(gone.time_share),
            if gone.records == 1 { "is" } else { "are" }
        )));
    }
    rows(&header, &found)
}

fn rows(header: &Header, found: &[Blamed]) -> std::result::Result<RecordBatch, Error> {
    fn integers(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
        Arc::new(values.collect::<Int64Array>())
    }
    let texts = |values: Vec<Option<String>>| Arc::new(StringArray::from(values)) as ArrayRef;
    let shares = |values: Vec<f64>| Arc::new(Float64Array::from(values)) as ArrayRef;
    let each = || found.iter();
    let columns: Vec<ArrayRef> = vec![
        integers(each().map(|_| Some(header.query_id))),
        integers((1..).take(found.len()).map(Some)),
        texts(each().map(|b| Some(b.table.clone())).collect()),
        texts(each().map(|b| Some(b.predicate.clone())).collect()),
        integers(each().map(|b| Some(b.matched))),
        shares(each().map(Blamed::row_share).collect()),
        shares(each().map(|b| b.time_share).collect()),
        integers(each().map(|_| Some(header.query_ns()))),
        integers(each().map(|b| b.without_ns)),
        texts(each().map(|b| b.verify.clone()).collect()),
    ];
    Ok(RecordBatch::try_new(blame_schema(), columns)?)
}
