-- The query itself, what recording it cost, and the earlier run of the same statement.
-- $query_id BIGINT: the query
SELECT
  queries.query_id, queries.sql, queries.fingerprint, queries.status, queries.error, queries.profile_level,
  coalesce(overhead.sample_rate, queries.sample_rate) AS sample_rate, queries.lineage,
  CAST(queries.started_at AS VARCHAR) AS started_at, queries.user_name, queries.queued_ns, queries.planning_ns,
  queries.execution_ns, CAST(queries.first_row_at AS BIGINT) - CAST(queries.started_at AS BIGINT) AS first_row_ns,
  queries.rows_returned, queries.imported_from,
  coalesce(overhead.events_dropped, 0) AS events_dropped, overhead.given_up, overhead.time_ns AS overhead_ns,
  lost.workers AS lost_workers, sent.crossed_rows, sent.crossed_bytes,
  coalesce(queries.queued_ns, 0) + coalesce(queries.planning_ns, 0) AS execution_start_ns,
  greatest(
    coalesce(queries.queued_ns, 0) + coalesce(queries.planning_ns, 0) + coalesce(queries.execution_ns, 0),
    coalesce(work.last_ns - CAST(queries.started_at AS BIGINT), 0), 1) AS end_ns,
  (SELECT max(before.query_id)
   FROM sys.queries AS before
   WHERE before.query_id < $query_id
     AND before.fingerprint = (SELECT this.fingerprint FROM sys.queries AS this WHERE this.query_id = $query_id)
  ) AS previous_query_id
FROM sys.queries AS queries
CROSS JOIN (
  SELECT
    min(sample_rate) AS sample_rate, CAST(sum(events_dropped) AS BIGINT) AS events_dropped,
    CAST(sum(time_ns) AS BIGINT) AS time_ns, max(given_up) AS given_up
  FROM sys.profiler_overhead WHERE query_id = $query_id
) AS overhead
CROSS JOIN (
  SELECT string_agg(CAST(worker_id AS VARCHAR), ', ' ORDER BY worker_id) AS workers
  FROM sys.workers WHERE query_id = $query_id AND state = 'lost'
) AS lost
CROSS JOIN (
  SELECT
    CAST(sum(CASE WHEN source_worker <> destination_worker THEN tuples END) AS BIGINT) AS crossed_rows,
    CAST(sum(CASE WHEN source_worker <> destination_worker THEN bytes END) AS BIGINT) AS crossed_bytes
  FROM sys.tuples_sent WHERE query_id = $query_id
) AS sent
CROSS JOIN (
  SELECT max(CAST(last_call_at AS BIGINT)) AS last_ns FROM sys.operator_stats WHERE query_id = $query_id
) AS work
WHERE queries.query_id = $query_id
