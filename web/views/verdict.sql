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
    -- Workers of one machine share its cores.
    SELECT least(sum(effective), max(machine)) AS cores
    FROM (
      SELECT
        readings.worker_id,
        max(CASE
          WHEN workers.address LIKE '127.%' OR workers.address LIKE '[::1]%' THEN 'in process'
          ELSE left(workers.address, length(workers.address) - strpos(reverse(workers.address), ':'))
        END) AS host,
        max(CASE WHEN readings.metric = 'effective_cores' THEN readings.value END) AS effective,
        max(CASE WHEN readings.metric = 'machine_cores' THEN readings.value END) AS machine
      FROM sys.worker_metrics AS readings
      LEFT JOIN sys.workers AS workers
        ON workers.query_id = $query_id AND workers.worker_id = readings.worker_id
      WHERE readings.query_id = $query_id AND readings.metric IN ('effective_cores', 'machine_cores')
      GROUP BY readings.worker_id
    ) AS workers
    GROUP BY host
  ) AS machines
) AS cores
WHERE queries.query_id = $query_id
