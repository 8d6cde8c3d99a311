-- The latest reading of each metric of each node, if it is younger than ten seconds.
-- gauge skewer_node_*: The latest reading of this metric in sys.node_metrics.
SELECT metric, worker_id AS worker, last_value(value ORDER BY at) AS value
FROM sys.node_metrics
WHERE at >= now() - INTERVAL '10 seconds'
GROUP BY metric, worker_id
ORDER BY metric, worker_id
