-- Tasks: each partition of each fragment, when it began and ended, and what it did between. Its calls took work_ns:
-- on a processor (cpu_ns), waiting for one (ready_ns), throttled by the quota of its cgroup (throttled_ns), or blocked
-- by a disk, a lock or a page (blocked_ns). off_ns is the time without a processor where its reason is not known.
-- Waiting for the output is that of the fragment's last operator, waiting for the input is at most what remains.
-- $query_id BIGINT: the query
SELECT
  fragment_id, worker_id, partition, first_ns, last_ns, work_ns, cpu_ns,
  runqueue_ns - throttled_ns AS ready_ns, throttled_ns, without_ns - runqueue_ns AS blocked_ns,
  CASE WHEN runqueue_ns IS NULL THEN without_ns END AS off_ns, involuntary_switches, output_wait_ns,
  greatest(least(input_wait_ns, last_ns - first_ns - work_ns - output_wait_ns), 0) AS input_wait_ns,
  rows_out, calls, clock_error_ns
FROM (
  SELECT
    tasks.*, stats.cpu_ns, stats.involuntary_switches, stats.without_ns,
    CASE WHEN stats.runqueue_ns IS NOT NULL THEN least(stats.runqueue_ns, stats.without_ns) END AS runqueue_ns,
    CASE
      WHEN stats.runqueue_ns IS NOT NULL
        THEN least(coalesce(stats.throttled_ns, 0), stats.runqueue_ns, stats.without_ns)
    END AS throttled_ns
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
    SELECT *, CASE WHEN cpu_ns IS NOT NULL THEN greatest(wall_ns - cpu_ns, 0) END AS without_ns
    FROM sys.task_stats
    WHERE query_id = $query_id
  ) AS stats
    ON stats.fragment_id = tasks.fragment_id AND stats.worker_id = tasks.worker_id
      AND stats.partition = tasks.partition
) AS parts
ORDER BY fragment_id, last_ns DESC
