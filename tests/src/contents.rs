//! All tables of a database as text, to compare before and after.

use std::collections::BTreeMap;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use skewer::{Error, Session};

/// The rows of a result: one line each, values separated by `|`, NULL as `NULL`.
pub fn lines(batches: &[RecordBatch]) -> Result<Vec<String>, Error> {
    let options = FormatOptions::default().with_null("NULL");
    let mut lines = Vec::new();
    for batch in batches {
        let formatters = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options))
            .collect::<Result<Vec<_>, _>>()
            .map_err(datafusion::common::DataFusionError::from)?;
        for row in 0..batch.num_rows() {
            let values: Vec<_> = formatters
                .iter()
                .map(|f| f.value(row).to_string())
                .collect();
            lines.push(values.join("|"));
        }
    }
    Ok(lines)
}

/// Runs a query and gives its rows as [`lines`].
pub async fn query(session: &Session, sql: &str) -> Result<Vec<String>, Error> {
    lines(&session.sql(sql).await?.collect().await?)
}

/// Every table of the user's schemas with its rows and their ids, and every view with its text.
pub async fn contents(session: &Session) -> Result<BTreeMap<String, Vec<String>>, Error> {
    let mut all = BTreeMap::new();
    let tables = query(
        session,
        "SELECT '\"' || table_schema || '\".\"' || table_name || '\"', table_type \
         FROM information_schema.tables \
         WHERE table_schema NOT IN ('sys', 'information_schema') ORDER BY 1",
    )
    .await?;
    for line in tables {
        let Some((name, kind)) = line.rsplit_once('|') else {
            continue;
        };
        let rows = if kind == "VIEW" {
            query(session, &format!("SHOW CREATE VIEW {name}")).await?
        } else {
            let sql = format!("SELECT _row_id, * FROM {name} ORDER BY _row_id");
            match query(session, &sql).await {
                Ok(rows) => rows,
                // An external table whose format does not number its rows, or whose file is gone.
                Err(Error::Unsupported(_) | Error::File { .. }) => {
                    query(session, &format!("SHOW CREATE TABLE {name}")).await?
                }
                Err(error) => return Err(error),
            }
        };
        all.insert(name.to_owned(), rows);
    }
    Ok(all)
}
