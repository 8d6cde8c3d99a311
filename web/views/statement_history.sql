-- The newest runs of some statements, each with its plan: two runs have one plan_fingerprint if their operators do
-- the same and hang together alike.
-- $statements VARCHAR: fingerprints of statements, separated by spaces
-- $hours BIGINT = NULL: only runs of the last so many hours; NULL is all
-- $runs BIGINT = 40: so many runs of each
SELECT
  runs.fingerprint, runs.query_id, runs.status, runs.profile_level, runs.elapsed_ns, runs.rows_returned,
  CAST(now() AS BIGINT) - runs.started AS ago_ns, runs.sql, runs.error, plans.plan_fingerprint
FROM (
  SELECT
    fingerprint, query_id, status, profile_level, rows_returned, sql, error, CAST(started_at AS BIGINT) AS started,
    coalesce(planning_ns, 0) + coalesce(execution_ns, 0) AS elapsed_ns,
    row_number() OVER (PARTITION BY fingerprint ORDER BY query_id DESC) AS place
  FROM sys.queries
  WHERE strpos($statements, fingerprint) > 0 AND ($hours IS NULL
    OR CAST(started_at AS BIGINT) > CAST(now() AS BIGINT) - CAST($hours AS BIGINT) * 3600000000000)
) AS runs
LEFT JOIN sys.plan_fingerprints AS plans ON plans.query_id = runs.query_id
WHERE runs.place <= $runs
ORDER BY runs.query_id
