-- Readings of the nodes up to now: the lowest, the mean and the highest of each bin of time. at_ns is the mean time
-- of a bin's readings, counted from now. More than eight nodes get fewer bins.
-- $seconds BIGINT = 300: the newest so many seconds
-- $bins BIGINT = 100: bins
SELECT
  worker_id, metric, CAST(avg(at_ns) AS BIGINT) AS at_ns, width_ns,
  min(low) AS low, sum(value * seconds) / sum(seconds) AS mean, max(high) AS high, count(*) AS readings
FROM (
  SELECT
    worker_id, metric, value, low, high, seconds, width_ns, CAST(at AS BIGINT) - now_ns AS at_ns,
    (CAST(at AS BIGINT) - 1) / width_ns AS bin
  FROM sys.node_metrics
  CROSS JOIN (
    SELECT
      CAST(now() AS BIGINT) AS now_ns,
      greatest($seconds * 1000000000 / $bins, CASE WHEN $seconds > 3600 THEN 60000000000 ELSE 1000000000 END)
        * greatest((SELECT count(*) FROM sys.workers WHERE query_id IS NULL) / 8, 1) AS width_ns
  ) AS span
  WHERE CAST(at AS BIGINT) > now_ns - $seconds * 1000000000 AND seconds > 0 AND metric <> 'machine_cores'
) AS readings
GROUP BY worker_id, metric, bin, width_ns
ORDER BY worker_id, metric, at_ns
