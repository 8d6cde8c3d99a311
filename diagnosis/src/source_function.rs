//! Table functions of schema `sys` that run several statements: `sys.blame`, `sys.what_if`, `sys.critical_path`.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::{
    MemTable, Session as PlanningSession, TableFunctionArgs, TableFunctionImpl, TableProvider,
};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

use crate::error::Error;
use crate::source::ProfileSource;

/// What a call of a table function asks.
#[async_trait]
pub trait Question: Clone + fmt::Debug + Send + Sync + 'static {
    /// The question of a call with these arguments.
    ///
    /// # Errors
    /// If they are not constants of the function's types.
    fn of_arguments(arguments: &[Expr]) -> Result<Self>;

    /// The columns of all answers.
    fn schema() -> SchemaRef;

    /// The answer, with the columns of [`Question::schema`].
    ///
    /// # Errors
    /// If `source` cannot answer, or the question has no answer.
    async fn answer(&self, source: &dyn ProfileSource) -> std::result::Result<RecordBatch, Error>;
}

/// Returns what runs a function's statements; an error if the session has ended.
type SourceFn = dyn Fn() -> Result<Box<dyn ProfileSource>> + Send + Sync;

/// A table function that answers questions, for the statements of a session.
pub struct SourceFunction<Q> {
    source: Arc<SourceFn>,
    question: PhantomData<fn() -> Q>,
}

impl<Q: Question> SourceFunction<Q> {
    /// The function that reads from what `source` returns at each call.
    pub fn new(
        source: impl Fn() -> Result<Box<dyn ProfileSource>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            source: Arc::new(source),
            question: PhantomData,
        }
    }
}

impl<Q> fmt::Debug for SourceFunction<Q> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SourceFunction")
            .finish_non_exhaustive()
    }
}

impl<Q: Question> TableFunctionImpl for SourceFunction<Q> {
    fn call_with_args(
        &self,
        arguments: TableFunctionArgs<'_, '_>,
    ) -> Result<Arc<dyn TableProvider>> {
        Ok(Arc::new(AnswerTable {
            source: Arc::clone(&self.source),
            question: Q::of_arguments(arguments.exprs())?,
        }))
    }
}

/// The answer to one question, which is found when the table is scanned.
struct AnswerTable<Q> {
    source: Arc<SourceFn>,
    question: Q,
}

impl<Q: fmt::Debug> fmt::Debug for AnswerTable<Q> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("AnswerTable");
        debug
            .field("question", &self.question)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl<Q: Question> TableProvider for AnswerTable<Q> {
    fn schema(&self) -> SchemaRef {
        Q::schema()
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
        let source = (self.source)()?;
        // The answer's statements are planned while this one is: their futures hold plans within plans.
        let answer = Box::pin(self.question.answer(&*source)).await;
        let batch = answer.map_err(|error| match error {
            Error::Source(error) => error,
            invalid @ Error::Invalid(_) => DataFusionError::External(Box::new(invalid)),
        })?;
        let table = MemTable::try_new(self.schema(), vec![vec![batch]])?;
        table.scan(state, projection, filters, limit).await
    }
}

/// The only argument, if it is a number and constant.
pub(crate) fn query_id_of(arguments: &[Expr]) -> Option<i64> {
    let [Expr::Literal(value, _)] = arguments else {
        return None;
    };
    match value.cast_to(&DataType::Int64) {
        Ok(ScalarValue::Int64(query_id)) => query_id,
        _ => None,
    }
}
