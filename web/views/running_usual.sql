-- What earlier runs of the statements that run now took: runs of the same SQL text that finished.
SELECT
  running.query_id, count(*) AS runs,
  CAST(min(coalesce(queries.planning_ns, 0) + coalesce(queries.execution_ns, 0)) AS BIGINT) AS shortest_ns,
  CAST(median(coalesce(queries.planning_ns, 0) + coalesce(queries.execution_ns, 0)) AS BIGINT) AS median_ns,
  CAST(max(coalesce(queries.planning_ns, 0) + coalesce(queries.execution_ns, 0)) AS BIGINT) AS longest_ns,
  max(queries.query_id) AS last_query_id
FROM sys.running AS running
JOIN sys.queries AS queries ON queries.sql = running.sql AND queries.status = 'finished'
GROUP BY running.query_id
ORDER BY running.query_id
