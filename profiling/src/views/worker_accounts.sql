-- Where the time of each worker's tasks went in a query, and what each wait costs. `queued_ns` is what tasks waited for
-- a processor without being throttled, `blocked_ns` what they waited for by themselves. `usual_ns` is what the other
-- workers would have taken for the same rows; NULL without other workers. `excess_ns` is what the worker's tasks took
-- beyond it, and the sum of `slower_rows_ns` (processor time) and the three entries after it. `slow_share` is the share
-- of the worker's time in fragments in which it took at least 1.3 times as long as the others for a row. `score` is the
-- excess in standard deviations, which the tasks within workers tell. Columns that end with `_gates_ns` say what the
-- query would be faster without the wait, were the start of each fragment the same: `slow_gates_ns` without the excess,
-- the others without this worker's wait. Those that begin with `all_` say so of all workers together; each fragment's
-- is with the worker that ended last. Then follow readings of the process and its machine: means over the query. Level
-- `counters` and above.
SELECT
  totals.query_id, totals.worker_id, coalesce(queries.queued_ns,
  0) + queries.planning_ns + queries.execution_ns AS elapsed_ns,
  queries.execution_ns, totals.fragments, totals.tasks, totals.workers, totals.wall_ns, totals.cpu_ns, totals.queued_ns,
  totals.throttled_ns, totals.blocked_ns, totals.usual_ns, totals.excess_ns, totals.slower_rows_ns,
  totals.more_throttled_ns, totals.more_queued_ns, totals.more_blocked_ns, totals.slow_share, totals.score,
  totals.slow_gates_ns, totals.throttled_gates_ns, totals.queued_gates_ns, totals.blocked_gates_ns,
  totals.all_throttled_ns, totals.all_queued_ns, totals.all_blocked_ns,
  hosts.cpu_share, hosts.effective_cores, hosts.machine_cores, hosts.foreign_cpu_share, hosts.steal_share,
  hosts.throttled_share, hosts.psi_cpu_share, hosts.psi_io_share, hosts.psi_memory_share,
  hosts.read_bytes_per_second, hosts.written_bytes_per_second, hosts.major_faults_per_second,
  hosts.rss_bytes, hosts.memory_limit_bytes
