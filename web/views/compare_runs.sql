-- Two runs: what ran, when, at which level and where, and their totals. slots is how many tasks of a fragment ran side
-- by side at most; earlier_runs counts the runs of the same statement before.
-- $query_id BIGINT: the query
-- $other_id BIGINT: the query that it is compared with
SELECT
  queries.query_id, queries.sql, queries.fingerprint, plans.plan_fingerprint, queries.status, queries.error,
  queries.profile_level, coalesce(overhead.sample_rate, queries.sample_rate) AS sample_rate,
  CAST(queries.started_at AS VARCHAR) AS started_at, queries.imported_from, queries.tables_read,
  coalesce(queries.planning_ns, 0) AS planning_ns, coalesce(queries.execution_ns, 0) AS execution_ns,
  CAST(coalesce(work.self_ns, 0) AS BIGINT) AS self_ns, coalesce(slots.tasks, 1) AS slots,
  queries.rows_returned, CAST(work.rows_read AS BIGINT) AS rows_read,
  CAST(coalesce(sent.crossed_rows, 0) AS BIGINT) AS crossed_rows,
  CAST(coalesce(sent.crossed_bytes, 0) AS BIGINT) AS crossed_bytes,
  CAST(work.peak_memory_bytes AS BIGINT) AS peak_memory_bytes, CAST(work.spilled_bytes AS BIGINT) AS spilled_bytes,
  places.workers, places.lost AS lost_workers, coalesce(overhead.events_dropped, 0) AS events_dropped,
  overhead.time_ns AS overhead_ns, earlier.runs AS earlier_runs
FROM sys.queries AS queries
LEFT JOIN (
  SELECT query_id, plan_fingerprint FROM sys.plan_fingerprints WHERE query_id IN ($query_id, $other_id)
) AS plans ON plans.query_id = queries.query_id
LEFT JOIN (
  SELECT
    stats.query_id, sum(stats.self_ns) AS self_ns, sum(stats.peak_memory_bytes) AS peak_memory_bytes,
    sum(stats.spilled_bytes) AS spilled_bytes,
    sum(CASE WHEN operators.kind = 'scan' THEN stats.rows_out END) AS rows_read
  FROM sys.operator_stats AS stats
  JOIN sys.operators AS operators
    ON operators.query_id = stats.query_id AND operators.operator_id = stats.operator_id
  WHERE stats.query_id IN ($query_id, $other_id) AND operators.query_id IN ($query_id, $other_id)
  GROUP BY stats.query_id
) AS work ON work.query_id = queries.query_id
LEFT JOIN (
  SELECT query_id, max(tasks) AS tasks FROM sys.fragments WHERE query_id IN ($query_id, $other_id) GROUP BY query_id
) AS slots ON slots.query_id = queries.query_id
LEFT JOIN (
  SELECT
    query_id, sum(CASE WHEN source_worker <> destination_worker THEN tuples END) AS crossed_rows,
    sum(CASE WHEN source_worker <> destination_worker THEN bytes END) AS crossed_bytes
  FROM sys.tuples_sent WHERE query_id IN ($query_id, $other_id) GROUP BY query_id
) AS sent ON sent.query_id = queries.query_id
LEFT JOIN (
  SELECT
    query_id, string_agg(CAST(worker_id AS VARCHAR), ', ' ORDER BY worker_id) AS workers,
    string_agg(CASE WHEN state = 'lost' THEN CAST(worker_id AS VARCHAR) END, ', ' ORDER BY worker_id) AS lost
  FROM sys.workers WHERE query_id IN ($query_id, $other_id) GROUP BY query_id
) AS places ON places.query_id = queries.query_id
LEFT JOIN (
  SELECT
    query_id, min(sample_rate) AS sample_rate, CAST(sum(events_dropped) AS BIGINT) AS events_dropped,
    CAST(sum(time_ns) AS BIGINT) AS time_ns
  FROM sys.profiler_overhead WHERE query_id IN ($query_id, $other_id) GROUP BY query_id
) AS overhead ON overhead.query_id = queries.query_id
LEFT JOIN (
  SELECT this.query_id, count(*) AS runs
  FROM sys.queries AS this
  JOIN sys.queries AS before ON before.fingerprint = this.fingerprint AND before.query_id < this.query_id
  WHERE this.query_id IN ($query_id, $other_id)
  GROUP BY this.query_id
) AS earlier ON earlier.query_id = queries.query_id
WHERE queries.query_id IN ($query_id, $other_id)
ORDER BY queries.query_id
