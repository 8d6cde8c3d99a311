//! Asking SQL, and reading what comes back.

use async_trait::async_trait;
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};

use crate::error::Error;
use crate::session::Session;
use crate::statements::explain_profile::untraced_query;
use crate::tables_read::TablesRead;

/// Runs SQL over schema `sys` and the user's tables, without leaving a trace in `sys`.
#[async_trait]
pub(crate) trait Ask: Send + Sync {
    /// All rows that a query returns.
    async fn ask(&self, sql: &str) -> Result<Vec<RecordBatch>, Error>;

    /// Of what `sys.queries.tables_read` lists, the tables in whose place is another by now.
    fn replaced(&self, tables_read: &TablesRead) -> Vec<String>;
}

#[async_trait]
impl Ask for Session {
    async fn ask(&self, sql: &str) -> Result<Vec<RecordBatch>, Error> {
        untraced_query(self, sql).await
    }

    fn replaced(&self, tables_read: &TablesRead) -> Vec<String> {
        tables_read.replaced(&self.snapshot())
    }
}

/// A statement that was run for a section of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    /// The section.
    pub(super) section: &'static str,
    /// The statement, as it ran.
    pub(super) sql: String,
}

/// Asks, and remembers what was asked: that is what `AS SQL` prints.
pub(super) struct Inquiry<'a> {
    source: &'a dyn Ask,
    asked: Vec<Asked>,
}

impl<'a> Inquiry<'a> {
    /// What is asked.
    pub(super) fn source(&self) -> &'a dyn Ask {
        self.source
    }

    pub(super) fn new(source: &'a dyn Ask) -> Self {
        Self {
            source,
            asked: Vec::new(),
        }
    }

    /// Runs a statement for a section.
    pub(super) async fn ask(
        &mut self,
        section: &'static str,
        sql: String,
    ) -> Result<Vec<RecordBatch>, Error> {
        let answer = self.source.ask(&sql).await;
        self.asked.push(Asked { section, sql });
        answer
    }

    /// The same, where no answer is an answer: the table may be gone since. What was not answered
    /// is not remembered.
    pub(super) async fn ask_if_possible(
        &mut self,
        section: &'static str,
        sql: String,
    ) -> Option<Vec<RecordBatch>> {
        let answer = self.source.ask(&sql).await.ok()?;
        self.asked.push(Asked { section, sql });
        Some(answer)
    }

    /// What was asked so far.
    pub(super) fn asked(self) -> Vec<Asked> {
        self.asked
    }
}

/// The rows of an answer.
pub(super) fn rows(batches: &[RecordBatch]) -> impl Iterator<Item = Row<'_>> {
    batches
        .iter()
        .flat_map(|batch| (0..batch.num_rows()).map(move |index| Row { batch, index }))
}

/// One row of an answer. A column that is missing, or of another type, reads as NULL.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    batch: &'a RecordBatch,
    index: usize,
}

impl Row<'_> {
    /// A number, if it is not NULL.
    pub(super) fn integer(&self, column: &str) -> Option<i64> {
        let cell = self.cell(column, &DataType::Int64)?;
        Some(cell.as_primitive::<Int64Type>().value(0))
    }

    /// A number, or 0 for NULL: for sums over nothing.
    pub(super) fn sum(&self, column: &str) -> i64 {
        self.integer(column).unwrap_or(0)
    }

    /// A number, if it is not NULL.
    pub(super) fn float(&self, column: &str) -> Option<f64> {
        let cell = self.cell(column, &DataType::Float64)?;
        Some(cell.as_primitive::<Float64Type>().value(0))
    }

    /// A text, if it is not NULL.
    pub(super) fn text(&self, column: &str) -> Option<String> {
        let cell = self.cell(column, &DataType::Utf8)?;
        Some(cell.as_string::<i32>().value(0).to_owned())
    }

    /// A flag; NULL is false.
    pub(super) fn flag(&self, column: &str) -> bool {
        let cell = self.cell(column, &DataType::Boolean);
        cell.is_some_and(|cell| cell.as_boolean().value(0))
    }

    fn cell(
        &self,
        column: &str,
        data_type: &DataType,
    ) -> Option<datafusion::arrow::array::ArrayRef> {
        let column = self.batch.column_by_name(column)?;
        let cell = cast(&column.slice(self.index, 1), data_type).ok()?;
        cell.is_valid(0).then_some(cell)
    }
}
