-- The fragment that would gain most if its tasks worked equally long, and the operator of its longest
-- task that took most longer than in the other tasks.
SELECT
  tasks.fragment_id, tasks.tasks, tasks.max_ns, tasks.mean_ns, tasks.imbalance, tasks.wasted_ns,
  straggler.operator_id, straggler.partition, straggler.self_ns, straggler.rows_in,
  straggler.others_ns, straggler.others_rows
FROM (
  SELECT
    fragment_id, tasks, max_ns, mean_ns, imbalance, wasted_ns, longest_worker, longest_partition
  FROM sys.task_imbalance
  WHERE query_id = $query_id AND tasks > 1
  ORDER BY wasted_ns DESC, fragment_id LIMIT 1
) AS tasks
LEFT JOIN (
  SELECT
    fragment_id, operator_id, worker_id, partition, self_ns, rows_in, others_ns, others_rows, excess_ns
  FROM sys.stragglers
  WHERE query_id = $query_id
) AS straggler
  ON tasks.fragment_id = straggler.fragment_id AND tasks.longest_worker = straggler.worker_id
    AND tasks.longest_partition = straggler.partition
ORDER BY straggler.excess_ns DESC NULLS LAST, straggler.operator_id
LIMIT 1