FROM (
  SELECT
    query_id, worker_id, count(*) AS fragments, sum(tasks) AS tasks, max(workers) AS workers, sum(wall_ns) AS wall_ns,
    sum(cpu_ns) AS cpu_ns, sum(queued_ns) AS queued_ns, sum(throttled_ns) AS throttled_ns,
    sum(blocked_ns) AS blocked_ns, sum(wall_ns - excess_ns) AS usual_ns, sum(excess_ns) AS excess_ns,
    sum(slower_rows_ns) AS slower_rows_ns, sum(more_throttled_ns) AS more_throttled_ns,
    sum(more_queued_ns) AS more_queued_ns, sum(more_blocked_ns) AS more_blocked_ns,
    sum(CASE WHEN excess_ns >= 0.23 * wall_ns THEN wall_ns ELSE 0 END) / CAST(greatest(sum(wall_ns), 1) AS DOUBLE)
      AS slow_share,
    ln(greatest(sum(wall_ns) / greatest(sum(wall_ns - excess_ns), 1), 1))
      / greatest(0.05, coalesce(avg(spread), 0.25) * sqrt(1.5 / avg(tasks))) AS score,
    sum(CASE WHEN ended = last THEN least(ended - other_last, longest_ns * excess_ns / greatest(wall_ns, 1)) END)
      AS slow_gates_ns,
    sum(CASE WHEN ended = last THEN least(ended - other_last, ended - without_throttling) END) AS throttled_gates_ns,
    sum(CASE WHEN ended = last THEN least(ended - other_last, ended - without_queue) END) AS queued_gates_ns,
    sum(CASE WHEN ended = last THEN least(ended - other_last, ended - without_blocks) END) AS blocked_gates_ns,
    sum(CASE WHEN ended = last THEN ended - all_without_throttling END) AS all_throttled_ns,
    sum(CASE WHEN ended = last THEN ended - all_without_queue END) AS all_queued_ns,
    sum(CASE WHEN ended = last THEN ended - all_without_blocks END) AS all_blocked_ns
  FROM (
    SELECT
      *,
      -- What is beyond the rows' usual time, by how the other workers spent it.
      wall_ns - share * (all_wall_ns - wall_ns) AS excess_ns,
      cpu_ns - share * (all_cpu_ns - cpu_ns) AS slower_rows_ns,
      throttled_ns - share * (all_throttled_ns - throttled_ns) AS more_throttled_ns,
      queued_ns - share * (all_queued_ns - queued_ns) AS more_queued_ns,
      blocked_ns - share * (all_blocked_ns - blocked_ns) AS more_blocked_ns,
      CASE WHEN ended = last THEN coalesce(second_last, first_start) ELSE last END AS other_last
    FROM (
      SELECT
        *, count(*) OVER fragment AS workers, max(ended) OVER fragment AS last,
        min(started) OVER fragment AS first_start,
        max(without_throttling) OVER fragment AS all_without_throttling,
        max(without_queue) OVER fragment AS all_without_queue,
        max(without_blocks) OVER fragment AS all_without_blocks,
        sum(wall_ns) OVER fragment AS all_wall_ns, sum(cpu_ns) OVER fragment AS all_cpu_ns,
        sum(throttled_ns) OVER fragment AS all_throttled_ns, sum(queued_ns) OVER fragment AS all_queued_ns,
        sum(blocked_ns) OVER fragment AS all_blocked_ns,
        nth_value(ended, 2) OVER (
          PARTITION BY query_id, fragment_id ORDER BY ended DESC
          ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS second_last,
        CAST(rows AS DOUBLE) / nullif(sum(rows) OVER fragment - rows, 0) AS share
      FROM (
        SELECT
          tasks.query_id, tasks.fragment_id, tasks.worker_id, count(*) AS tasks, sum(tasks.wall_ns) AS wall_ns,
          max(tasks.wall_ns) AS longest_ns, sum(tasks.cpu_ns) AS cpu_ns, sum(tasks.throttled_ns) AS throttled_ns,
          sum(tasks.runqueue_ns - tasks.throttled_ns) AS queued_ns,
          sum(tasks.wall_ns - tasks.cpu_ns - tasks.runqueue_ns) AS blocked_ns, sum(loads.rows) AS rows,
          stddev(CAST(tasks.wall_ns AS DOUBLE) / loads.rows)
            / avg(CAST(tasks.wall_ns AS DOUBLE) / loads.rows) AS spread,
          min(CAST(tasks.started_at AS BIGINT)) AS started, max(CAST(tasks.ended_at AS BIGINT)) AS ended,
          max(CAST(tasks.ended_at AS BIGINT) - tasks.throttled_ns) AS without_throttling,
          max(CAST(tasks.ended_at AS BIGINT) - tasks.runqueue_ns + tasks.throttled_ns) AS without_queue,
          max(CAST(tasks.ended_at AS BIGINT) - tasks.wall_ns + tasks.cpu_ns + tasks.runqueue_ns) AS without_blocks
        FROM sys.task_stats AS tasks
        LEFT JOIN (
          SELECT query_id, fragment_id, worker_id, partition, sum(greatest(rows_in, rows_out)) AS rows
          FROM sys.operator_stats
          GROUP BY query_id, fragment_id, worker_id, partition
          HAVING sum(greatest(rows_in, rows_out)) > 0
        ) AS loads
          ON tasks.query_id = loads.query_id AND tasks.fragment_id = loads.fragment_id
            AND tasks.worker_id = loads.worker_id AND tasks.partition = loads.partition
        GROUP BY tasks.query_id, tasks.fragment_id, tasks.worker_id
      ) AS groups
      WINDOW fragment AS (PARTITION BY query_id, fragment_id)
    ) AS fragments
  ) AS compared
  GROUP BY query_id, worker_id
) AS totals
JOIN sys.queries AS queries ON totals.query_id = queries.query_id
LEFT JOIN (
  SELECT
    query_id, worker_id,
    avg(CASE WHEN metric = 'cpu_share' THEN value END) AS cpu_share,
    avg(CASE WHEN metric = 'effective_cores' THEN value END) AS effective_cores,
    avg(CASE WHEN metric = 'machine_cores' THEN value END) AS machine_cores,
    avg(CASE WHEN metric = 'foreign_cpu_share' THEN value END) AS foreign_cpu_share,
    avg(CASE WHEN metric = 'steal_share' THEN value END) AS steal_share,
    avg(CASE WHEN metric = 'throttled_share' THEN value END) AS throttled_share,
    avg(CASE WHEN metric = 'psi_cpu_share' THEN value END) AS psi_cpu_share,
    avg(CASE WHEN metric = 'psi_io_share' THEN value END) AS psi_io_share,
    avg(CASE WHEN metric = 'psi_memory_share' THEN value END) AS psi_memory_share,
    avg(CASE WHEN metric = 'read_bytes_per_second' THEN value END) AS read_bytes_per_second,
    avg(CASE WHEN metric = 'written_bytes_per_second' THEN value END) AS written_bytes_per_second,
    avg(CASE WHEN metric = 'major_faults_per_second' THEN value END) AS major_faults_per_second,
    max(CASE WHEN metric = 'rss_bytes' THEN value END) AS rss_bytes,
    max(CASE WHEN metric = 'memory_limit_bytes' THEN value END) AS memory_limit_bytes
  FROM sys.worker_metrics
  GROUP BY query_id, worker_id
) AS hosts ON totals.query_id = hosts.query_id AND totals.worker_id = hosts.worker_id
