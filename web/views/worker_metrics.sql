-- Readings of the workers while the newest queries ran, the extremes and the mean of each bin of time. Times count
-- from the start of the first of these queries.
-- $queries BIGINT = 30: the newest so many queries
-- $width BIGINT = 250000000: width of a bin, in nanoseconds
WITH newest AS (
  SELECT query_id, CAST(started_at AS BIGINT) AS started
  FROM sys.queries ORDER BY query_id DESC LIMIT $queries
)
SELECT
  readings.worker_id, readings.metric, (CAST(readings.at AS BIGINT) - first.origin) / $width AS bin,
  $width AS width_ns, min(CAST(readings.at AS BIGINT) - first.origin) AS at_ns,
  min(readings.value) AS low, avg(readings.value) AS mean, max(readings.value) AS high, count(*) AS readings
FROM sys.worker_metrics AS readings
CROSS JOIN (SELECT min(query_id) AS query_id, min(started) AS origin FROM newest) AS first
WHERE readings.query_id >= first.query_id
GROUP BY readings.worker_id, readings.metric, (CAST(readings.at AS BIGINT) - first.origin) / $width
ORDER BY readings.worker_id, readings.metric, bin
LIMIT 6000
