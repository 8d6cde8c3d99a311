-- The query, how it ended, how long it took, and how much of it was recorded.
SELECT
  queries.query_id, queries.sql, queries.status, queries.error,
  queries.profile_level, queries.lineage, coalesce(overhead.sample_rate, queries.sample_rate) AS sample_rate,
  queries.planning_ns, queries.execution_ns, queries.rows_returned,
  coalesce(work.busy_ns, 0) AS busy_ns, tasks.cpu_ns, tasks.runqueue_ns, coalesce(overhead.time_ns, 0) AS recording_ns,
  coalesce(overhead.events_dropped, 0) AS events_dropped,
  overhead.given_up,
  lost.workers AS lost_workers, coalesce(elsewhere.workers, 0) AS workers_elsewhere,
  queries.imported_from, queries.tables_read, queries.quarantines
FROM sys.queries AS queries
LEFT JOIN (
  SELECT query_id, sum(self_ns) AS busy_ns
  FROM sys.operator_stats WHERE query_id = $query_id GROUP BY query_id
) AS work ON queries.query_id = work.query_id
LEFT JOIN (
  SELECT query_id, sum(cpu_ns) AS cpu_ns, sum(runqueue_ns) AS runqueue_ns
  FROM sys.task_stats WHERE query_id = $query_id GROUP BY query_id
) AS tasks ON queries.query_id = tasks.query_id
LEFT JOIN (
  SELECT query_id, sum(time_ns) AS time_ns, sum(events_dropped) AS events_dropped,
    min(sample_rate) AS sample_rate, max(given_up) AS given_up
  FROM sys.profiler_overhead WHERE query_id = $query_id GROUP BY query_id
) AS overhead ON queries.query_id = overhead.query_id
LEFT JOIN (
  SELECT
    workers.query_id,
    string_agg(CAST(workers.worker_id AS VARCHAR), ', ' ORDER BY workers.worker_id) AS workers
  FROM sys.workers AS workers
  LEFT JOIN (
    SELECT worker_id, state FROM sys.workers WHERE query_id IS NULL
  ) AS now ON workers.worker_id = now.worker_id
  WHERE workers.query_id = $query_id AND (workers.state = 'lost' OR now.state = 'lost')
  GROUP BY workers.query_id
) AS lost ON queries.query_id = lost.query_id
LEFT JOIN (
  SELECT query_id, count(*) AS workers
  FROM sys.workers WHERE query_id = $query_id AND address <> 'in process' GROUP BY query_id
) AS elsewhere ON queries.query_id = elsewhere.query_id
WHERE queries.query_id = $query_id
