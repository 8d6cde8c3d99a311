//! The table function `sys.what_if(query_id, table_name, row_ids)`.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::{
    MemTable, Session as PlanningSession, TableFunctionArgs, TableFunctionImpl, TableProvider,
};
use datafusion::common::{DataFusionError, Result, ScalarValue, plan_err};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use skewer_profiling::documentation::what_if_schema;

use crate::error::Error;
use crate::predicates::SourceFn;
use crate::source::{ProfileSource, Statements};
use crate::summary::QuerySummary;
use crate::what_if::{Records, query_without};

/// `sys.what_if(query_id, table_name, row_ids)`, for the statements of a session.
#[derive(Clone)]
pub struct WhatIfFunction {
    source: Arc<SourceFn>,
}

impl WhatIfFunction {
    /// The function that reads from what `source` returns at each call.
    pub fn new(
        source: impl Fn() -> Result<Box<dyn ProfileSource>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            source: Arc::new(source),
        }
    }
}

impl std::fmt::Debug for WhatIfFunction {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("WhatIfFunction")
            .finish_non_exhaustive()
    }
}

impl TableFunctionImpl for WhatIfFunction {
    fn call_with_args(
        &self,
        arguments: TableFunctionArgs<'_, '_>,
    ) -> Result<Arc<dyn TableProvider>> {
        match arguments_of(arguments.exprs()) {
            Some((query_id, table, row_ids)) => Ok(Arc::new(WhatIfTable {
                function: self.clone(),
                query_id,
                table,
                row_ids,
            })),
            None => plan_err!(
                "sys.what_if takes a query id, the name of a table and row ids as constants: \
                 sys.what_if(7, 'main.ratings', '12, 345')"
            ),
        }
    }
}

/// The arguments, if they are constants of their types.
fn arguments_of(expressions: &[Expr]) -> Option<(i64, String, Vec<i64>)> {
    let [
        Expr::Literal(query_id, _),
        Expr::Literal(table, _),
        Expr::Literal(row_ids, _),
    ] = expressions
    else {
        return None;
    };
    let ScalarValue::Int64(Some(query_id)) = query_id.cast_to(&DataType::Int64).ok()? else {
        return None;
    };
    let text = |value: &ScalarValue| match value.cast_to(&DataType::Utf8).ok()? {
        ScalarValue::Utf8(text) => text,
        _ => None,
    };
    let row_ids = text(row_ids)?;
    let row_ids = row_ids.split(',').map(|id| id.trim().parse().ok());
    Some((query_id, text(table)?, row_ids.collect::<Option<_>>()?))
}

/// The estimate for some records of one query.
#[derive(Debug)]
struct WhatIfTable {
    function: WhatIfFunction,
    query_id: i64,
    table: String,
    row_ids: Vec<i64>,
}

#[async_trait]
impl TableProvider for WhatIfTable {
    fn schema(&self) -> SchemaRef {
        what_if_schema()
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
        // The estimate's statements are planned while this one is: their futures hold plans within plans.
        let estimated = Box::pin(self.estimate(&*source)).await;
        let batch = estimated.map_err(|error| match error {
            Error::Source(error) => error,
            invalid @ Error::Invalid(_) => DataFusionError::External(Box::new(invalid)),
        })?;
        let table = MemTable::try_new(self.schema(), vec![vec![batch]])?;
        table.scan(state, projection, filters, limit).await
    }
}

impl WhatIfTable {
    async fn estimate(
        &self,
        source: &dyn ProfileSource,
    ) -> std::result::Result<RecordBatch, Error> {
        let mut statements = Statements::new(source);
        let summary = QuerySummary::read(&mut statements, self.query_id).await?;
        let records = Records::Several(&self.row_ids);
        let estimate =
            query_without(&mut statements, "what if", &summary, &self.table, records).await?;
        let values = [
            Some(summary.query_id),
            Some(summary.query_ns()),
            estimate.map(|estimate| estimate.ns),
        ];
        let columns = values.map(|value| Arc::new(Int64Array::from(vec![value])) as _);
        Ok(RecordBatch::try_new(what_if_schema(), columns.to_vec())?)
    }
}
