//! COPY t or (query) TO 'file'.

use std::path::PathBuf;

use futures::StreamExt;
use skewer_files::{CsvDialect, FileKind, FileWriter, is_packed};
use skewer_sql::{CopySource, CopyTo, Statement};

use super::{Context, Outcome, as_statement};
use crate::error::Error;

/// Writes a file, which appears under its name when it is complete.
pub(crate) async fn execute(context: &mut Context, copy: CopyTo) -> Result<Outcome, Error> {
    let kind = FileKind::of_copy(copy.options.format.as_deref(), &copy.path)?;
    let path = PathBuf::from(&copy.path);
    if is_packed(&path) {
        return Err(Error::Unsupported(format!(
            "{} would be packed; write it without, and pack it then",
            copy.path
        )));
    }
    let csv = CsvDialect::from_options(kind, &copy.options, &[])?;
    let query = match copy.source {
        CopySource::Query(query) => query,
        CopySource::Table(name, columns) => {
            let columns: Vec<_> = columns.iter().map(ToString::to_string).collect();
            let columns = match columns.is_empty() {
                true => "*".to_owned(),
                false => columns.join(", "),
            };
            let sql = format!("SELECT {columns} FROM {name}");
            match skewer_sql::parse(&sql)? {
                Statement::Query(query) => query,
                _ => return Err(Error::Internal(sql)),
            }
        }
    };
    let plan = context.catalog.plan(as_statement(query)).await?;
    let mut stream = context.stream(&plan).await?;
    let mut writer = FileWriter::create(&path, kind, &csv, stream.schema())?;
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        writer.write(&batch)?;
        rows += batch.num_rows() as u64;
        context.progress.add_rows(batch.num_rows() as u64);
    }
    writer.finish()?;
    Ok(Outcome::Count(rows))
}
