-- How long statements executed that have ended since the database was opened, by how they ended.
-- histogram skewer_query_execution_seconds: Time from the end of planning to the last row.
SELECT
  status, execution_up_to_ns / 1e9 AS le,
  sum(queries) OVER (PARTITION BY status ORDER BY execution_up_to_ns NULLS LAST) AS skewer_query_execution_seconds_bucket,
  sum(execution_ns) OVER (PARTITION BY status) / 1e9 AS skewer_query_execution_seconds_sum
FROM sys.query_totals
ORDER BY status, execution_up_to_ns NULLS LAST
