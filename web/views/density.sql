-- Work of each operator's task as if it were spread evenly from its first call to its last: all that is known of time
-- below level calls. A row is a task of an operator.
-- $query_id BIGINT: the query
-- $by VARCHAR = fragment: what panel and layer are, as in view activity
SELECT
  CASE WHEN $by = 'worker' THEN worker_id WHEN $by = 'operator' THEN operator_id ELSE fragment_id END AS panel,
  CASE WHEN $by = 'operator' THEN worker_id ELSE operator_id END AS layer,
  CAST(first_call_at AS BIGINT) - CAST(started_at AS BIGINT) AS at_ns,
  CAST(last_call_at AS BIGINT) - CAST(first_call_at AS BIGINT) AS width_ns, self_ns
FROM sys.operator_stats
CROSS JOIN (SELECT started_at FROM sys.queries WHERE query_id = $query_id) AS queries
WHERE query_id = $query_id AND first_call_at IS NOT NULL
ORDER BY panel, layer, at_ns
