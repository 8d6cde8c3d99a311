-- Operators that wrote to temporary files: `spilling`. An operator handles a spilled row twice, once when it writes
-- the row and once when it reads it back. So its cost is, in the partition where that is most, the operator's own
-- time by the share of spilled rows in all that it handled. Where no rows are counted, the cost is unknown. Level
-- `counters` and above.
WITH spilled AS (
  SELECT query_id, operator_id, worker_id, partition, sum(value) AS rows
  FROM sys.operator_metrics
  WHERE metric = 'spilled_rows'
  GROUP BY query_id, operator_id, worker_id, partition
),
found AS (
  SELECT
    stats.query_id, stats.fragment_id, stats.operator_id, sum(stats.spilled_bytes) AS bytes,
    sum(spilled.rows) AS rows, max(stats.self_ns) AS self_ns,
    max(stats.self_ns * (CAST(spilled.rows AS DOUBLE) / greatest(stats.rows_in + spilled.rows, 1))) AS cost_ns
  FROM sys.operator_stats AS stats
  LEFT JOIN spilled
    ON stats.query_id = spilled.query_id AND stats.operator_id = spilled.operator_id
      AND stats.worker_id = spilled.worker_id AND stats.partition = spilled.partition
  WHERE stats.spilled_bytes > 0
  GROUP BY stats.query_id, stats.fragment_id, stats.operator_id
)
SELECT
  found.query_id, 'spilling' AS detector, 'operator ' || found.operator_id || ' ' || operators.name AS subject,
  'The operator wrote ' || found.bytes || ' bytes to temporary files'
    || coalesce(
      ', ' || found.rows || ' rows: that took about ' || CAST(round(found.cost_ns / 1000000.0) AS BIGINT) || ' ms.',
      '.') AS cause,
  'Raise the memory limit, or reduce what the operator holds.' AS advice,
  found.fragment_id, found.operator_id, CAST(NULL AS BIGINT) AS worker_id, CAST(NULL AS BIGINT) AS partition,
  CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id,
  CAST(found.cost_ns AS BIGINT) AS cost_ns, CAST(found.bytes AS DOUBLE) AS score, 0.0 AS threshold,
  CAST(NULL AS DOUBLE) AS confidence, found.self_ns < 10000000 AS innocent,
  'SELECT * FROM sys.operator_contribution WHERE query_id = ' || found.query_id || ' AND spilled_bytes > 0'
    AS evidence_sql
FROM found
JOIN sys.operators AS operators
  ON found.query_id = operators.query_id AND found.operator_id = operators.operator_id
