-- The fragment that would gain most if its tasks worked equally long, and the operator with the
-- slowest straggler in it.
SELECT
  tasks.fragment_id, tasks.tasks, tasks.max_ns, tasks.mean_ns, tasks.imbalance, tasks.wasted_ns,
  straggler.operator_id, straggler.partition, straggler.self_ns, straggler.rows_in,
  straggler.others_ns, straggler.others_rows
FROM (
  SELECT fragment_id, tasks, max_ns, mean_ns, imbalance, wasted_ns
  FROM sys.task_imbalance
  WHERE query_id = $query_id AND tasks > 1
  ORDER BY wasted_ns DESC, fragment_id LIMIT 1
) AS tasks
LEFT JOIN (
  SELECT
    fragment_id, operator_id, partition, self_ns, rows_in, others_ns, others_rows, excess_ns
  FROM sys.stragglers
  WHERE query_id = $query_id
) AS straggler ON tasks.fragment_id = straggler.fragment_id
ORDER BY straggler.excess_ns DESC NULLS LAST, straggler.operator_id
LIMIT 1
