//! `sys.running`: the statements that run queries now, and those that wait for their turn.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use datafusion::arrow::array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray,
};
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::Result;
use datafusion::datasource::MemTable;

use crate::turns::{Listed, Turns};

/// The table's name in schema `sys`.
const RUNNING: &str = "running";

/// Schema `sys` with one more table.
pub(crate) struct SysWithRunning {
    sys: Arc<dyn SchemaProvider>,
    turns: Arc<Turns>,
}

impl SysWithRunning {
    /// `sys`, and the statements of `turns`.
    pub(crate) fn new(sys: Arc<dyn SchemaProvider>, turns: Arc<Turns>) -> Self {
        Self { sys, turns }
    }
}

impl fmt::Debug for SysWithRunning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("schema sys with running statements")
    }
}

#[async_trait]
impl SchemaProvider for SysWithRunning {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.sys.table_names();
        names.push(RUNNING.to_owned());
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if name != RUNNING {
            return self.sys.table(name).await;
        }
        let rows = rows(&self.turns.list())?;
        let table = MemTable::try_new(rows.schema(), vec![vec![rows]])?;
        Ok(Some(Arc::new(table)))
    }

    fn table_exist(&self, name: &str) -> bool {
        name == RUNNING || self.sys.table_exist(name)
    }
}

fn rows(statements: &[(Listed, bool)]) -> Result<RecordBatch> {
    let each = || statements.iter().map(|(statement, _)| statement);
    let progress: Vec<_> = each().map(|statement| statement.progress.now()).collect();
    let states = statements.iter().map(|(_, has_turn)| match has_turn {
        true => "running",
        false => "waiting",
    });
    let since = each().map(|statement| nanos(statement.since));
    let columns: [(&str, ArrayRef, bool); 6] = [
        (
            "query_id",
            Arc::new(Int64Array::from_iter_values(each().map(|s| s.query_id))),
            false,
        ),
        (
            "sql",
            Arc::new(StringArray::from_iter_values(each().map(|s| &s.sql))),
            false,
        ),
        (
            "state",
            Arc::new(StringArray::from_iter_values(states)),
            false,
        ),
        (
            "since",
            Arc::new(TimestampNanosecondArray::from_iter_values(since).with_timezone("+00:00")),
            false,
        ),
        (
            "rows",
            Arc::new(Int64Array::from_iter_values(
                progress.iter().map(|p| p.rows.cast_signed()),
            )),
            false,
        ),
        (
            "fraction",
            Arc::new(Float64Array::from_iter(progress.iter().map(|p| p.fraction))),
            true,
        ),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}

fn nanos(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
