-- What the spans of queries say: times, text, outcome.
-- $query_ids BIGINTS: the queries
SELECT
  query_id, substr(sql, 1, 8192) AS sql, status, error, profile_level, user_name,
  coalesce(rows_returned, 0) AS rows_returned, CAST(started_at AS BIGINT) AS started_ns,
  CAST(coalesce(ended_at, started_at) AS BIGINT) AS ended_ns, coalesce(queued_ns, 0) AS queued_ns,
  coalesce(planning_ns, 0) AS planning_ns, coalesce(execution_ns, 0) AS execution_ns
FROM sys.queries
WHERE query_id IN ($query_ids)
ORDER BY query_id
