//! SHOW PROFILE: the report on a query that has ended.

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;

use super::explain_profile::untraced_query;
use crate::error::Error;
use crate::query_stream::QueryStream;
use crate::report::{self, Circumstances, Options};
use crate::session::Session;
use crate::tables_read::TablesRead;

/// Reports on query `query_id`, or on the session's last one, from what was recorded of it.
pub(crate) async fn execute(
    session: &Session,
    query_id: Option<i64>,
    options: Options,
) -> Result<QueryStream, Error> {
    let Some(query_id) = query_id.or_else(|| session.last_query_id()) else {
        return Err(Error::Invalid(
            "no query has run yet in this session: SHOW PROFILE n reports on query n of \
             sys.queries"
                .to_owned(),
        ));
    };
    let circumstances = Circumstances {
        reservations: changed_since(session, query_id).await?,
        ..Circumstances::default()
    };
    let batch = report::explain_profile(session, query_id, options, &circumstances).await?;
    Ok(QueryStream::ready(batch, None))
}

/// What has become of the tables since a query read them, one sentence for each that changed;
/// nothing of a query that ran elsewhere.
pub(crate) async fn changed_since(session: &Session, query_id: i64) -> Result<Vec<String>, Error> {
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
    let read: &datafusion::arrow::array::StringArray = read.as_string();
    if read.is_null(0) {
        return Ok(Vec::new());
    }
    let snapshot = session.database_inner().storage.snapshot();
    Ok(TablesRead::parse(read.value(0)).changes(query_id, &snapshot))
}
