//! The table function `sys.what_if(query_id, table_name, row_ids)`.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::Expr;
use skewer_profiling::documentation::what_if_schema;

use crate::error::Error;
use crate::source::{ProfileSource, Statements};
use crate::source_function::{Question, SourceFunction};
use crate::summary::QuerySummary;
use crate::what_if::{Records, query_without};

/// `sys.what_if(query_id, table_name, row_ids)`, for the statements of a session.
pub type WhatIfFunction = SourceFunction<WhatIf>;

/// What a query takes without some records of a table.
#[derive(Debug, Clone)]
pub struct WhatIf {
    query_id: i64,
    table: String,
    row_ids: Vec<i64>,
}

#[async_trait]
impl Question for WhatIf {
    fn of_arguments(arguments: &[Expr]) -> Result<Self> {
        match arguments_of(arguments) {
            Some((query_id, table, row_ids)) => Ok(Self {
                query_id,
                table,
                row_ids,
            }),
            None => plan_err!(
                "sys.what_if takes a query id, the name of a table and row ids as constants: \
                 sys.what_if(7, 'main.ratings', '12, 345')"
            ),
        }
    }

    fn schema() -> SchemaRef {
        what_if_schema()
    }

    async fn answer(&self, source: &dyn ProfileSource) -> std::result::Result<RecordBatch, Error> {
        self.estimate(source).await
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

impl WhatIf {
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
