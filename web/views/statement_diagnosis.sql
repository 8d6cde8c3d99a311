-- The verdict about each of the newest queries, and how many findings call for action.
-- $from BIGINT: only queries from this one on
SELECT query_id, rule, severity, subject, cause, wasted_ns, findings
FROM (
  SELECT
    query_id, rule, severity, subject, cause, wasted_ns, place,
    count(CASE WHEN place IS NOT NULL OR explained_by IS NOT NULL THEN 1 END) OVER (PARTITION BY query_id) AS findings
  FROM sys.diagnoses
  WHERE query_id >= $from
) AS found
WHERE place = 1
ORDER BY query_id
