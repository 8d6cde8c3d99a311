-- The tasks that gated the result of a query: of each fragment the task that ended last. `gates` says whether the
-- fragment's consumer waited for it last: of all inputs of the fragment above, it ended last. `slack_ns` is how much
-- earlier it ended than the input that did. Where `gates` holds all the way up, the task is on the critical path,
-- which `sys.critical_path` follows. `next_ns` is how much earlier the fragment's next task ended: what the fragment
-- gains at most if this task is faster. `off_processor_ns` is `wall_ns` less `cpu_ns`; `input_wait_ns` is the time in
-- which the task had no rows to work on. The last to end is exact where inputs are read one after the other, and
-- about right where they are read at once. Level `counters` and above.
SELECT
  tasks.query_id, tasks.fragment_id, fragments.parent_fragment_id, tasks.worker_id, tasks.partition,
  tasks.started_at AS began, tasks.ended_at AS ended, tasks.wall_ns, tasks.cpu_ns,
  greatest(tasks.wall_ns - tasks.cpu_ns, 0) AS off_processor_ns, waits.input_wait_ns, tasks.next_ns,
  max(tasks.ended_ns) OVER siblings - tasks.ended_ns AS slack_ns,
  max(tasks.ended_ns) OVER siblings = tasks.ended_ns AS gates
FROM (
  SELECT
    *, CAST(ended_at AS BIGINT) AS ended_ns,
    CAST(ended_at AS BIGINT) - lead(CAST(ended_at AS BIGINT)) OVER fragments AS next_ns,
    row_number() OVER fragments AS place
  FROM sys.task_stats
  WINDOW fragments AS (PARTITION BY query_id, fragment_id ORDER BY ended_at DESC, worker_id, partition)
) AS tasks
JOIN sys.fragments AS fragments
  ON tasks.query_id = fragments.query_id AND tasks.fragment_id = fragments.fragment_id
LEFT JOIN (
  SELECT query_id, fragment_id, worker_id, partition, max(input_wait_ns) AS input_wait_ns
  FROM sys.operator_stats
  GROUP BY query_id, fragment_id, worker_id, partition
) AS waits
  ON tasks.query_id = waits.query_id AND tasks.fragment_id = waits.fragment_id
    AND tasks.worker_id = waits.worker_id AND tasks.partition = waits.partition
WHERE tasks.place = 1
WINDOW siblings AS (PARTITION BY tasks.query_id, fragments.parent_fragment_id)
