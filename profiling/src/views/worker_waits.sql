-- Where the time of each worker's tasks went in a query, one row for each kind of time, and what each kind costs.
-- `kind` is `all` (the time of the tasks), `queued` (they waited for a processor, which another thread or the
-- hypervisor had), `throttled` (they waited since the worker's cgroup had used up its quota) or `blocked` (they waited
-- by themselves: disk, lock, page fault, sleep). `time_ns` is the time of the kind. `excess_ns` is what `all` is beyond
-- the time that the other workers would have spent on the same rows, `more_used_ns` its part in which a processor
-- worked, and `more_waited_ns` its part that waited for a processor; NULL without other workers. `gates_ns` says what
-- the query would be faster without the kind's time on this worker, if fragments started as they did; of `all` it is
-- what it would be faster without the excess. `every_gates_ns` says so of all workers together; each fragment's is with
-- the worker that ended last. `slow_share` is the share of the time in fragments in which it was at least 1.3 times
-- that of the others for the same rows. `even_share` is 1 if all tasks of the worker have as much of the time, and less
-- if few have it. `score` is the excess in standard deviations, which the tasks within workers tell. Level `counters`
-- and above.
SELECT
  query_id, worker_id, kind, sum(tasks) AS tasks, sum(wall_ns) AS wall_ns, sum(time_ns) AS time_ns,
  sum(excess_ns) AS excess_ns, sum(used_ns - share * (all_used_ns - used_ns)) AS more_used_ns,
  sum(waited_ns - share * (all_waited_ns - waited_ns)) AS more_waited_ns,
  sum(
    CASE
      WHEN ended < last OR kind = 'all' AND (excess_ns IS NULL OR excess_ns < 0) THEN 0.0
      WHEN kind = 'all' THEN least(ended - other_last, longest_ns * excess_ns / wall_ns)
      ELSE least(ended - other_last, ended - without)
    END) AS gates_ns,
  sum(CASE WHEN ended = last THEN ended - all_without END) AS every_gates_ns,
  sum(CASE WHEN excess_ns >= 0.23 * wall_ns THEN wall_ns END) / greatest(sum(wall_ns), 1.0) AS slow_share,
  sum(even_ns) / greatest(sum(time_ns), 1.0) AS even_share,
  ln(greatest(sum(wall_ns) / (1 + sum(wall_ns - excess_ns)), 1.0))
    / greatest(0.05, coalesce(avg(spread), 0.25) * sqrt(1.5 / avg(tasks))) AS score
FROM (
  SELECT
    query_id, kind, last, all_without, all_used_ns, all_waited_ns, worker['worker_id'] AS worker_id,
    worker['tasks'] AS tasks, worker['wall_ns'] AS wall_ns, worker['time_ns'] AS time_ns,
    worker['longest_ns'] AS longest_ns, worker['spread'] AS spread, worker['ended'] AS ended,
    worker['without'] AS without, worker['used_ns'] AS used_ns, worker['waited_ns'] AS waited_ns,
    worker['even_ns'] AS even_ns,
    worker['rows'] / nullif(all_rows - worker['rows'], 0.0) AS share,
    worker['wall_ns']
      - worker['rows'] / nullif(all_rows - worker['rows'], 0.0) * (all_wall_ns - worker['wall_ns']) AS excess_ns,
    coalesce(other_last, first_start) AS other_last
  FROM (
    -- Grouped and taken apart again: windows, whose order planning follows, would take longer to plan.
    SELECT
      query_id, fragment_id, kind, max(ended) AS last, array_sort(array_agg(ended))[-2] AS other_last,
      min(started) AS first_start, max(without) AS all_without, sum(wall_ns) AS all_wall_ns,
      sum(used_ns) AS all_used_ns, sum(waited_ns) AS all_waited_ns, sum(rows) AS all_rows,
      unnest(array_agg(named_struct(
        'worker_id', worker_id, 'tasks', tasks, 'wall_ns', wall_ns, 'time_ns', time_ns, 'longest_ns', longest_ns,
        'spread', spread, 'ended', ended, 'without', without, 'used_ns', used_ns, 'waited_ns', waited_ns,
        'rows', rows, 'even_ns', even_ns))) AS worker
    FROM (
      SELECT
        tasks.query_id, tasks.fragment_id, tasks.worker_id, tasks.kind, count(*) AS tasks,
        CAST(sum(tasks.wall_ns) AS DOUBLE) AS wall_ns, CAST(sum(tasks.time_ns) AS DOUBLE) AS time_ns,
        CAST(sum(tasks.cpu_ns) AS DOUBLE) AS used_ns, CAST(sum(tasks.runqueue_ns) AS DOUBLE) AS waited_ns,
        CAST(sum(loads.rows) AS DOUBLE) AS rows, CAST(max(tasks.wall_ns) AS DOUBLE) AS longest_ns,
        CASE WHEN count(*) > 1 THEN CAST(min(tasks.time_ns) * count(*) AS DOUBLE) END AS even_ns,
        min(tasks.started) AS started, max(tasks.ended) AS ended, max(tasks.ended - tasks.time_ns) AS without,
        stddev(tasks.wall_ns / loads.rows) / avg(tasks.wall_ns / loads.rows) AS spread
      FROM (
        SELECT
          query_id, fragment_id, worker_id, partition, wall_ns, cpu_ns, runqueue_ns,
          CAST(started_at AS BIGINT) AS started, CAST(ended_at AS BIGINT) AS ended,
          unnest(make_array('all', 'throttled', 'queued', 'blocked')) AS kind,
          unnest(make_array(
            wall_ns, throttled_ns, runqueue_ns - throttled_ns, wall_ns - cpu_ns - runqueue_ns)) AS time_ns
        FROM sys.task_stats
      ) AS tasks
      LEFT JOIN (
        SELECT
          query_id, fragment_id, worker_id, partition, CAST(sum(greatest(rows_in, rows_out)) AS DOUBLE) AS rows
        FROM sys.operator_stats
        GROUP BY query_id, fragment_id, worker_id, partition
        HAVING sum(greatest(rows_in, rows_out)) > 0
      ) AS loads
        ON tasks.query_id = loads.query_id AND tasks.fragment_id = loads.fragment_id
          AND tasks.worker_id = loads.worker_id AND tasks.partition = loads.partition
      WHERE tasks.time_ns IS NOT NULL
      GROUP BY tasks.query_id, tasks.fragment_id, tasks.worker_id, tasks.kind
    ) AS groups
    GROUP BY query_id, fragment_id, kind
  ) AS fragments
) AS compared
GROUP BY query_id, worker_id, kind
