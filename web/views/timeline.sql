-- Own time of each operator in equal parts of its tasks' time, kept at level counters and above. A row is a panel's
-- layer and a part of the time axis; tasks whose parts begin and end together are summed.
-- $query_id BIGINT: the query
-- $by VARCHAR = fragment: what panel and layer are, as in view activity
SELECT
  CASE WHEN $by = 'worker' THEN worker_id WHEN $by = 'operator' THEN operator_id ELSE fragment_id END AS panel,
  CASE WHEN $by = 'operator' THEN worker_id ELSE operator_id END AS layer,
  CAST(timeline.started_at AS BIGINT) - CAST(queries.started_at AS BIGINT) AS at_ns, width_ns,
  CAST(sum(self_ns) AS BIGINT) AS self_ns
FROM sys.operator_timeline AS timeline
CROSS JOIN (SELECT started_at FROM sys.queries WHERE query_id = $query_id) AS queries
WHERE timeline.query_id = $query_id
GROUP BY 1, 2, 3, 4
ORDER BY panel, layer, at_ns
