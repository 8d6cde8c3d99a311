-- What each task (fragment, worker, partition) of two queries worked, and the most rows that one of
-- its operators handled.
SELECT
  coalesce(a.fragment_id, b.fragment_id) AS fragment_id,
  coalesce(a.worker_id, b.worker_id) AS worker_id,
  coalesce(a.partition, b.partition) AS partition,
  a.busy_ns AS before_ns, b.busy_ns AS after_ns, a.rows AS before_rows, b.rows AS after_rows
FROM (
  SELECT
    fragment_id, worker_id, partition, sum(self_ns) AS busy_ns,
    max(greatest(rows_in, rows_out)) AS rows
  FROM sys.operator_stats WHERE query_id = $before
  GROUP BY fragment_id, worker_id, partition
) AS a
FULL JOIN (
  SELECT
    fragment_id, worker_id, partition, sum(self_ns) AS busy_ns,
    max(greatest(rows_in, rows_out)) AS rows
  FROM sys.operator_stats WHERE query_id = $after
  GROUP BY fragment_id, worker_id, partition
) AS b
ON a.fragment_id = b.fragment_id AND a.worker_id = b.worker_id AND a.partition = b.partition
ORDER BY
  abs(coalesce(b.busy_ns, 0) - coalesce(a.busy_ns, 0)) DESC, fragment_id, worker_id, partition
LIMIT 20
