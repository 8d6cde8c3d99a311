-- The tasks of queries: partitions of fragments, with the rows that the fragment's last operator returned there.
-- $query_ids BIGINTS: the queries
SELECT
  tasks.query_id, tasks.fragment_id, fragments.parent_fragment_id, tasks.worker_id, tasks.partition,
  CAST(tasks.started_at AS BIGINT) AS started_ns, CAST(tasks.ended_at AS BIGINT) AS ended_ns, tasks.wall_ns,
  tasks.cpu_ns, returned.rows
FROM sys.task_stats AS tasks
JOIN sys.fragments AS fragments
  ON fragments.query_id = tasks.query_id AND fragments.fragment_id = tasks.fragment_id
LEFT JOIN (
  SELECT
    stats.query_id, operators.fragment_id, stats.worker_id, stats.partition, CAST(sum(stats.rows_out) AS BIGINT) AS rows
  FROM sys.operator_stats AS stats
  JOIN sys.operators AS operators
    ON operators.query_id = stats.query_id AND operators.operator_id = stats.operator_id
  LEFT JOIN sys.operators AS parents
    ON parents.query_id IN ($query_ids) AND parents.query_id = operators.query_id
      AND parents.operator_id = operators.parent_operator_id
  WHERE stats.query_id IN ($query_ids) AND operators.query_id IN ($query_ids)
    AND operators.fragment_id IS DISTINCT FROM parents.fragment_id
  GROUP BY stats.query_id, operators.fragment_id, stats.worker_id, stats.partition
) AS returned
  ON returned.query_id = tasks.query_id AND returned.fragment_id = tasks.fragment_id
    AND returned.worker_id = tasks.worker_id AND returned.partition = tasks.partition
WHERE tasks.query_id IN ($query_ids) AND fragments.query_id IN ($query_ids)
ORDER BY tasks.query_id, tasks.fragment_id, tasks.worker_id, tasks.partition
