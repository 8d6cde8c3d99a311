-- Time before a statement ran. `queued statement`: it waited for admission, at least 10 ms and 5 % of its time.
-- `slow planning`: planning took at least 100 ms, and longer than execution. The cost is that time. All levels.
SELECT
  query_id, detector, 'the query' AS subject,
  CASE
    WHEN detector = 'slow planning' THEN
      'Planning took ' || CAST(round(cost_ns / 1000000.0) AS BIGINT) || ' ms, longer than execution with '
        || CAST(round(execution_ns / 1000000.0) AS BIGINT) || ' ms.'
    ELSE
      'The statement waited ' || CAST(round(cost_ns / 1000000.0) AS BIGINT) || ' ms of '
        || CAST(round(elapsed_ns / 1000000.0) AS BIGINT) || ' ms for other statements.'
  END AS cause,
  CASE
    WHEN detector = 'slow planning' THEN
      'Prepare the statement once, or join fewer tables. (Functions of constants are computed while planning.)'
    ELSE 'Run fewer statements at once, or let more run if processors idle: SET max_running_queries.'
  END AS advice,
  CAST(NULL AS BIGINT) AS fragment_id, CAST(NULL AS BIGINT) AS operator_id, CAST(NULL AS BIGINT) AS worker_id,
  CAST(NULL AS BIGINT) AS partition, CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name,
  CAST(NULL AS BIGINT) AS row_id, cost_ns, CAST(cost_ns AS DOUBLE) / elapsed_ns AS score,
  CASE WHEN detector = 'slow planning' THEN 0.5 ELSE 0.05 END AS threshold, CAST(NULL AS DOUBLE) AS confidence,
  FALSE AS innocent,
  'SELECT queued_ns, planning_ns, execution_ns FROM sys.queries WHERE query_id = ' || query_id AS evidence_sql
FROM (
  SELECT
    query_id, execution_ns,
    coalesce(queued_ns, 0) + coalesce(planning_ns, 0) + coalesce(execution_ns, 0) AS elapsed_ns,
    unnest([queued_ns, planning_ns]) AS cost_ns, unnest(['queued statement', 'slow planning']) AS detector
  FROM sys.queries
) AS parts
WHERE detector = 'slow planning' AND cost_ns >= 100000000 AND cost_ns > execution_ns
  OR detector = 'queued statement' AND cost_ns >= 10000000 AND cost_ns >= 0.05 * elapsed_ns
