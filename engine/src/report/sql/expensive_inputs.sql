-- The input records that cost most, on the critical path (impact) or in sum (self time).
-- A record is anomalous if what it costs is at least
--   10 times the median self time of its table's records (or, if none was measured, 10 times an
--   even share of all operators' time per scanned record), and twice that even share, and
--   5 % of the query's time, and a millisecond.
WITH
query AS (
  SELECT coalesce(planning_ns, 0) + coalesce(execution_ns, 0) AS query_ns
  FROM sys.queries WHERE query_id = $query_id
),
work AS (
  SELECT
    CAST(sum(self_ns) / nullif(sum(CASE WHEN rows_in = 0 THEN rows_out END), 0) AS BIGINT) AS even_ns
  FROM sys.operator_stats WHERE query_id = $query_id
),
-- All time that was measured in expressions over a record, whether the result waited for it or not.
spent AS (
  SELECT table_name, row_id, sum(latency_ns) AS self_ns
  FROM sys.record_latency
  WHERE query_id = $query_id AND table_name IS NOT NULL AND kind = 'computation'
  GROUP BY table_name, row_id
),
usual AS (
  SELECT table_name, CAST(median(self_ns) AS BIGINT) AS median_ns
  FROM spent GROUP BY table_name
),
candidates AS (
  SELECT
    coalesce(critical.table_name, heavy.table_name) AS table_name,
    coalesce(critical.row_id, heavy.row_id) AS row_id,
    coalesce(critical.impact_ns, 0) AS impact_ns, critical.max_total_ns, critical.max_remediated_ns,
    critical.outputs, coalesce(critical.self_ns, heavy.self_ns) AS self_ns
  FROM (
    SELECT table_name, row_id, impact_ns, max_total_ns, max_remediated_ns, outputs, self_ns
    FROM sys.expensive_inputs WHERE query_id = $query_id
    ORDER BY impact_ns DESC, row_id, table_name LIMIT 5
  ) AS critical
  FULL JOIN (
    SELECT table_name, row_id, self_ns
    FROM spent ORDER BY self_ns DESC, row_id, table_name LIMIT 3
  ) AS heavy
  ON critical.table_name = heavy.table_name AND critical.row_id = heavy.row_id
),
-- How sure the self times of the candidates are.
found AS (
  SELECT
    latencies.table_name, latencies.row_id, sum(latencies.error_ns) AS error_ns,
    sum(CASE WHEN method = 'replayed' THEN latency_ns END) AS replayed_ns,
    sum(CASE WHEN method = 'measured' THEN latency_ns END) AS measured_ns
  FROM sys.record_latency AS latencies
  JOIN candidates
  ON latencies.table_name = candidates.table_name AND latencies.row_id = candidates.row_id
  WHERE latencies.query_id = $query_id AND kind = 'computation'
  GROUP BY latencies.table_name, latencies.row_id
),
judged AS (
  SELECT
    candidates.table_name, candidates.row_id, candidates.impact_ns, candidates.max_total_ns,
    candidates.max_remediated_ns, candidates.outputs, candidates.self_ns, usual.median_ns,
    query.query_ns, found.error_ns,
    CASE
      WHEN 2 * found.replayed_ns > candidates.self_ns THEN 'replayed'
      WHEN 2 * found.measured_ns > candidates.self_ns THEN 'measured'
      WHEN found.error_ns IS NOT NULL THEN 'apportioned'
    END AS method,
    greatest(
      10 * coalesce(usual.median_ns, work.even_ns, 0), 2 * coalesce(work.even_ns, 0),
      CAST(0.05 * query.query_ns AS BIGINT), 1000000
    ) AS threshold_ns
  FROM candidates
  CROSS JOIN query
  CROSS JOIN work
  LEFT JOIN usual ON candidates.table_name = usual.table_name
  LEFT JOIN found
  ON candidates.table_name = found.table_name AND candidates.row_id = found.row_id
)
SELECT
  table_name, row_id, impact_ns, max_total_ns, max_remediated_ns, outputs, self_ns,
  method, error_ns, median_ns, query_ns, threshold_ns,
  CASE
    WHEN impact_ns >= threshold_ns THEN 'critical path'
    WHEN self_ns >= threshold_ns THEN 'self time'
  END AS anomaly
FROM judged
ORDER BY anomaly IS NULL, impact_ns DESC, self_ns DESC, row_id, table_name
