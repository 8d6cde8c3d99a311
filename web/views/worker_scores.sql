-- How far each worker differs from the others over the newest queries: the median of its ratios to the median of the
-- workers, and z, how far the ln of that is from 0, in standard errors: 1.25 scaled median absolute deviations of the
-- worker's own ratios (of at least 0.1), divided by the square root of the number of queries.
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
typical AS (
  SELECT
    *, median(work) OVER (PARTITION BY worker_id) AS typical_work,
    median(rows) OVER (PARTITION BY worker_id) AS typical_rows,
    median(row_time) OVER (PARTITION BY worker_id) AS typical_row_time
  FROM ratios
),
scores AS (
  SELECT
    worker_id, count(*) AS queries, CAST(sum(self_ns) AS BIGINT) AS self_ns, sum(self_ns) / sum(all_ns) AS share,
    max(typical_work) AS work, max(typical_rows) AS rows, max(typical_row_time) AS row_time,
    1.2533 * greatest(1.4826 * median(abs(work - typical_work)), 0.1) / sqrt(count(*)) AS work_error,
    1.2533 * greatest(1.4826 * median(abs(rows - typical_rows)), 0.1) / sqrt(count(*)) AS rows_error,
    1.2533 * greatest(1.4826 * median(abs(row_time - typical_row_time)), 0.1) / sqrt(count(*)) AS row_time_error
  FROM typical
  GROUP BY worker_id
)
SELECT
  worker_id, queries, self_ns, share, exp(work) AS work_ratio, exp(rows) AS rows_ratio, exp(row_time) AS row_time_ratio,
  work / work_error AS work_z, rows / rows_error AS rows_z, row_time / row_time_error AS row_time_z
FROM scores
ORDER BY worker_id
