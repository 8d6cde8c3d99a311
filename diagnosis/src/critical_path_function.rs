//! The table function `sys.critical_path(query_id)`.

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::{cast, concat_batches};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::Expr;
use skewer_profiling::documentation::critical_path_schema;

use crate::error::Error;
use crate::source::ProfileSource;
use crate::source_function::{Question, SourceFunction, query_id_of};

/// `sys.critical_path(query_id)`, for the statements of a session.
pub type CriticalPathFunction = SourceFunction<CriticalPath>;

/// Which tasks gated the result of a query.
#[derive(Debug, Clone)]
pub struct CriticalPath {
    query_id: i64,
}

#[async_trait]
impl Question for CriticalPath {
    fn of_arguments(arguments: &[Expr]) -> Result<Self> {
        match query_id_of(arguments) {
            Some(query_id) => Ok(Self { query_id }),
            None => {
                plan_err!("sys.critical_path takes a query id as a constant: sys.critical_path(7)")
            }
        }
    }

    fn schema() -> SchemaRef {
        critical_path_schema()
    }

    async fn answer(&self, source: &dyn ProfileSource) -> std::result::Result<RecordBatch, Error> {
        let query_id = self.query_id.to_string();
        let sql = include_str!("sql/critical_path.sql").replace("$query_id", &query_id);
        let answer = source.query(&sql).await?;
        let schema = Self::schema();
        let batches = answer.iter().map(|batch| {
            let columns = batch.columns().iter().zip(schema.fields());
            let columns = columns.map(|(column, field)| cast(column, field.data_type()));
            RecordBatch::try_new(
                SchemaRef::clone(&schema),
                columns.collect::<Result<_, _>>()?,
            )
        });
        let batches = batches.collect::<Result<Vec<_>, _>>();
        let path = batches.and_then(|batches| concat_batches(&schema, &batches));
        Ok(path?)
    }
}
