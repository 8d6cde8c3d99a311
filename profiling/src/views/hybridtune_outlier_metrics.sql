-- HybridTune's rule for outlier metrics as published (Ren et al., 2017), kept for comparison: the mean of a worker's
-- metric in a query, scaled to 0 to 1 between the least and the largest of all workers, is further than 0.5 from that
-- of every other worker (distance-based outlier, DB(1, 0.5)). Principal components do not choose the metrics.
SELECT
  query_id, 'hybridtune outlier metric' AS detector, concat('worker ', worker_id, ', ', metric) AS subject,
  concat('Its mean of ', metric, ' is ', round(reading, 3), ', all are between ', round(low, 3), ' and ',
    round(high, 3), '.') AS cause,
  'Compare it with sys.outlier_metrics.' AS advice, CAST(NULL AS BIGINT) AS fragment_id,
  CAST(NULL AS BIGINT) AS operator_id, worker_id, CAST(NULL AS BIGINT) AS partition,
  CAST(NULL AS BIGINT) AS exchange_id,
  CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id, CAST(NULL AS BIGINT) AS cost_ns,
  gap / (high - low) AS score, 0.5 AS threshold, CAST(NULL AS DOUBLE) AS confidence, false AS innocent,
  concat('SELECT * FROM sys.worker_metrics WHERE query_id = ', query_id, ' AND metric = ''', metric, '''')
    AS evidence_sql
FROM (
  SELECT
    *, least(
      coalesce(reading - lag(reading) OVER ordered, high - low),
      coalesce(lead(reading) OVER ordered - reading, high - low)) AS gap
  FROM (
    SELECT
      *, min(reading) OVER readings AS low, max(reading) OVER readings AS high, count(*) OVER readings AS workers
    FROM (
      SELECT query_id, worker_id, metric, avg(value) AS reading
      FROM sys.worker_metrics
      WHERE worker_id > 0
      GROUP BY query_id, worker_id, metric
    ) AS means
    WINDOW readings AS (PARTITION BY query_id, metric)
  ) AS scaled
  WINDOW ordered AS (PARTITION BY query_id, metric ORDER BY reading)
) AS gaps
WHERE workers >= 3 AND high > low AND gap > 0.5 * (high - low)
