-- What each worker did for two queries.
SELECT
  coalesce(a.worker_id, b.worker_id) AS worker_id, a.busy_ns AS before_ns, b.busy_ns AS after_ns
FROM (
  SELECT worker_id, sum(self_ns) AS busy_ns
  FROM sys.operator_stats WHERE query_id = $before GROUP BY worker_id
) AS a
FULL JOIN (
  SELECT worker_id, sum(self_ns) AS busy_ns
  FROM sys.operator_stats WHERE query_id = $after GROUP BY worker_id
) AS b
ON a.worker_id = b.worker_id
ORDER BY worker_id
