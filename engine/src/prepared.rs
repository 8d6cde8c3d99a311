//! Statements with parameters, and rows appended from a stream: what servers and other programs
//! use that hold values instead of text.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use futures::Stream;

use crate::error::Error;
use crate::query_stream::QueryStream;
use crate::session::Session;
use crate::statements::{append, parameters};
use crate::trace_parent;

/// What is known of a statement before it runs.
#[derive(Debug, Clone, PartialEq)]
pub struct StatementDescription {
    /// The types of `$1`, `$2`, … where they stand; text where nothing says more.
    pub parameters: Vec<DataType>,
    /// The columns of its result; `None` if it only changes something.
    pub columns: Option<SchemaRef>,
}

impl Session {
    /// Runs one statement with values for its parameters `$1`, `$2`, ….
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
    /// use datafusion::common::ScalarValue;
    ///
    /// let session = skewer::Database::in_memory()?.session();
    /// session.sql("CREATE TABLE t (a INT, b VARCHAR)").await?;
    /// let values = [ScalarValue::from(1_i32), ScalarValue::from("it's")];
    /// session.sql_with("INSERT INTO t VALUES ($1, $2)", &values).await?;
    /// let found = session.sql_with("SELECT a FROM t WHERE b = $1", &values[1..]).await?;
    /// assert_eq!(found.collect().await?[0].num_rows(), 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Session::sql`]; [`Error::Invalid`] if there are too few or too many values.
    pub async fn sql_with(&self, sql: &str, values: &[ScalarValue]) -> Result<QueryStream, Error> {
        self.forget_progress();
        let session = self.clone();
        let (sql, values) = (sql.to_owned(), values.to_vec());
        self.database()
            .run(async move {
                let statement = parameters::execute(&session, &sql, &values);
                trace_parent::scope(&session, &sql, statement).await
            })
            .await
    }

    /// What `sql` takes and gives, without running it. `declared` has the types of the first
    /// parameters as far as the caller knows them; the others are inferred.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
    /// use datafusion::arrow::datatypes::DataType;
    ///
    /// let session = skewer::Database::in_memory()?.session();
    /// session.sql("CREATE TABLE t (a INT, b DATE)").await?;
    /// let described = session.describe("SELECT b FROM t WHERE a = $1", &[]).await?;
    /// assert_eq!(described.parameters, [DataType::Int32]);
    /// assert_eq!(described.columns.unwrap().field(0).data_type(), &DataType::Date32);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// What is wrong with the statement, as far as that can be told without running it.
    pub async fn describe(
        &self,
        sql: &str,
        declared: &[Option<DataType>],
    ) -> Result<StatementDescription, Error> {
        let session = self.clone();
        let (sql, declared) = (sql.to_owned(), declared.to_vec());
        self.database()
            .run(async move { parameters::describe(&session, &sql, &declared).await })
            .await
    }

    /// The columns of a table that statements can write to, all or those listed. Names are
    /// written as in SQL.
    ///
    /// # Errors
    /// If there is no such table or column, or the table cannot be changed.
    pub async fn writable_columns(
        &self,
        table: &str,
        columns: &[String],
    ) -> Result<SchemaRef, Error> {
        let session = self.clone();
        let (table, columns) = (table.to_owned(), columns.to_vec());
        self.database()
            .run(async move { append::columns(&session, &table, &columns) })
            .await
    }

    /// Appends a stream of rows to a table, atomically: an error in the stream leaves nothing.
    /// The batches have the columns that [`Session::writable_columns`] gives; others become NULL.
    /// `sql` is how schema `sys` records the statement. Gives the number of rows.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), skewer::Error> {
    /// use std::sync::Arc;
    /// use datafusion::arrow::array::{Int32Array, RecordBatch};
    ///
    /// let session = skewer::Database::in_memory()?.session();
    /// session.sql("CREATE TABLE t (a INT, b DATE)").await?;
    /// let columns = ["a".to_owned()];
    /// let schema = session.writable_columns("t", &columns).await?;
    /// let batch = RecordBatch::try_new(schema, vec![Arc::new(Int32Array::from(vec![1, 2]))]).unwrap();
    /// let rows = futures::stream::iter([Ok(batch)]);
    /// assert_eq!(session.append("COPY t (a) FROM STDIN", "t", &columns, rows).await?, 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The stream's error, or why the rows could not be written.
    pub async fn append(
        &self,
        sql: &str,
        table: &str,
        columns: &[String],
        rows: impl Stream<Item = Result<RecordBatch, Error>> + Send + 'static,
    ) -> Result<u64, Error> {
        self.forget_progress();
        let session = self.clone();
        let (sql, table, columns) = (sql.to_owned(), table.to_owned(), columns.to_vec());
        let rows = Box::pin(rows);
        self.database()
            .run(async move {
                let statement = append::execute(&session, &sql, &table, &columns, rows);
                trace_parent::scope(&session, &sql, statement).await
            })
            .await
    }
}
