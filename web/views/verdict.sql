-- What the query did most of, where no diagnosis names a cause: the operator with the greatest share of all self
-- time, and its task that worked longest. cpu_ns is the time on processors, of cores that the workers could use.
-- $query_id BIGINT: the query
SELECT
  heaviest.operator_id, heaviest.fragment_id, heaviest.self_ns, heaviest.share, heaviest.tasks,
  longest.worker_id, longest.partition, longest.self_ns AS longest_ns, total.busy_ns,
  on_processor.cpu_ns, cores.cores,
  coalesce(queries.queued_ns, 0) + queries.planning_ns + queries.execution_ns AS elapsed_ns
FROM sys.queries AS queries
LEFT JOIN (
  SELECT
    operator_id, fragment_id, CAST(self_ns AS BIGINT) AS self_ns, share, partitions AS tasks,
    row_number() OVER (ORDER BY self_ns DESC, operator_id) AS place
  FROM sys.operator_contribution WHERE query_id = $query_id AND self_ns > 0
) AS heaviest ON heaviest.place = 1
LEFT JOIN (
  SELECT
    operator_id, worker_id, partition, self_ns,
    row_number() OVER (PARTITION BY operator_id ORDER BY self_ns DESC, worker_id, partition) AS place
  FROM sys.operator_stats WHERE query_id = $query_id
) AS longest ON longest.operator_id = heaviest.operator_id AND longest.place = 1
CROSS JOIN (
  SELECT CAST(sum(self_ns) AS BIGINT) AS busy_ns FROM sys.operator_stats WHERE query_id = $query_id
) AS total
CROSS JOIN (
  SELECT CAST(sum(cpu_ns) AS BIGINT) AS cpu_ns FROM sys.task_stats WHERE query_id = $query_id
) AS on_processor
CROSS JOIN (
  SELECT sum(cores) AS cores
  FROM (
    SELECT max(value) AS cores
    FROM sys.worker_metrics WHERE query_id = $query_id AND metric = 'effective_cores'
    GROUP BY worker_id
  ) AS workers
) AS cores
WHERE queries.query_id = $query_id
