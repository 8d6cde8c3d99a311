-- The account of each task: where its time went, and why it worked longer than the other tasks of its fragment.
-- `queued_ns` is what it waited for a processor without being throttled, `stolen_ns` the part of that wait that the
-- hypervisor caused, `blocked_ns` what it waited for by itself: disk, lock, page fault, sleep. `rows` adds up, over the
-- operators of the task, the rows that each took or returned, whichever are more: the measure of its work. `usual_ns`
-- is the median of `wall_ns` of the other tasks of the fragment, `usual_rows` that of `rows`; exact for tasks in the
-- upper half, which alone have an excess. `excess_ns` is what the task worked beyond `usual_ns`. It is the sum of the
-- seven entries that follow: more rows, more processor time for a row, throttling by the cgroup, waiting for a
-- processor, what the hypervisor took, waiting for anything else, and what none of these explains. `main_cause` is the
-- entry with at least half of the excess, else `several causes`. `score` says by how many robust standard deviations
-- the task is off what its rows let one expect. The deviation is that of the fragment or of the whole query, whichever
-- is larger, and at least 5 %, or more the fewer tasks the query has. Large excesses count by their logarithm, since
-- times of tasks are skewed. Entries are NULL where the system tells no times of processors. Level `counters` and
-- above.
SELECT
  query_id, fragment_id, worker_id, partition, started_at, ended_at, wall_ns, cpu_ns, queued_ns, throttled_ns,
  stolen_ns, blocked_ns, rows, tasks, usual_ns, usual_rows, excess_ns, more_rows_ns, slower_rows_ns,
  more_throttled_ns, more_queued_ns, more_stolen_ns, more_blocked_ns, excess_ns - explained_ns AS unexplained_ns,
  CASE
    WHEN excess_ns <= 0 THEN NULL
    WHEN 2 * (excess_ns - explained_ns) >= excess_ns THEN 'not explained'
    WHEN 2 * most_ns < excess_ns THEN 'several causes'
    WHEN most_ns = more_rows_ns THEN 'more rows'
    WHEN most_ns = more_throttled_ns THEN 'throttled'
    WHEN most_ns = more_queued_ns THEN 'queued'
    WHEN most_ns = more_stolen_ns THEN 'stolen'
    WHEN most_ns = more_blocked_ns THEN 'blocked'
    ELSE 'slower rows'
  END AS main_cause,
  -- 1.7, not 1.48: tasks in the lower half are compared with less than their peers' median, and so seem less off.
  least(off, 1.5 * ln(1 + greatest(off, 0)))
    / greatest(0.05 + 0.25 / sqrt(query_tasks), 1.7 * spread, 1.7 * query_spread) AS score
