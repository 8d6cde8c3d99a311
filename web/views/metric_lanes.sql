-- Readings of each worker's metrics while the query ran: the lowest, the mean and the highest of each bin. More than
-- eight workers get fewer bins.
-- $query_id BIGINT: the query
-- $bins BIGINT = 200: bins
-- $lo BIGINT = NULL: from here, in nanoseconds since the statement arrived; NULL is its start
-- $hi BIGINT = NULL: up to here; NULL is the last reading
WITH span AS (
  SELECT *, greatest((hi - lo) / $bins * greatest(workers / 8, 1) + 1, 1) AS width_ns
  FROM (
    SELECT
      CAST(queries.started_at AS BIGINT) AS start_ns,
      CAST(queries.started_at AS BIGINT) + coalesce($lo, 0) AS lo,
      coalesce(CAST(queries.started_at AS BIGINT) + $hi, metrics.last_ns) AS hi,
      metrics.workers
    FROM sys.queries AS queries
    CROSS JOIN (
      SELECT max(CAST(at AS BIGINT)) AS last_ns, count(DISTINCT worker_id) AS workers
      FROM sys.worker_metrics WHERE query_id = $query_id
    ) AS metrics
    WHERE queries.query_id = $query_id
  ) AS times
)
SELECT
  metric, worker_id, lo - start_ns + bin * width_ns AS at_ns, width_ns,
  min(value) AS low, avg(value) AS mean, max(value) AS high, max(started_ns) AS last_at_ns, count(*) AS readings
FROM (
  SELECT
    metric, worker_id, value, lo, start_ns, width_ns, CAST(at AS BIGINT) - start_ns AS started_ns,
    (CAST(at AS BIGINT) - lo) / width_ns AS bin
  FROM span
  CROSS JOIN sys.worker_metrics
  WHERE query_id = $query_id AND metric <> 'machine_cores' AND CAST(at AS BIGINT) >= lo AND CAST(at AS BIGINT) <= hi
) AS readings
GROUP BY metric, worker_id, lo, start_ns, width_ns, bin
ORDER BY metric, worker_id, at_ns
