-- The newest 100 runs of the statement that a query ran: statements that differ only in literals are one. Runs with
-- another plan have another plan_fingerprint.
-- $query_id BIGINT: the query
SELECT
  runs.query_id, CAST(runs.started_at AS VARCHAR) AS started_at, runs.status, runs.profile_level,
  coalesce(runs.planning_ns, 0) AS planning_ns, coalesce(runs.execution_ns, 0) AS execution_ns,
  coalesce(runs.planning_ns, 0) + coalesce(runs.execution_ns, 0) AS total_ns, runs.rows_returned,
  plans.plan_fingerprint, CAST(runs.run AS BIGINT) AS run, runs.sql
FROM (
  SELECT queries.*, row_number() OVER (ORDER BY query_id) AS run
  FROM sys.queries AS queries
  WHERE fingerprint = (SELECT this.fingerprint FROM sys.queries AS this WHERE this.query_id = $query_id)
) AS runs
LEFT JOIN sys.plan_fingerprints AS plans ON plans.query_id = runs.query_id
ORDER BY runs.query_id DESC
LIMIT 100
