-- Partitions of an operator that worked at least twice as long, and a millisecond longer, than
-- the mean of its other partitions: because they had more rows, or because their rows were slower.
SELECT
  tasks.query_id, tasks.fragment_id, tasks.operator_id, operators.name, tasks.worker_id,
  tasks.partition, tasks.self_ns, CAST(round(tasks.others_ns) AS BIGINT) AS others_ns,
  tasks.self_ns - CAST(round(tasks.others_ns) AS BIGINT) AS excess_ns,
  tasks.rows_in, CAST(round(tasks.others_rows) AS BIGINT) AS others_rows,
  CASE WHEN tasks.rows_in >= 1.5 * tasks.others_rows THEN 'more rows' ELSE 'slower rows' END AS cause
FROM (
  SELECT
    query_id, fragment_id, operator_id, worker_id, partition, self_ns,
    greatest(rows_in, rows_out) AS rows_in,
    CAST(sum(self_ns) OVER siblings - self_ns AS DOUBLE)
      / nullif(count(*) OVER siblings - 1, 0) AS others_ns,
    CAST(sum(greatest(rows_in, rows_out)) OVER siblings - greatest(rows_in, rows_out) AS DOUBLE)
      / nullif(count(*) OVER siblings - 1, 0) AS others_rows
  FROM sys.operator_stats
  WINDOW siblings AS (PARTITION BY query_id, operator_id)
) AS tasks
JOIN sys.operators AS operators
  ON tasks.query_id = operators.query_id AND tasks.operator_id = operators.operator_id
WHERE tasks.self_ns >= 2 * tasks.others_ns AND tasks.self_ns - tasks.others_ns >= 1000000
