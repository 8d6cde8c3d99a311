-- How well each worker was used while a query ran: time in operators over elapsed time is the
-- number of cores that did the query's work; cpu_share is what the process as a whole used.
SELECT
  queries.query_id, stats.worker_id, queries.execution_ns, stats.busy_ns,
  CAST(stats.busy_ns AS DOUBLE) / nullif(queries.execution_ns, 0) AS cores_busy,
  metrics.cpu_share, stats.input_wait_ns, stats.output_wait_ns,
  metrics.max_rss_bytes, stats.spilled_bytes
FROM sys.queries AS queries
JOIN (
  SELECT
    query_id, worker_id, sum(self_ns) AS busy_ns, sum(input_wait_ns) AS input_wait_ns,
    sum(output_wait_ns) AS output_wait_ns, sum(spilled_bytes) AS spilled_bytes
  FROM sys.operator_stats
  GROUP BY query_id, worker_id
) AS stats ON queries.query_id = stats.query_id
LEFT JOIN (
  SELECT
    query_id, worker_id,
    avg(CASE WHEN metric = 'cpu_share' THEN value END) AS cpu_share,
    CAST(max(CASE WHEN metric = 'rss_bytes' THEN value END) AS BIGINT) AS max_rss_bytes
  FROM sys.worker_metrics
  GROUP BY query_id, worker_id
) AS metrics ON queries.query_id = metrics.query_id AND stats.worker_id = metrics.worker_id
