-- Nodes whose readings are off those of the other nodes now: in at least 3 of the last 5 windows of 10 seconds, some
-- metric's mean is more than 6 robust standard deviations (the deviation is at least 5 % of the median) off the median
-- of all nodes, and off by more than a reading that matters. `score` is the largest number of such metrics in a window.
-- `query_id` is NULL: the finding is about a node, not a query. It needs three nodes; the master, whose work is
-- another, is not compared. It replaces HybridTune's rule of cosine similarity, which sys.hybridtune_abnormal_nodes
-- keeps.
SELECT
  CAST(NULL AS BIGINT) AS query_id, 'abnormal node' AS detector, concat('worker ', worker_id) AS subject,
  concat(
    'In ', count(*), ' of the last 5 windows of 10 seconds, readings were off those of the other nodes: ',
    string_agg(DISTINCT furthest, ', '), '.') AS cause,
  'Look at the node''s machine: SELECT * FROM sys.outlier_metrics.' AS advice,
  CAST(NULL AS BIGINT) AS fragment_id, CAST(NULL AS BIGINT) AS operator_id, worker_id,
  CAST(NULL AS BIGINT) AS partition,
  CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id,
  CAST(NULL AS BIGINT) AS cost_ns, CAST(max(metrics) AS DOUBLE) AS score, 1.0 AS threshold,
  CAST(NULL AS DOUBLE) AS confidence, false AS innocent,
  concat('SELECT * FROM sys.node_metrics WHERE worker_id = ', worker_id, ' ORDER BY metric, at DESC') AS evidence_sql
FROM (
  SELECT worker_id, slot, count(*) AS metrics, first_value(metric ORDER BY off DESC, metric) AS furthest
  FROM (
    SELECT
      worker_id, slot, metric, deviation / greatest(1.4826 * median(deviation) OVER nodes, 0.05 * abs(usual),
      least_off) AS off,
      deviation, least_off, nodes
    FROM (
      SELECT
        *, abs(reading - usual) AS deviation,
        CASE
          WHEN metric LIKE '%_share' OR metric LIKE '%_cores' THEN 0.05
          WHEN metric LIKE '%bytes%' THEN 4000000.0
          ELSE 5.0
        END AS least_off
      FROM (
        SELECT
          *, median(reading) OVER (PARTITION BY slot, metric) AS usual,
          count(*) OVER (PARTITION BY slot, metric) AS nodes
        FROM (
          SELECT worker_id, metric, slot, avg(value) AS reading
          FROM (
            SELECT
              worker_id, metric, value,
              (CAST(max(at) OVER () AS BIGINT) - CAST(at AS BIGINT)) / 10000000000 AS slot
            FROM sys.node_metrics
            WHERE seconds < 30 AND worker_id > 0 AND metric NOT IN ('machine_cores', 'memory_limit_bytes')
          ) AS readings
          WHERE slot < 5
          GROUP BY worker_id, metric, slot
        ) AS windows
      ) AS compared
    ) AS deviations
    WINDOW nodes AS (PARTITION BY slot, metric)
  ) AS scored
  WHERE nodes >= 3 AND off > 6
  GROUP BY worker_id, slot
) AS slots
GROUP BY worker_id
HAVING count(*) >= 3
