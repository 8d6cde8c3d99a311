-- HybridTune's algorithm 1 for uneven task assignment as published (Ren et al., 2017), kept for comparison: a fragment
-- is uneven if the numbers of tasks of its workers differ from their mean by more than 0.1 * mean * workers together,
-- without tasks shorter than a hundredth of the median; a query if more than 60 % of its fragments are.
SELECT
  query_id, 'hybridtune task assignment' AS detector, 'the query' AS subject,
  concat(sum(is_uneven), ' of ', count(*), ' fragments have uneven numbers of tasks.') AS cause,
  'Compare it with sys.task_assignment.' AS advice, CAST(NULL AS BIGINT) AS fragment_id,
  CAST(NULL AS BIGINT) AS operator_id, CAST(NULL AS BIGINT) AS worker_id, CAST(NULL AS BIGINT) AS partition,
  CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id,
  CAST(NULL AS BIGINT) AS cost_ns, sum(is_uneven) / CAST(count(*) AS DOUBLE) AS score, 0.6 AS threshold,
  CAST(NULL AS DOUBLE) AS confidence, false AS innocent,
  concat('SELECT fragment_id, worker_id, count(*) AS tasks FROM sys.task_stats WHERE query_id = ', query_id,
    ' GROUP BY fragment_id, worker_id') AS evidence_sql
FROM (
  SELECT
    query_id, fragment_id, CASE WHEN sum(abs(tasks - mean)) > 0.1 * max(mean) * count(*) THEN 1 ELSE 0 END AS is_uneven
  FROM (
    SELECT query_id, fragment_id, tasks, avg(CAST(tasks AS DOUBLE)) OVER (PARTITION BY query_id, fragment_id) AS mean
    FROM (
      SELECT query_id, fragment_id, worker_id, count(*) AS tasks
      FROM (
        SELECT
          query_id, fragment_id, worker_id, wall_ns,
          median(CAST(wall_ns AS DOUBLE)) OVER (PARTITION BY query_id, fragment_id) AS usual_ns
        FROM sys.task_stats
      ) AS tasks
      WHERE wall_ns >= 0.01 * usual_ns
      GROUP BY query_id, fragment_id, worker_id
    ) AS counts
  ) AS means
  GROUP BY query_id, fragment_id
) AS fragments
GROUP BY query_id
HAVING sum(is_uneven) > 0.6 * count(*)
