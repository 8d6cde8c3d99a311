-- Tasks: each partition of each fragment, when it began and ended, and what it did between. Work and waiting for the
-- output are those of the fragment's last operator, waiting for the input is at most what remains. off_ns is the part of
-- the work in which no processor worked on it: it waited for one, or for a disk.
-- $query_id BIGINT: the query
SELECT
  tasks.fragment_id, tasks.worker_id, tasks.partition, first_ns, last_ns, work_ns, output_wait_ns,
  least(greatest(on_processor.wall_ns - on_processor.cpu_ns, 0), work_ns) AS off_ns,
  on_processor.involuntary_switches,
  greatest(least(input_wait_ns, last_ns - first_ns - work_ns - output_wait_ns), 0) AS input_wait_ns,
  rows_out, calls, clock_error_ns
FROM (
  SELECT
    stats.fragment_id, stats.worker_id, stats.partition,
    min(CAST(stats.first_call_at AS BIGINT) - CAST(queries.started_at AS BIGINT)) AS first_ns,
    max(CAST(stats.last_call_at AS BIGINT) - CAST(queries.started_at AS BIGINT)) AS last_ns,
    CAST(sum(stats.self_ns) AS BIGINT) AS work_ns, CAST(sum(stats.calls) AS BIGINT) AS calls,
    max(CASE WHEN roots.operator_id IS NOT NULL THEN stats.output_wait_ns END) AS output_wait_ns,
    max(CASE WHEN roots.operator_id IS NOT NULL THEN stats.input_wait_ns END) AS input_wait_ns,
    max(CASE WHEN roots.operator_id IS NOT NULL THEN stats.rows_out END) AS rows_out,
    max(workers.clock_error_ns) AS clock_error_ns
  FROM sys.operator_stats AS stats
  JOIN sys.queries AS queries ON queries.query_id = stats.query_id
  LEFT JOIN (
    SELECT operators.operator_id
    FROM sys.operators AS operators
    LEFT JOIN sys.operators AS parents
      ON parents.query_id = $query_id AND parents.operator_id = operators.parent_operator_id
    WHERE operators.query_id = $query_id AND operators.fragment_id IS DISTINCT FROM parents.fragment_id
  ) AS roots ON roots.operator_id = stats.operator_id
  LEFT JOIN sys.workers AS workers ON workers.query_id = $query_id AND workers.worker_id = stats.worker_id
  WHERE stats.query_id = $query_id AND queries.query_id = $query_id AND stats.first_call_at IS NOT NULL
  GROUP BY stats.fragment_id, stats.worker_id, stats.partition
) AS tasks
LEFT JOIN (
  SELECT * FROM sys.task_stats WHERE query_id = $query_id
) AS on_processor
  ON on_processor.fragment_id = tasks.fragment_id AND on_processor.worker_id = tasks.worker_id
    AND on_processor.partition = tasks.partition
ORDER BY tasks.fragment_id, last_ns DESC
