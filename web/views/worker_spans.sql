-- The newest queries with the time that they ran, from the start of the first of them.
-- $queries BIGINT = 30: the newest so many queries
SELECT
  query_id, left(sql, 200) AS sql, status, profile_level, started - min(started) OVER () AS start_ns,
  started - min(started) OVER () + elapsed_ns AS end_ns, CAST(now() AS BIGINT) - started AS ago_ns
FROM (
  SELECT
    query_id, sql, status, profile_level, CAST(started_at AS BIGINT) AS started,
    coalesce(planning_ns, 0) + coalesce(execution_ns, 0) AS elapsed_ns
  FROM sys.queries ORDER BY query_id DESC LIMIT $queries
) AS newest
ORDER BY query_id
