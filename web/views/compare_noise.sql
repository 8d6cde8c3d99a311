-- How much a statement varies: of up to nine runs (those of compare_history at one level and with one plan), the median
-- and the median absolute deviation (MAD) of each operator's elapsed time (as in compare). The row −1 is execution,
-- −2 the part of it in which the longest tasks did not work, −3 planning.
-- $run_a BIGINT = 0: a run; 0 is none
-- $run_b BIGINT = 0: another run
-- $run_c BIGINT = 0: another run
-- $run_d BIGINT = 0: another run
-- $run_e BIGINT = 0: another run
-- $run_f BIGINT = 0: another run
-- $run_g BIGINT = 0: another run
-- $run_h BIGINT = 0: another run
-- $run_i BIGINT = 0: another run
WITH work AS (
  SELECT
    stats.query_id, stats.fragment_id, stats.operator_id, stats.worker_id, stats.partition, stats.self_ns,
    runs.execution_ns,
    sum(stats.self_ns) OVER (
      PARTITION BY stats.query_id, stats.fragment_id, stats.worker_id, stats.partition) AS task_ns
  FROM sys.operator_stats AS stats
  JOIN sys.queries AS runs ON runs.query_id = stats.query_id
  WHERE stats.query_id IN ($run_a, $run_b, $run_c, $run_d, $run_e, $run_f, $run_g, $run_h, $run_i)
    AND runs.query_id IN ($run_a, $run_b, $run_c, $run_d, $run_e, $run_f, $run_g, $run_h, $run_i)
),
ranked AS (
  SELECT
    work.*,
    dense_rank() OVER (PARTITION BY query_id, fragment_id ORDER BY task_ns DESC, worker_id, partition) AS place
  FROM work
),
longest AS (
  SELECT
    query_id, coalesce(operator_id, -2) AS part, max(execution_ns) AS execution_ns,
    CAST(sum(self_ns) AS DOUBLE) AS ns
  FROM ranked
  WHERE place = 1
  GROUP BY GROUPING SETS ((query_id, operator_id), (query_id))
),
parts AS (
  SELECT
    part,
    CASE WHEN part = -2 THEN greatest(execution_ns - ns, 0)
      ELSE ns * least(1, execution_ns / greatest(max(ns) OVER (PARTITION BY query_id), 1)) END AS ns
  FROM longest
),
centred AS (
  SELECT part, ns, median(ns) OVER (PARTITION BY part) AS middle
  FROM (
    SELECT part, ns FROM parts
    UNION ALL SELECT -1, CAST(execution_ns AS DOUBLE) FROM sys.queries
    WHERE query_id IN ($run_a, $run_b, $run_c, $run_d, $run_e, $run_f, $run_g, $run_h, $run_i)
    UNION ALL SELECT -3, CAST(planning_ns AS DOUBLE) FROM sys.queries
    WHERE query_id IN ($run_a, $run_b, $run_c, $run_d, $run_e, $run_f, $run_g, $run_h, $run_i)
  ) AS rows
)
SELECT
  part AS operator_id, count(*) AS runs, CAST(max(middle) AS DOUBLE) AS median_ns,
  CAST(median(abs(ns - middle)) AS DOUBLE) AS mad_ns
FROM centred
GROUP BY part
ORDER BY part
