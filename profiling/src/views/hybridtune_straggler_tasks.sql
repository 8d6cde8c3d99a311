-- HybridTune's rule for straggler tasks as published (Ren et al., 2017), kept for comparison: a task of a fragment that
-- works more than 1.5 times as long as the fragment's median task. It has no gate of cost.
SELECT
  query_id, 'hybridtune straggler task' AS detector,
  concat('fragment ', fragment_id, ', partition ', partition, ' on worker ', worker_id) AS subject,
  concat('It worked ', round(wall_ns / 1000000.0, 1), ' ms, the median task ', round(usual_ns / 1000000.0, 1), ' ms.')
    AS cause,
  'Compare it with sys.straggler_tasks.' AS advice, fragment_id, CAST(NULL AS BIGINT) AS operator_id, worker_id,
  partition,
  CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id,
  CAST(wall_ns - usual_ns AS BIGINT) AS cost_ns, wall_ns / usual_ns AS score, 1.5 AS threshold,
  CAST(NULL AS DOUBLE) AS confidence, false AS innocent,
  concat('SELECT * FROM sys.task_stats WHERE query_id = ', query_id, ' AND fragment_id = ', fragment_id) AS evidence_sql
FROM (
  SELECT
    *, median(CAST(wall_ns AS DOUBLE)) OVER (PARTITION BY query_id, fragment_id) AS usual_ns
  FROM sys.task_stats
) AS tasks
WHERE wall_ns > 1.5 * usual_ns
