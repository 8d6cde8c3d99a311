-- HybridTune's rule for straggler nodes as published (Ren et al., 2017), kept for comparison: the mean of a worker's
-- tasks of a fragment is more than 1.5 times the median of the workers' means. It has no gate of cost.
SELECT
  query_id, 'hybridtune straggler node' AS detector, concat('fragment ', fragment_id, ', worker ',
  worker_id) AS subject,
  concat('Its tasks worked ', round(mean_ns / 1000000.0, 1), ' ms, the median worker''s ',
    round(usual_ns / 1000000.0, 1), ' ms.') AS cause,
  'Compare it with sys.straggler_nodes.' AS advice, fragment_id, CAST(NULL AS BIGINT) AS operator_id, worker_id,
  CAST(NULL AS BIGINT) AS partition, CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name,
  CAST(NULL AS BIGINT) AS row_id, CAST(mean_ns - usual_ns AS BIGINT) AS cost_ns, mean_ns / usual_ns AS score,
  1.5 AS threshold, CAST(NULL AS DOUBLE) AS confidence, false AS innocent,
  concat('SELECT * FROM sys.task_stats WHERE query_id = ', query_id, ' AND fragment_id = ', fragment_id) AS evidence_sql
FROM (
  SELECT *, median(mean_ns) OVER (PARTITION BY query_id, fragment_id) AS usual_ns
  FROM (
    SELECT query_id, fragment_id, worker_id, avg(CAST(wall_ns AS DOUBLE)) AS mean_ns
    FROM sys.task_stats
    GROUP BY query_id, fragment_id, worker_id
  ) AS means
) AS workers
WHERE mean_ns > 1.5 * usual_ns
