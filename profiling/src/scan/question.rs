//! What a statement asks for of a table of schema `sys`.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;

use crate::chunk_filter::ChunkFilter;
use crate::query_ids::QueryIds;
use crate::tables::Table;

/// What a statement asks for, as far as its filters tell.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) table: Table,
    pub(crate) ids: QueryIds,
    pub(crate) chunks: ChunkFilter,
    /// Columns of the table.
    pub(crate) projection: Arc<[usize]>,
    /// No more rows than these are wanted.
    pub(crate) limit: Option<usize>,
}

impl Question {
    /// The columns that are asked for.
    pub(crate) fn schema(&self) -> Result<SchemaRef> {
        let schema = self.table.definition().schema();
        Ok(Arc::new(schema.project(&self.projection)?))
    }
}

/// What is asked, for people.
impl fmt::Display for Question {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "table=sys.{}", self.table.name())?;
        match &self.ids {
            QueryIds::Listed(ids) => write!(formatter, ", query_id={ids:?}")?,
            ids if *ids != QueryIds::ALL => write!(formatter, ", query_id={ids:?}")?,
            _ => {}
        }
        if let Some(condition) = self.chunks.condition() {
            write!(formatter, ", chunks={condition}")?;
        }
        if let Some(limit) = self.limit {
            write!(formatter, ", limit={limit}")?;
        }
        Ok(())
    }
}
