//! The answers for queries of which no log was kept.

use super::Question;
use crate::isolation::steps::Stepwise;

/// The base records of a query whose records carried their latencies: what was kept of them.
pub(crate) fn of_carried(query_id: i64) -> Stepwise {
    Stepwise::simple(format!(
        "-- It ran with profile.lineage = 'piggyback': what result rows carried was kept, no log.\n\
         SELECT\n  {query_id} AS query_id, table_name, row_id, impact_ns, max_total_ns, max_remediated_ns,\n  \
         outputs, CAST(NULL AS BIGINT) AS self_ns, CAST(NULL AS VARCHAR) AS method,\n  \
         CAST(NULL AS BIGINT) AS error_ns,\n  \
         CAST(row_number() OVER (ORDER BY impact_ns DESC, row_id, table_name) AS BIGINT) AS rank\n\
         FROM (\n  \
         SELECT\n    \
         table_name, row_id, max(max_total_ns) - max(max_remediated_ns) AS impact_ns,\n    \
         max(max_total_ns) AS max_total_ns, max(max_remediated_ns) AS max_remediated_ns,\n    \
         sum(outputs) AS outputs\n  \
         FROM sys.impactful_sources WHERE query_id = {query_id}\n  \
         GROUP BY table_name, row_id\n\
         ) AS sources"
    ))
}

pub(in crate::isolation) const NOT_CAPTURED: &str =
    "Nothing was captured for this query: it ran below level 'records'.";

/// The answer where records carried their latencies, and no log was kept: no row.
pub(crate) fn of_no_log(question: Question, query_id: i64) -> Stepwise {
    let reason = "Of this query no log was kept: it ran with profile.lineage = 'piggyback'.";
    Stepwise::simple(nothing(question, query_id, reason))
}

/// The answer for a query of which, for some reason, there is nothing: no row.
pub(super) fn nothing(question: Question, query_id: i64, reason: &str) -> String {
    let columns = match question {
        Question::Outputs => {
            "CAST(0 AS BIGINT) AS output_row, CAST(0 AS BIGINT) AS total_ns,\n  \
             CAST(NULL AS VARCHAR) AS source_table, CAST(NULL AS BIGINT) AS source_row_id,\n  \
             CAST(0 AS BIGINT) AS remediated_ns, CAST(0 AS BIGINT) AS computation_ns,\n  \
             CAST(0 AS BIGINT) AS shuffle_ns"
        }
        Question::Intermediates => {
            "CAST(0 AS BIGINT) AS operator_id, CAST(0 AS BIGINT) AS record_id,\n  \
             CAST(0 AS BIGINT) AS total_ns, CAST(NULL AS VARCHAR) AS source_table,\n  \
             CAST(NULL AS BIGINT) AS source_row_id, CAST(0 AS BIGINT) AS remediated_ns,\n  \
             CAST(0 AS BIGINT) AS computation_ns, CAST(0 AS BIGINT) AS shuffle_ns"
        }
        Question::Inputs => {
            "CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id,\n  \
             CAST(0 AS BIGINT) AS impact_ns, CAST(0 AS BIGINT) AS max_total_ns,\n  \
             CAST(0 AS BIGINT) AS max_remediated_ns, CAST(0 AS BIGINT) AS outputs,\n  \
             CAST(0 AS BIGINT) AS self_ns, CAST(NULL AS VARCHAR) AS method,\n  \
             CAST(0 AS BIGINT) AS error_ns, CAST(0 AS BIGINT) AS rank"
        }
    };
    format!(
        "-- {reason}\n\
         SELECT\n  CAST({query_id} AS BIGINT) AS query_id,\n  {columns}\nWHERE false"
    )
}
