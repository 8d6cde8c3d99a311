-- The tasks that gated the result, from the one that made it down: of each task's inputs the one that ended last.
-- Columns as in sys.critical_path_tasks; `step` counts from 0.
WITH RECURSIVE tasks AS (
  SELECT
    fragment_id, parent_fragment_id, worker_id, partition, began, ended, wall_ns, cpu_ns, off_processor_ns,
    input_wait_ns, next_ns
  FROM sys.critical_path_tasks
  WHERE query_id = $query_id AND gates
),
path AS (
  SELECT 0 AS step, * FROM tasks WHERE parent_fragment_id IS NULL
  UNION ALL
  SELECT path.step + 1, tasks.*
  FROM path
  JOIN tasks ON tasks.parent_fragment_id = path.fragment_id
)
SELECT
  step, fragment_id, worker_id, partition, began, ended, wall_ns, cpu_ns, off_processor_ns, input_wait_ns, next_ns
FROM path
ORDER BY step
