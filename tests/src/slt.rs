//! Golden scripts as sqllogictest runs them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use skewer::{Error, Session};
use skewer_sql::Statement;
use skewer_sql::traits::Returns;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType};

use crate::contents::lines;

/// A session as sqllogictest sees it.
#[derive(Debug)]
pub struct Connection {
    /// Runs the statements.
    pub session: Session,
    /// Paths of this machine and what golden files call them.
    pub folders: Vec<(String, String)>,
    /// How often a query runs before the run whose result counts.
    pub runs_before: usize,
}

/// An error as golden files hold it: without paths of this machine.
#[derive(Debug)]
pub struct Failure(String);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl Connection {
    fn hide(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (path, name) in &self.folders {
            text = text.replace(path, name);
            // DataFusion writes paths without the first slash in places.
            text = text.replace(path.trim_start_matches('/'), name);
        }
        text
    }

    async fn rows(&self, sql: &str) -> Result<(SchemaRef, Vec<String>), Error> {
        if matches!(skewer_sql::parse(sql), Ok(Statement::Query(_))) {
            for _ in 0..self.runs_before {
                // The run that counts fails for the same reason.
                let Ok(stream) = self.session.sql(sql).await else {
                    continue;
                };
                let _ = stream.collect().await;
            }
        }
        let stream = self.session.sql(sql).await?;
        let schema = stream.schema();
        Ok((schema, lines(&stream.collect().await?)?))
    }
}

/// Whether a statement returns rows; others return how many rows they changed.
fn returns_rows(sql: &str) -> bool {
    let Ok(statement) = skewer_sql::parse(sql) else {
        return false;
    };
    match statement.traits().returns {
        Returns::Rows | Returns::Report | Returns::OfPrepared => true,
        Returns::Count | Returns::Nothing => false,
    }
}

#[async_trait]
impl AsyncDB for Connection {
    type Error = Failure;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<Self::ColumnType>, Failure> {
        let (schema, rows) = self
            .rows(sql)
            .await
            .map_err(|error| Failure(self.hide(&error.to_string())))?;
        if !returns_rows(sql) {
            let count = rows.first().and_then(|row| row.parse().ok());
            return Ok(DBOutput::StatementComplete(count.unwrap_or(0)));
        }
        let types = schema
            .fields()
            .iter()
            .map(|field| match field.data_type() {
                t if t.is_integer() => DefaultColumnType::Integer,
                t if t.is_floating() => DefaultColumnType::FloatingPoint,
                DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => {
                    DefaultColumnType::Text
                }
                _ => DefaultColumnType::Any,
            })
            .collect();
        let rows = rows
            .iter()
            .map(|row| row.split('|').map(|v| self.hide(&visible(v))).collect())
            .collect();
        Ok(DBOutput::Rows { types, rows })
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        "skewer"
    }

    async fn sleep(duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// A value on one line that is not empty.
fn visible(value: &str) -> String {
    match value {
        "" => "(empty)".to_owned(),
        value => value.replace('\n', "\\n"),
    }
}

/// The scripts of a folder and its subfolders, sorted.
pub fn scripts(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "slt") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
