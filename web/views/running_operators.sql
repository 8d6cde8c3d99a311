-- What the operators of a statement that runs now have done so far, over all their partitions.
-- $query_id BIGINT: the statement
SELECT
  operator_id, max(name) AS name, max(kind) AS kind, count(*) AS partitions,
  CAST(sum(CASE WHEN has_ended THEN 1 ELSE 0 END) AS BIGINT) AS ended, CAST(sum(calls) AS BIGINT) AS calls, CAST(sum(rows_out) AS BIGINT) AS rows_out,
  CAST(sum(self_ns) AS BIGINT) AS self_ns, CAST(max(self_ns) AS BIGINT) AS most_ns,
  CAST(min(self_ns) AS BIGINT) AS least_ns
FROM sys.running_operators
WHERE query_id = $query_id
GROUP BY operator_id
ORDER BY operator_id
