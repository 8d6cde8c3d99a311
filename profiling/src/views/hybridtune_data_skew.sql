-- HybridTune's rule for skewed data as published (Ren et al., 2017), kept for comparison: a task has more than 1.5
-- times the rows of the fragment's median task. It has no gate of cost.
SELECT
  query_id, 'hybridtune data skew' AS detector,
  concat('fragment ', fragment_id, ', partition ', partition, ' on worker ', worker_id) AS subject,
  concat('It had ', rows, ' rows, the median task ', usual_rows, '.') AS cause,
  'Compare it with sys.data_size_skew.' AS advice, fragment_id, CAST(NULL AS BIGINT) AS operator_id, worker_id,
  partition,
  CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id,
  CAST(NULL AS BIGINT) AS cost_ns, rows / usual_rows AS score, 1.5 AS threshold,
  CAST(NULL AS DOUBLE) AS confidence, false AS innocent,
  concat('SELECT * FROM sys.operator_stats WHERE query_id = ', query_id, ' AND fragment_id = ', fragment_id)
    AS evidence_sql
FROM (
  SELECT *, median(CAST(rows AS DOUBLE)) OVER (PARTITION BY query_id, fragment_id) AS usual_rows
  FROM (
    SELECT query_id, fragment_id, worker_id, partition, max(greatest(rows_in, rows_out)) AS rows
    FROM sys.operator_stats
    GROUP BY query_id, fragment_id, worker_id, partition
  ) AS loads
) AS tasks
WHERE rows > 1.5 * usual_rows
