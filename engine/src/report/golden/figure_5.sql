-- # The query
-- The query, how it ended, how long it took, and how much of it was recorded.
SELECT
  queries.query_id, queries.sql, queries.status, queries.error,
  queries.profile_level, queries.sample_rate,
  queries.planning_ns, queries.execution_ns, queries.rows_returned,
  coalesce(work.busy_ns, 0) AS busy_ns,
  coalesce(overhead.events_dropped, 0) AS events_dropped
FROM sys.queries AS queries
LEFT JOIN (
  SELECT query_id, sum(self_ns) AS busy_ns
  FROM sys.operator_stats WHERE query_id = 12 GROUP BY query_id
) AS work ON queries.query_id = work.query_id
LEFT JOIN (
  SELECT query_id, sum(events_dropped) AS events_dropped
  FROM sys.profiler_overhead WHERE query_id = 12 GROUP BY query_id
) AS overhead ON queries.query_id = overhead.query_id
WHERE queries.query_id = 12;

-- # The plan
-- Every operator of the plan with its rows, times, memory and skew (largest partition over mean).
SELECT
  operator_id, parent_operator_id, name, details, partitions, rows_in, rows_out, estimated_rows,
  self_ns, share, input_wait_ns, peak_memory_bytes, spilled_bytes, row_skew, time_skew
FROM sys.operator_contribution
WHERE query_id = 12
ORDER BY operator_id;

-- The table that each scan reads.
SELECT operator_id, table_name
FROM sys.operators
WHERE query_id = 12 AND table_name IS NOT NULL
ORDER BY operator_id;

-- # Where the time went: how even the tasks are
-- The fragment that would gain most if its tasks worked equally long, and the operator with the
-- slowest straggler in it.
SELECT
  tasks.fragment_id, tasks.tasks, tasks.max_ns, tasks.mean_ns, tasks.imbalance, tasks.wasted_ns,
  straggler.operator_id, straggler.partition, straggler.self_ns, straggler.rows_in,
  straggler.others_ns, straggler.others_rows
FROM (
  SELECT fragment_id, tasks, max_ns, mean_ns, imbalance, wasted_ns
  FROM sys.task_imbalance
  WHERE query_id = 12 AND tasks > 1
  ORDER BY wasted_ns DESC, fragment_id LIMIT 1
) AS tasks
LEFT JOIN (
  SELECT
    fragment_id, operator_id, partition, self_ns, rows_in, others_ns, others_rows, excess_ns
  FROM sys.stragglers
  WHERE query_id = 12
) AS straggler ON tasks.fragment_id = straggler.fragment_id
ORDER BY straggler.excess_ns DESC NULLS LAST, straggler.operator_id
LIMIT 1;

-- # Where the time went: the slowest result row
-- The slowest result row: total latency, what of it is computation and what shuffle latency (beside
-- the mean of all result rows), and the input record that most of it came from.
SELECT
  output_row, total_ns, computation_ns, shuffle_ns, remediated_ns, source_table, source_row_id,
  CAST(avg(shuffle_ns) OVER () AS BIGINT) AS mean_shuffle_ns
FROM sys.output_latency
WHERE query_id = 12
ORDER BY total_ns DESC, output_row
LIMIT 1;

-- # Expensive inputs
-- The input records that cost most, on the critical path (impact) or in sum (self time).
-- A record is anomalous if what it costs is at least
--   10 times the median self time of its table's records (or, if none was measured, 10 times an
--   even share of all operators' time per scanned record), and twice that even share, and
--   5 % of the query's time, and a millisecond.
WITH
query AS (
  SELECT coalesce(planning_ns, 0) + coalesce(execution_ns, 0) AS query_ns
  FROM sys.queries WHERE query_id = 12
),
work AS (
  SELECT
    sum(self_ns) AS busy_ns,
    CAST(sum(self_ns) / nullif(sum(CASE WHEN rows_in = 0 THEN rows_out END), 0) AS BIGINT) AS even_ns
  FROM sys.operator_stats WHERE query_id = 12
),
-- All time that was measured in expressions over a record, whether the result waited for it or not.
spent AS (
  SELECT table_name, row_id, sum(latency_ns) AS self_ns
  FROM sys.record_latency
  WHERE query_id = 12 AND table_name IS NOT NULL AND kind = 'computation'
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
    FROM sys.expensive_inputs WHERE query_id = 12
    ORDER BY impact_ns DESC, row_id, table_name LIMIT 5
  ) AS critical
  FULL JOIN (
    SELECT table_name, row_id, self_ns
    FROM spent ORDER BY self_ns DESC, row_id, table_name LIMIT 3
  ) AS heavy
  ON critical.table_name = heavy.table_name AND critical.row_id = heavy.row_id
),
judged AS (
  SELECT
    candidates.*, usual.median_ns, query.query_ns, work.busy_ns,
    greatest(
      10 * coalesce(usual.median_ns, work.even_ns, 0), 2 * coalesce(work.even_ns, 0),
      CAST(0.05 * query.query_ns AS BIGINT), 1000000
    ) AS threshold_ns
  FROM candidates
  CROSS JOIN query
  CROSS JOIN work
  LEFT JOIN usual ON candidates.table_name = usual.table_name
)
SELECT
  table_name, row_id, impact_ns, max_total_ns, max_remediated_ns, outputs, self_ns,
  median_ns, query_ns, threshold_ns,
  CASE
    WHEN impact_ns >= threshold_ns THEN 'critical path'
    WHEN self_ns >= threshold_ns THEN 'self time'
  END AS anomaly,
  -- What the query would take without the record: what the result waits for is saved as it is,
  -- work that is spread over the tasks only as its share of all work.
  CASE
    WHEN impact_ns >= threshold_ns THEN greatest(query_ns - impact_ns, 0)
    WHEN self_ns >= threshold_ns
      THEN CAST(query_ns * (1 - least(1, self_ns / CAST(busy_ns AS DOUBLE))) AS BIGINT)
  END AS without_ns
FROM judged
ORDER BY anomaly IS NULL, impact_ns DESC, self_ns DESC, row_id, table_name;

SELECT * FROM input WHERE _row_id = 2;
