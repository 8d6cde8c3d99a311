//! The tables that a statement read, and whether they are still the same.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use serde::{Deserialize, Serialize};
use skewer_profiling::sampling::mixed;
use skewer_storage::{Snapshot, TableMeta};

use crate::error::Error;
use crate::session::Session;
use crate::statements::untraced::untraced_query;

/// A table as a statement read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TableRead {
    /// As in the log: `schema.table`.
    table: String,
    rows: u64,
    /// The table's id and what its segments are called.
    version: String,
}

impl TableRead {
    fn of_table(table: &TableMeta) -> Self {
        let mut hash: u64 = 0;
        for segment in &table.segments {
            // The order of segments is no matter; each counts by a hash of its own.
            let own = segment
                .id
                .wrapping_mul(64)
                .wrapping_add(segment.owner.into());
            hash = hash.wrapping_add(mixed(own));
        }
        Self {
            table: format!("{}.{}", table.schema_name, table.name),
            rows: table.rows(),
            version: format!("{}-{hash:016x}", table.id),
        }
    }

    /// The table's id.
    fn identity(&self) -> &str {
        self.version.split('-').next().unwrap_or_default()
    }
}

/// The tables that a statement read, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TablesRead(Vec<TableRead>);

impl TablesRead {
    /// Of a statement that begins; a table that is read twice is one.
    pub(crate) fn of_tables(tables: &[Arc<TableMeta>]) -> Self {
        let mut read: Vec<TableRead> = tables
            .iter()
            .map(|table| TableRead::of_table(table))
            .collect();
        read.sort_by(|a, b| a.table.cmp(&b.table));
        read.dedup();
        Self(read)
    }

    /// As `sys.queries` has it; `None` if there are none.
    pub(crate) fn text(&self) -> Option<String> {
        match self.0.is_empty() {
            true => None,
            false => serde_json::to_string(&self.0).ok(),
        }
    }

    /// What `sys.queries` has.
    pub(crate) fn parse(text: &str) -> Self {
        Self(serde_json::from_str(text).unwrap_or_default())
    }

    /// Those in whose place is another table by now, as the log calls them: their row ids are of
    /// other rows.
    pub(crate) fn replaced(&self, now: &Snapshot) -> Vec<String> {
        let replaced = self.0.iter().filter(|then| {
            let name = then.table.split_once('.');
            let now = name.and_then(|(schema, name)| now.table(schema, name));
            now.is_some_and(|now| TableRead::of_table(&now).identity() != then.identity())
        });
        replaced.map(|then| then.table.clone()).collect()
    }

    /// What has become of the tables since query `query_id` read them, one sentence for each that
    /// is not the same.
    pub(crate) fn changes(&self, query_id: i64, now: &Snapshot) -> Vec<String> {
        let changes = self.0.iter().filter_map(|then| {
            let (schema, name) = then.table.split_once('.')?;
            let table = match schema {
                "main" => name,
                _ => then.table.as_str(),
            };
            let Some(now) = now.table(schema, name).map(|table| TableRead::of_table(&table)) else {
                return Some(format!(
                    "Table {table}, which query {query_id} read, no longer exists."
                ));
            };
            if now.version == then.version {
                return None;
            }
            Some(if now.identity() != then.identity() {
                format!(
                    "Table {table} is another than the one that query {query_id} read: its rows \
                     have nothing to do with each other."
                )
            } else if now.rows != then.rows {
                format!(
                    "Rows of {table} have changed since query {query_id} ran: it had {} then, and \
                     has {} now.",
                    then.rows, now.rows
                )
            } else {
                format!(
                    "Files of table {table} have been written anew since query {query_id} ran, by a \
                     statement, a merge or REBALANCE: its {} rows may be others.",
                    now.rows
                )
            })
        });
        changes.collect()
    }
}

/// What has become of the tables since a query read them, one sentence for each that changed;
/// nothing for a query that was imported.
///
/// # Errors
/// If schema `sys` cannot be read.
pub(crate) async fn changes_since(session: &Session, query_id: i64) -> Result<Vec<String>, Error> {
    let sql = format!(
        "SELECT tables_read FROM sys.queries \
         WHERE query_id = {query_id} AND imported_from IS NULL"
    );
    let answer = untraced_query(session, &sql).await?;
    let Some(row) = answer.iter().find(|batch| batch.num_rows() > 0) else {
        return Ok(Vec::new());
    };
    let read =
        cast(row.column(0), &DataType::Utf8).map_err(|error| Error::Internal(error.to_string()))?;
    let read: &StringArray = read.as_string();
    if read.is_null(0) {
        return Ok(Vec::new());
    }
    let snapshot = session.database_inner().storage.snapshot();
    Ok(TablesRead::parse(read.value(0)).changes(query_id, &snapshot))
}
