-- Findings about a query as a whole: the rows of sys.waiting_statements, sys.profiler_faults and sys.not_distributed
-- together, which one pass over sys.queries makes.
WITH rated AS (
  SELECT
    queries.query_id, queries.execution_ns, queries.profile_level, kinds.rule, overhead.events_dropped,
    overhead.dropping_worker, overhead.time_ns, work.work_ns, work.most_ns, work.worker_id, work.wall_ns,
    members.workers,
    coalesce(queries.queued_ns, 0) + coalesce(queries.planning_ns, 0) + coalesce(queries.execution_ns, 0)
      AS elapsed_ns,
    CAST(CASE kinds.rule
      WHEN 'queued statement' THEN queries.queued_ns
      WHEN 'slow planning' THEN queries.planning_ns
      WHEN 'costly profiling' THEN
        queries.execution_ns * least(CAST(overhead.time_ns AS DOUBLE) / greatest(work.wall_ns, 1), 1)
      WHEN 'not distributed' THEN least(work.most_ns, queries.execution_ns) * (1 - 1.0 / greatest(members.workers, 1))
    END AS BIGINT) AS cost_ns,
    queries.imported_from, queries.tables_read
  FROM sys.queries AS queries
  LEFT JOIN (
    SELECT
      query_id, sum(events_dropped) AS events_dropped, sum(time_ns) AS time_ns,
      first_value(worker_id ORDER BY events_dropped DESC, worker_id) AS dropping_worker
    FROM sys.profiler_overhead
    GROUP BY query_id
  ) AS overhead ON queries.query_id = overhead.query_id
  LEFT JOIN (
    SELECT
      query_id, sum(work_ns) AS work_ns, max(work_ns) AS most_ns, sum(wall_ns) AS wall_ns,
      first_value(worker_id ORDER BY work_ns DESC, worker_id) AS worker_id
    FROM (
      SELECT query_id, worker_id, sum(coalesce(cpu_ns, wall_ns)) AS work_ns, sum(wall_ns) AS wall_ns
      FROM sys.task_stats
      GROUP BY query_id, worker_id
    ) AS workers
    GROUP BY query_id
  ) AS work ON queries.query_id = work.query_id
  CROSS JOIN (
    -- The cluster as it is now.
    SELECT count(*) AS workers FROM sys.workers WHERE query_id IS NULL AND state = 'alive' AND worker_id > 0
  ) AS members
  CROSS JOIN (
    VALUES
      ('queued statement'), ('slow planning'), ('costly profiling'), ('incomplete profile'), ('not distributed')
  ) AS kinds (rule)
)
SELECT
  query_id, rule AS detector,
  CASE rule
    WHEN 'incomplete profile' THEN concat('worker ', dropping_worker)
    WHEN 'costly profiling' THEN 'the profiler'
    ELSE 'the query'
  END AS subject,
  CASE rule
    WHEN 'queued statement' THEN concat(
      'The statement waited ', cost_ns / 1000000, ' ms of ',
      elapsed_ns / 1000000, ' ms for other statements.')
    WHEN 'slow planning' THEN concat(
      'Planning took ', cost_ns / 1000000, ' ms of ', elapsed_ns / 1000000, ' ms.')
    WHEN 'costly profiling' THEN concat(
      'Recording took ', CAST(round(100.0 * time_ns / greatest(wall_ns, 1)) AS BIGINT),
      ' % of the operators'' time at level ', profile_level, ': about ', cost_ns / 1000000,
      ' ms of the query.')
    WHEN 'incomplete profile' THEN
      concat(events_dropped, ' events were dropped since the profiler''s memory was full.')
    ELSE concat(
      CASE WHEN worker_id = 0 THEN 'The master' ELSE concat('Worker ', worker_id) END, ' did ',
      CAST(round(100.0 * most_ns / greatest(work_ns, 1)) AS BIGINT), ' % of the work, ',
      most_ns / 1000000, ' ms, while other nodes of a cluster of ', workers,
      ' workers idled.')
  END AS cause,
  CASE rule
    WHEN 'queued statement' THEN
      'Run fewer statements at once, or let more run if processors idle: SET max_running_queries.'
    WHEN 'slow planning' THEN
      'Prepare the statement once, or join fewer tables. (Functions of constants are computed while planning.)'
    WHEN 'costly profiling' THEN 'Lower profile.level, or profile.sample_rate.'
    WHEN 'incomplete profile' THEN
      'Lower profile.sample_rate, or take every number about this query as a lower bound.'
    ELSE CASE
      WHEN worker_id = 0 THEN
        'Look at the plan: recursive queries, files read in place and functions of a session run on the master alone.'
      ELSE 'Look where the rows are, SELECT * FROM sys.cluster, and distribute them: REBALANCE.'
    END
  END AS advice,
  CAST(NULL AS BIGINT) AS fragment_id, CAST(NULL AS BIGINT) AS operator_id,
  CASE rule WHEN 'incomplete profile' THEN dropping_worker WHEN 'not distributed' THEN worker_id END AS worker_id,
  CAST(NULL AS BIGINT) AS partition, CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name,
  CAST(NULL AS BIGINT) AS row_id, cost_ns,
  CASE rule
    WHEN 'incomplete profile' THEN CAST(events_dropped AS DOUBLE)
    WHEN 'costly profiling' THEN CAST(time_ns AS DOUBLE) / greatest(wall_ns, 1)
    WHEN 'not distributed' THEN CAST(most_ns AS DOUBLE) / greatest(work_ns, 1)
    ELSE CAST(cost_ns AS DOUBLE) / greatest(elapsed_ns, 1)
  END AS score,
  CASE rule
    WHEN 'incomplete profile' THEN 0.0 WHEN 'costly profiling' THEN 0.1 WHEN 'not distributed' THEN 0.95
    WHEN 'slow planning' THEN 0.2 ELSE 0.05
  END AS threshold,
  CAST(NULL AS DOUBLE) AS confidence, rule = 'costly profiling' AND profile_level = 'records' AS innocent,
  concat(
    CASE rule
      WHEN 'not distributed' THEN 'SELECT worker_id, partition, cpu_ns, wall_ns FROM sys.task_stats'
      WHEN 'queued statement' THEN 'SELECT queued_ns, planning_ns, execution_ns FROM sys.queries'
      WHEN 'slow planning' THEN 'SELECT planning_ns, execution_ns FROM sys.queries'
      ELSE 'SELECT * FROM sys.profiler_overhead'
    END, ' WHERE query_id = ', query_id) AS evidence_sql
FROM rated
WHERE CASE rule
  WHEN 'queued statement' THEN cost_ns >= 10000000 AND cost_ns >= 0.05 * elapsed_ns
  WHEN 'slow planning' THEN cost_ns >= 20000000 AND cost_ns >= 0.2 * elapsed_ns
  WHEN 'costly profiling' THEN cost_ns >= 10000000 AND time_ns >= 0.1 * wall_ns
  WHEN 'incomplete profile' THEN events_dropped > 0
  ELSE
    workers >= 2 AND imported_from IS NULL AND tables_read LIKE '[{%' AND most_ns >= 100000000
      AND most_ns >= 0.95 * work_ns AND most_ns >= 0.5 * execution_ns
END
