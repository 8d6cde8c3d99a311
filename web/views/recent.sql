-- The newest runs of all statements, the newest first.
-- $hours BIGINT = NULL: only runs of the last so many hours; NULL is all
-- $find VARCHAR = NULL: only runs with this text in their SQL, tables, status or error
-- $limit BIGINT = 100: so many runs
SELECT
  query_id, fingerprint, sql, status, error, profile_level, tables_read, rows_returned,
  CAST(now() AS BIGINT) - CAST(started_at AS BIGINT) AS ago_ns,
  coalesce(planning_ns, 0) + coalesce(execution_ns, 0) AS elapsed_ns
FROM sys.queries
WHERE strpos(lower(concat_ws(' ', sql, tables_read, status, error)), lower(coalesce($find, ''))) > 0
  AND ($hours IS NULL
    OR CAST(started_at AS BIGINT) > CAST(now() AS BIGINT) - CAST($hours AS BIGINT) * 3600000000000)
ORDER BY query_id DESC
LIMIT $limit
