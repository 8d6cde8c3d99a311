-- Records that cost much: `expensive input`, one row for each record of `sys.anomalies`. That view has the rule.
-- Place is the task that took longest for the record. Level `records`.
WITH found AS (
  SELECT
    anomalies.query_id, anomalies.table_name, anomalies.row_id, anomalies.reason, anomalies.cost_ns,
    anomalies.threshold_ns, anomalies.rows_made, anomalies.table_rows, anomalies.operator_id,
    latencies.fragment_id, latencies.operator_id AS slow_operator_id, latencies.worker_id, latencies.partition,
    row_number() OVER (
      PARTITION BY anomalies.query_id, anomalies.table_name, anomalies.row_id
      ORDER BY latencies.latency_ns DESC NULLS LAST, latencies.operator_id
    ) AS place
  FROM sys.anomalies AS anomalies
  LEFT JOIN sys.record_latency AS latencies
    ON anomalies.query_id = latencies.query_id AND anomalies.table_name = latencies.table_name
      AND anomalies.row_id = latencies.row_id
  WHERE anomalies.row_id IS NOT NULL
)
SELECT
  query_id, 'expensive input' AS detector, table_name || ' row ' || row_id AS subject,
  CASE
    WHEN reason = 'fan-out' THEN
      'It became ' || rows_made || ' of the ' || table_rows || ' rows that descend from its table: operators took '
        || cost_ns / 1000000 || ' ms for them.'
    WHEN reason = 'self time' THEN
      'Expressions took ' || cost_ns / 1000000 || ' ms for this record alone.'
    ELSE 'The result waited ' || cost_ns / 1000000 || ' ms for this record.'
  END AS cause,
  'Look at this record: SELECT * FROM ' || table_name || ' WHERE _row_id = ' || row_id || '. '
    || CASE
      WHEN reason = 'fan-out' THEN 'Removing or splitting it saves up to what operators took for these rows.'
      WHEN reason = 'self time' THEN 'Removing, splitting or rewriting it saves up to its self time.'
      ELSE 'Removing, splitting or rewriting it saves up to its impact.'
    END AS advice,
  fragment_id, operator_id, worker_id, partition, CAST(NULL AS BIGINT) AS exchange_id, table_name, row_id, cost_ns,
  CAST(cost_ns AS DOUBLE) AS score, CAST(threshold_ns AS DOUBLE) AS threshold, CAST(NULL AS DOUBLE) AS confidence,
  FALSE AS innocent,
  'SELECT * FROM sys.anomalies WHERE query_id = ' || query_id || ' ORDER BY cost_ns DESC' AS evidence_sql
FROM found
WHERE place = 1
