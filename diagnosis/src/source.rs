//! What runs the SQL behind a profile, and how answers are read.

use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::Result;

use crate::quarantine::TableQuarantine;

/// Runs SQL over schema `sys` and the user's tables. Its statements leave no trace in `sys`.
#[async_trait]
pub trait ProfileSource: Send + Sync {
    /// Runs a query and returns all its rows.
    ///
    /// # Errors
    /// If the query cannot be planned or fails.
    async fn query(&self, sql: &str) -> Result<Vec<RecordBatch>>;

    /// Returns the SQL of a view of schema `sys` that is expanded for each query.
    ///
    /// # Errors
    /// If there is no such view, or `sys` cannot be read.
    async fn view_sql(&self, view: &str, query_id: i64) -> Result<String>;

    /// Returns the tables that were replaced by another table of the same name since the query
    /// read them. `tables_read` is the text of `sys.queries.tables_read`.
    fn replaced_tables(&self, tables_read: &str) -> Vec<String>;

    /// Returns the quarantines of a table, which the log names `table`. Returns `None` if it can have
    /// none, as a file.
    fn quarantines_of(&self, table: &str) -> Option<Vec<TableQuarantine>>;
}

/// A statement that was run for a section of the profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// The section.
    pub title: &'static str,
    /// The statement as it ran, without a semicolon.
    pub sql: String,
}

/// Runs statements and keeps their texts, which `EXPLAIN PROFILE AS SQL` prints.
pub struct Statements<'a> {
    source: &'a dyn ProfileSource,
    sections: Vec<Section>,
}

impl<'a> Statements<'a> {
    /// Starts with no statement.
    pub fn new(source: &'a dyn ProfileSource) -> Self {
        Self {
            source,
            sections: Vec::new(),
        }
    }

    /// What runs the statements.
    pub fn source(&self) -> &'a dyn ProfileSource {
        self.source
    }

    /// Runs a statement for a section.
    ///
    /// # Errors
    /// If the source cannot run it.
    pub async fn query(&mut self, title: &'static str, sql: String) -> Result<Vec<RecordBatch>> {
        let answer = self.source.query(&sql).await;
        self.sections.push(Section { title, sql });
        answer
    }

    /// Keeps the SQL of a view that the section's next statement reads.
    ///
    /// # Errors
    /// If there is no such view, or `sys` cannot be read.
    pub async fn keep_view(
        &mut self,
        title: &'static str,
        view: &'static str,
        query_id: i64,
    ) -> Result<()> {
        let sql = self.source.view_sql(view, query_id).await?;
        let sql = format!("-- The view sys.{view} of query {query_id}.\n{sql}");
        self.sections.push(Section { title, sql });
        Ok(())
    }

    /// Runs a statement that may fail, as over a table that was dropped since. Keeps its text only
    /// if it succeeds.
    pub async fn try_query(
        &mut self,
        title: &'static str,
        sql: String,
    ) -> Option<Vec<RecordBatch>> {
        let answer = self.source.query(&sql).await.ok()?;
        self.sections.push(Section { title, sql });
        Some(answer)
    }

    /// The statements so far.
    pub fn into_sections(self) -> Vec<Section> {
        self.sections
    }
}

/// The rows of an answer.
pub fn rows(batches: &[RecordBatch]) -> impl Iterator<Item = Row<'_>> {
    batches
        .iter()
        .flat_map(|batch| (0..batch.num_rows()).map(move |index| Row { batch, index }))
}

/// One row of an answer. A column that is missing, or has another type, reads as NULL.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    batch: &'a RecordBatch,
    index: usize,
}

impl Row<'_> {
    /// A number, if it is not NULL.
    pub fn integer(&self, column: &str) -> Option<i64> {
        let cell = self.cell(column, &DataType::Int64)?;
        Some(cell.as_primitive::<Int64Type>().value(0))
    }

    /// A number, or 0 for NULL: for sums over nothing.
    pub fn sum(&self, column: &str) -> i64 {
        self.integer(column).unwrap_or(0)
    }

    /// A number, if it is not NULL.
    pub fn float(&self, column: &str) -> Option<f64> {
        let cell = self.cell(column, &DataType::Float64)?;
        Some(cell.as_primitive::<Float64Type>().value(0))
    }

    /// A text, if it is not NULL.
    pub fn text(&self, column: &str) -> Option<String> {
        let cell = self.cell(column, &DataType::Utf8)?;
        Some(cell.as_string::<i32>().value(0).to_owned())
    }

    /// Whether a condition holds. NULL does not hold.
    pub fn flag(&self, column: &str) -> bool {
        self.cell(column, &DataType::Boolean)
            .is_some_and(|cell| cell.as_boolean().value(0))
    }

    fn cell(&self, column: &str, data_type: &DataType) -> Option<ArrayRef> {
        let column = self.batch.column_by_name(column)?;
        let cell = cast(&column.slice(self.index, 1), data_type).ok()?;
        cell.is_valid(0).then_some(cell)
    }
}
