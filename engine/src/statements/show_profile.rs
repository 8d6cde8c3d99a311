//! SHOW PROFILE: the report on a query that has ended.

use skewer_report::Options;

use crate::error::Error;
use crate::profile::{recorded_profile, report_batch};
use crate::query_stream::QueryStream;
use crate::session::Session;

/// Reports on query `query_id`, or on the session's last one, from what was recorded.
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
    let profile = recorded_profile(session, query_id).await?;
    let batch = report_batch(session, &skewer_report::render(&profile, options))?;
    Ok(QueryStream::ready(batch, None))
}
