-- The worst finding about each of the newest queries, and how many findings it has. Findings about single records
-- are dear to compute: they are on the page of the query.
-- $from BIGINT: only queries from this one on
SELECT query_id, rule, severity, subject, wasted_ns, findings
FROM (
  SELECT
    query_id, rule, severity, subject, wasted_ns, count(*) OVER (PARTITION BY query_id) AS findings,
    row_number() OVER (
      PARTITION BY query_id
      ORDER BY CASE severity WHEN 'critical' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END, wasted_ns DESC NULLS LAST, rule
    ) AS place
  FROM sys.diagnoses
  WHERE query_id >= $from AND rule NOT IN ('expensive input', 'shuffle latency')
) AS found
WHERE place = 1
ORDER BY query_id
