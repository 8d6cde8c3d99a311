-- The operators of two runs. A query takes about as long as the longest tasks of its fragments together. elapsed_ns is
-- an operator's time in the longest task of its fragment. Fragments may run at the same time. If their longest tasks
-- add up to more than the execution time, all elapsed_ns are scaled down to it.
-- $query_id BIGINT: the query
-- $other_id BIGINT: the query that it is compared with
WITH longest AS (
  SELECT query_id, fragment_id, worker_id, partition, self_ns
  FROM (
    SELECT
      query_id, fragment_id, worker_id, partition, sum(self_ns) AS self_ns,
      row_number() OVER (
        PARTITION BY query_id, fragment_id ORDER BY sum(self_ns) DESC, worker_id, partition) AS place
    FROM sys.operator_stats
    WHERE query_id IN ($query_id, $other_id)
    GROUP BY query_id, fragment_id, worker_id, partition
  ) AS tasks
  WHERE place = 1
),
scale AS (
  SELECT
    queries.query_id,
    least(1.0, CAST(max(queries.execution_ns) AS DOUBLE) / greatest(sum(longest.self_ns), 1)) AS factor
  FROM sys.queries AS queries JOIN longest ON longest.query_id = queries.query_id
  WHERE queries.query_id IN ($query_id, $other_id)
  GROUP BY queries.query_id
),
stats AS (
  SELECT
    work.query_id, work.operator_id, sum(work.rows_in) AS rows_in, sum(work.rows_out) AS rows_out,
    sum(work.self_ns) AS self_ns, count(*) AS tasks, sum(work.spilled_bytes) AS spilled_bytes,
    sum(CASE WHEN longest.query_id IS NOT NULL THEN work.self_ns ELSE 0 END) AS longest_ns
  FROM sys.operator_stats AS work
  LEFT JOIN longest
    ON longest.query_id = work.query_id AND longest.fragment_id = work.fragment_id
    AND longest.worker_id = work.worker_id AND longest.partition = work.partition
  WHERE work.query_id IN ($query_id, $other_id)
  GROUP BY work.query_id, work.operator_id
)
SELECT
  operators.query_id, operators.operator_id, operators.parent_operator_id, operators.fragment_id, operators.name,
  operators.kind, operators.is_internal, operators.details, operators.table_name,
  CAST(greatest(coalesce(stats.rows_in, 0), coalesce(stats.rows_out, 0)) AS BIGINT) AS rows,
  CAST(coalesce(stats.rows_in, 0) AS BIGINT) AS rows_in, CAST(coalesce(stats.rows_out, 0) AS BIGINT) AS rows_out,
  CAST(coalesce(stats.self_ns, 0) AS BIGINT) AS self_ns,
  CAST(round(coalesce(stats.longest_ns, 0) * scale.factor) AS BIGINT) AS elapsed_ns,
  coalesce(stats.tasks, 0) AS tasks, CAST(coalesce(stats.spilled_bytes, 0) AS BIGINT) AS spilled_bytes
FROM sys.operators AS operators
LEFT JOIN stats ON stats.query_id = operators.query_id AND stats.operator_id = operators.operator_id
LEFT JOIN scale ON scale.query_id = operators.query_id
WHERE operators.query_id IN ($query_id, $other_id)
ORDER BY operators.query_id, operators.operator_id
