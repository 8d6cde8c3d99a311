//! The names in the database that completion offers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use parking_lot::RwLock;

use crate::backend::Backend;

/// A table or view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    pub schema: String,
    pub name: String,
    /// `BASE TABLE`, `VIEW` …
    pub kind: String,
}

/// A column of a table or view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnName {
    pub schema: String,
    pub table: String,
    pub name: String,
    pub data_type: String,
}

/// What there is to refer to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    pub tables: Vec<TableName>,
    pub columns: Vec<ColumnName>,
    pub functions: Vec<String>,
}

/// Names that the editor reads while they are refreshed.
pub type SharedNames = Arc<RwLock<Names>>;

const TABLES: &str = "SELECT table_schema, table_name, table_type \
     FROM information_schema.tables ORDER BY table_schema, table_name";
const COLUMNS: &str = "SELECT table_schema, table_name, column_name, data_type \
     FROM information_schema.columns ORDER BY table_schema, table_name, ordinal_position";
const FUNCTIONS: &str =
    "SELECT DISTINCT routine_name FROM information_schema.routines ORDER BY routine_name";

impl Names {
    /// Asks the database. What cannot be read is left out: completion is a convenience.
    pub async fn load(session: &Backend) -> Names {
        let tables = strings(session, TABLES).await.into_iter();
        let columns = strings(session, COLUMNS).await.into_iter();
        let functions = strings(session, FUNCTIONS).await.into_iter();
        Names {
            tables: tables
                .filter_map(|row| {
                    let [schema, name, kind] = row.try_into().ok()?;
                    Some(TableName { schema, name, kind })
                })
                .collect(),
            columns: columns
                .filter_map(|row| {
                    let [schema, table, name, data_type] = row.try_into().ok()?;
                    Some(ColumnName {
                        schema,
                        table,
                        name,
                        data_type,
                    })
                })
                .collect(),
            functions: functions.flatten().collect(),
        }
    }
}

/// Refreshes that were begun.
static REFRESHES: AtomicU64 = AtomicU64::new(0);

/// Reads the names again, in the background: the editor blocks the terminal's thread.
pub fn refresh(session: Backend, names: SharedNames) {
    let number = REFRESHES.fetch_add(1, Ordering::Relaxed) + 1;
    std::thread::spawn(move || {
        // Without a runtime completion stays as it was.
        if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() {
            let loaded = runtime.block_on(Names::load(&session));
            let mut names = names.write();
            // One that began later, and may have ended, knows better.
            if REFRESHES.load(Ordering::Relaxed) == number {
                *names = loaded;
            }
        }
    });
}

async fn strings(session: &Backend, sql: &str) -> Vec<Vec<String>> {
    let Ok(mut answer) = session.sql(sql).await else {
        return Vec::new();
    };
    let mut strings = Vec::new();
    while let Some(Ok(batch)) = answer.next().await {
        strings.extend(rows(&batch));
    }
    strings
}

fn rows(batch: &RecordBatch) -> Vec<Vec<String>> {
    let columns: Vec<_> = batch
        .columns()
        .iter()
        .filter_map(|column| cast(column, &DataType::Utf8).ok())
        .collect();
    let text = |column: &datafusion::arrow::array::ArrayRef, row| {
        column.as_string::<i32>().value(row).to_owned()
    };
    (0..batch.num_rows())
        .map(|row| columns.iter().map(|column| text(column, row)).collect())
        .collect()
}