FROM (
  SELECT
    *,
    greatest(more_rows_ns, slower_rows_ns, more_throttled_ns, more_queued_ns, more_stolen_ns, more_blocked_ns)
      AS most_ns,
    more_rows_ns + coalesce(slower_rows_ns, 0) + coalesce(more_throttled_ns, 0) + coalesce(more_queued_ns, 0)
      + coalesce(more_stolen_ns, 0) + coalesce(more_blocked_ns, 0) AS explained_ns,
    median(abs(off)) OVER (PARTITION BY query_id, fragment_id) AS spread,
    -- Tasks of less than a millisecond say little about the spread.
    median(CASE WHEN wall_ns >= 1000000 THEN abs(off) END) OVER (PARTITION BY query_id) AS query_spread,
    greatest(count(CASE WHEN wall_ns >= 1000000 THEN 1 END) OVER (PARTITION BY query_id), 1) AS query_tasks
  FROM (
    SELECT
      *, wall_ns - usual_ns AS excess_ns, (ratio - 1) * usual_ns AS more_rows_ns,
      cpu_ns - ratio * usual_cpu_ns AS slower_rows_ns,
      throttled_ns - ratio * usual_throttled_ns AS more_throttled_ns,
      queued_ns - ratio * usual_queued_ns AS more_queued_ns,
      stolen_ns - ratio * usual_stolen_ns AS more_stolen_ns,
      blocked_ns - ratio * usual_blocked_ns AS more_blocked_ns,
      (wall_ns - ratio * usual_ns) / (greatest(ratio, 1) * usual_ns) AS off
    FROM (
      SELECT
        *, CAST(rows AS DOUBLE) / greatest(usual_rows, 1) AS ratio
      FROM (
        SELECT
          query_id, fragment_id, tasks,
          task['worker_id'] AS worker_id, task['partition'] AS partition, task['started_at'] AS started_at,
          task['ended_at'] AS ended_at, task['wall_ns'] AS wall_ns, task['cpu_ns'] AS cpu_ns,
          task['throttled_ns'] AS throttled_ns, task['rows'] AS rows, task['queued_ns'] AS queued_ns,
          task['stolen_ns'] AS stolen_ns, task['blocked_ns'] AS blocked_ns,
          -- The median of the others, for a task in the upper half.
          (walls[half] + walls[half + odd]) / 2.0 AS usual_ns,
          (counts[half] + counts[half + odd]) / 2.0 AS usual_rows,
          (cpus[half] + cpus[half + odd]) / 2.0 AS usual_cpu_ns,
          (throttles[half] + throttles[half + odd]) / 2.0 AS usual_throttled_ns,
          (queues[half] + queues[half + odd]) / 2.0 AS usual_queued_ns,
          (thefts[half] + thefts[half + odd]) / 2.0 AS usual_stolen_ns,
          (blocks[half] + blocks[half + odd]) / 2.0 AS usual_blocked_ns
        FROM (
          -- Grouped and taken apart again: windows, whose order planning follows, would take longer to plan.
          SELECT
            query_id, fragment_id, count(*) AS tasks, greatest(count(*) / 2, 1) AS half,
            CASE WHEN count(*) > 1 THEN count(*) % 2 ELSE 0 END AS odd,
            array_sort(array_agg(wall_ns)) AS walls, array_sort(array_agg(rows)) AS counts,
            array_sort(array_agg(cpu_ns)) AS cpus, array_sort(array_agg(throttled_ns)) AS throttles,
            array_sort(array_agg(queued_ns)) AS queues, array_sort(array_agg(stolen_ns)) AS thefts,
            array_sort(array_agg(blocked_ns)) AS blocks,
            unnest(array_agg(named_struct(
              'worker_id', worker_id, 'partition', partition, 'started_at', started_at, 'ended_at', ended_at,
              'wall_ns', wall_ns, 'cpu_ns', cpu_ns, 'throttled_ns', throttled_ns, 'rows', rows,
              'queued_ns', queued_ns, 'stolen_ns', stolen_ns, 'blocked_ns', blocked_ns))) AS task
          FROM (
            SELECT
              tasks.query_id, tasks.fragment_id, tasks.worker_id, tasks.partition, tasks.started_at, tasks.ended_at,
              tasks.wall_ns, tasks.cpu_ns, tasks.throttled_ns, coalesce(loads.rows, 0) AS rows,
              (tasks.runqueue_ns - tasks.throttled_ns) * (1 - coalesce(hosts.stolen, 0)) AS queued_ns,
              (tasks.runqueue_ns - tasks.throttled_ns) * coalesce(hosts.stolen, 0) AS stolen_ns,
              tasks.wall_ns - tasks.cpu_ns - tasks.runqueue_ns AS blocked_ns
            FROM sys.task_stats AS tasks
            LEFT JOIN (
              SELECT query_id, fragment_id, worker_id, partition, sum(greatest(rows_in, rows_out)) AS rows
              FROM sys.operator_stats
              GROUP BY query_id, fragment_id, worker_id, partition
            ) AS loads
              ON tasks.query_id = loads.query_id AND tasks.fragment_id = loads.fragment_id
                AND tasks.worker_id = loads.worker_id AND tasks.partition = loads.partition
            LEFT JOIN (
              -- The share of a processor's time that the hypervisor took.
              SELECT
                query_id, worker_id,
                sum(CASE WHEN metric = 'steal_share' THEN value END) / nullif(sum(value), 0) AS stolen
              FROM sys.worker_metrics
              WHERE metric IN ('steal_share', 'cpu_share', 'foreign_cpu_share')
              GROUP BY query_id, worker_id
            ) AS hosts ON tasks.query_id = hosts.query_id AND tasks.worker_id = hosts.worker_id
          ) AS parts
          GROUP BY query_id, fragment_id
        ) AS fragments
      ) AS taken
    ) AS compared
  ) AS accounts
) AS spreads
