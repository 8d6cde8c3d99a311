//! A schema with one more table: what of `sys` is not recorded, but as it is now.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::Result;
use datafusion::datasource::MemTable;

/// The rows of the table now; `None` if there is nobody any more to be asked.
type Rows = Box<dyn Fn() -> Result<Option<RecordBatch>> + Send + Sync>;

/// A schema with one more table, whose rows are made when the table is asked for.
pub struct OneMoreTable {
    schema: Arc<dyn SchemaProvider>,
    name: &'static str,
    rows: Rows,
}

impl OneMoreTable {
    /// `schema` with table `name`. `rows` makes its rows, or `None` if nobody is there any more who knows
    /// them: then there is no such table.
    pub fn new(
        schema: Arc<dyn SchemaProvider>,
        name: &'static str,
        rows: impl Fn() -> Result<Option<RecordBatch>> + Send + Sync + 'static,
    ) -> Self {
        let rows = Box::new(rows);
        Self { schema, name, rows }
    }
}

impl fmt::Debug for OneMoreTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} with {}", self.schema, self.name)
    }
}

#[async_trait]
impl SchemaProvider for OneMoreTable {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.schema.table_names();
        names.push(self.name.to_owned());
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if name != self.name {
            return self.schema.table(name).await;
        }
        let Some(rows) = (self.rows)()? else {
            return Ok(None);
        };
        let table = MemTable::try_new(rows.schema(), vec![vec![rows]])?;
        Ok(Some(Arc::new(table)))
    }

    fn table_exist(&self, name: &str) -> bool {
        name == self.name || self.schema.table_exist(name)
    }
}
