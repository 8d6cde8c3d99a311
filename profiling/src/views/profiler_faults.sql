-- What the profiler itself does to a query. `incomplete profile`: it dropped events for lack of memory, so that every
-- number is a lower bound. `costly profiling`: recording took at least a tenth of the operators' time, and that part
-- of the execution is its cost. At level `records` that is what the user asked for, and no reason to act.
WITH overhead AS (
  SELECT
    overhead.query_id, overhead.worker_id, overhead.events_dropped, tasks.wall_ns, queries.execution_ns,
    queries.profile_level, sum(overhead.time_ns) OVER queries AS time_ns,
    row_number() OVER (PARTITION BY overhead.query_id ORDER BY overhead.worker_id) AS place
  FROM sys.profiler_overhead AS overhead
  JOIN sys.queries AS queries ON overhead.query_id = queries.query_id
  LEFT JOIN (
    SELECT query_id, sum(wall_ns) AS wall_ns FROM sys.task_stats GROUP BY query_id
  ) AS tasks ON overhead.query_id = tasks.query_id
  WINDOW queries AS (PARTITION BY overhead.query_id)
),
found AS (
  SELECT
    *, execution_ns * least(CAST(time_ns AS DOUBLE) / nullif(wall_ns, 0), 1) AS cost_ns,
    CAST(time_ns AS DOUBLE) / nullif(wall_ns, 0) AS share, unnest([TRUE, FALSE]) AS is_dropped
  FROM overhead
)
SELECT
  query_id, CASE WHEN is_dropped THEN 'incomplete profile' ELSE 'costly profiling' END AS detector,
  CASE WHEN is_dropped THEN 'worker ' || worker_id ELSE 'the profiler' END AS subject,
  CASE
    WHEN is_dropped THEN events_dropped || ' events were dropped since the profiler''s memory was full.'
    ELSE
      'Recording took ' || CAST(round(100 * share) AS BIGINT) || ' % of the operators'' time at level '
        || profile_level || ': about ' || CAST(round(cost_ns / 1000000.0) AS BIGINT) || ' ms of the query.'
  END AS cause,
  CASE
    WHEN is_dropped THEN 'Lower profile.sample_rate, or take every number about this query as a lower bound.'
    ELSE 'Lower profile.level, or profile.sample_rate.'
  END AS advice,
  CAST(NULL AS BIGINT) AS fragment_id, CAST(NULL AS BIGINT) AS operator_id,
  CASE WHEN is_dropped THEN worker_id END AS worker_id, CAST(NULL AS BIGINT) AS partition,
  CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id,
  CASE WHEN NOT is_dropped THEN CAST(cost_ns AS BIGINT) END AS cost_ns,
  CASE WHEN is_dropped THEN CAST(events_dropped AS DOUBLE) ELSE share END AS score,
  CASE WHEN is_dropped THEN 0.0 ELSE 0.1 END AS threshold, CAST(NULL AS DOUBLE) AS confidence,
  NOT is_dropped AND profile_level = 'records' AS innocent,
  'SELECT * FROM sys.profiler_overhead WHERE query_id = ' || query_id AS evidence_sql
FROM found
WHERE is_dropped AND events_dropped > 0
  OR NOT is_dropped AND place = 1 AND share >= 0.1 AND cost_ns >= 10000000
