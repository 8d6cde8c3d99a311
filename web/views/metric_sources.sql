-- Where each node reads its metrics, and why it does not have the others.
SELECT worker_id, metric, unit, source, is_available, reason
FROM sys.metric_sources
ORDER BY metric, worker_id
