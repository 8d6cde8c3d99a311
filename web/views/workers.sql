-- The workers as they are now, and the process itself where there are none, each with its newest readings. Readings
-- are taken while queries run: read_ago_ns says how old they are. cores are what the process may use.
SELECT
  workers.worker_id, workers.state, workers.address, workers.clock_offset_ns, workers.clock_error_ns,
  readings.rss_bytes, readings.cores,
  CASE WHEN readings.cpu_share > readings.cores THEN readings.cores ELSE readings.cpu_share END AS cpu_share,
  CAST(now() AS BIGINT) - CAST(readings.at AS BIGINT) AS read_ago_ns
FROM (
  SELECT worker_id, state, address, clock_offset_ns, clock_error_ns
  FROM sys.workers WHERE query_id IS NULL
  UNION ALL
  SELECT 0, 'alive', 'in process', 0, 0
  FROM (SELECT count(*) AS workers FROM sys.workers WHERE query_id IS NULL) AS known
  WHERE known.workers = 0
) AS workers
LEFT JOIN (
  SELECT
    worker_id, max(at) AS at,
    first_value(value ORDER BY at DESC) FILTER (WHERE metric = 'rss_bytes') AS rss_bytes,
    first_value(value ORDER BY at DESC) FILTER (WHERE metric = 'cpu_share') AS cpu_share,
    first_value(value ORDER BY at DESC) FILTER (WHERE metric = 'effective_cores') AS cores
  FROM sys.worker_metrics
  WHERE
    metric IN ('rss_bytes', 'cpu_share', 'effective_cores')
    AND query_id > (SELECT max(query_id) - 20 FROM sys.queries)
  GROUP BY worker_id
) AS readings ON readings.worker_id = workers.worker_id
ORDER BY workers.worker_id
