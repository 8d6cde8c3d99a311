-- How each worker's part of the newest queries compares with the median of the workers: time at work, rows taken in,
-- and time per row. Only queries of several workers that worked a millisecond or more.
-- $queries BIGINT = 30: the newest so many queries
WITH parts AS (
  SELECT
    query_id, worker_id, CAST(sum(self_ns) AS DOUBLE) AS self_ns,
    CAST(sum(greatest(rows_in, rows_out)) AS DOUBLE) AS rows
  FROM sys.operator_stats
  WHERE query_id > (SELECT max(query_id) - $queries FROM sys.queries)
  GROUP BY query_id, worker_id
),
middle AS (
  SELECT
    query_id, sum(self_ns) AS all_ns, median(self_ns) AS self_ns, median(rows) AS rows,
    median(self_ns / greatest(rows, 1)) AS row_ns
  FROM parts
  WHERE worker_id > 0
  GROUP BY query_id
  HAVING count(*) > 1 AND sum(self_ns) >= 1000000
)
SELECT
  parts.query_id, parts.worker_id, CAST(parts.self_ns AS BIGINT) AS self_ns, CAST(parts.rows AS BIGINT) AS rows,
  parts.self_ns / middle.all_ns AS share, parts.self_ns / greatest(middle.self_ns, 1) AS work_ratio,
  parts.rows / greatest(middle.rows, 1) AS rows_ratio,
  parts.self_ns / greatest(parts.rows, 1) / greatest(middle.row_ns, 0.001) AS row_time_ratio
FROM parts
JOIN middle ON middle.query_id = parts.query_id
WHERE parts.worker_id > 0
ORDER BY parts.query_id, parts.worker_id
