-- How far each worker differs from the others over the newest queries: the median of its ratios to the median of the
-- workers, and z, how far the ln of that is from 0: in scaled median absolute deviations of all ratios (of at least
-- 0.1), times the square root of the number of queries.
-- $queries BIGINT = 30: the newest so many queries
WITH parts AS (
  SELECT
    query_id, worker_id, CAST(sum(self_ns) AS DOUBLE) AS self_ns,
    CAST(sum(greatest(rows_in, rows_out)) AS DOUBLE) AS rows
  FROM sys.operator_stats
  WHERE query_id > (SELECT max(query_id) - $queries FROM sys.queries) AND worker_id > 0
  GROUP BY query_id, worker_id
),
middle AS (
  SELECT
    query_id, sum(self_ns) AS all_ns, median(self_ns) AS self_ns, median(rows) AS rows,
    median(self_ns / greatest(rows, 1)) AS row_ns
  FROM parts
  GROUP BY query_id
  HAVING count(*) > 1 AND sum(self_ns) >= 1000000
),
ratios AS (
  SELECT
    parts.worker_id, parts.self_ns, middle.all_ns, ln(greatest(parts.self_ns, 1) / greatest(middle.self_ns, 1)) AS work,
    ln(greatest(parts.rows, 1) / greatest(middle.rows, 1)) AS rows,
    ln(greatest(parts.self_ns, 1) / greatest(parts.rows, 1) / greatest(middle.row_ns, 0.001)) AS row_time
  FROM parts
  JOIN middle ON middle.query_id = parts.query_id
),
spread AS (
  SELECT
    greatest(1.4826 * median(abs(work)), 0.1) AS work, greatest(1.4826 * median(abs(rows)), 0.1) AS rows,
    greatest(1.4826 * median(abs(row_time)), 0.1) AS row_time
  FROM ratios
)
SELECT
  ratios.worker_id, count(*) AS queries, CAST(sum(ratios.self_ns) AS BIGINT) AS self_ns,
  sum(ratios.self_ns) / sum(ratios.all_ns) AS share, exp(median(ratios.work)) AS work_ratio,
  exp(median(ratios.rows)) AS rows_ratio, exp(median(ratios.row_time)) AS row_time_ratio,
  median(ratios.work) / max(spread.work) * sqrt(count(*)) AS work_z,
  median(ratios.rows) / max(spread.rows) * sqrt(count(*)) AS rows_z,
  median(ratios.row_time) / max(spread.row_time) * sqrt(count(*)) AS row_time_z
FROM ratios
CROSS JOIN spread
GROUP BY ratios.worker_id
ORDER BY ratios.worker_id
