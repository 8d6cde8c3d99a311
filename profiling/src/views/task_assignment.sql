-- Fragments whose work is uneven between workers: what would be saved if the same tasks were dealt out better. A worker
-- needs as long as its longest task, and as its tasks need together on its cores. The best that an assignment can do is
-- the same with all cores: a lower bound of what the rule `longest task first` reaches, so the cost is an upper bound
-- of the gain. A task that reads several row groups can be cut, so its longest part is what one row group takes.
-- Waiting for processors does not count as work. The cost is at least 10 ms and 5 % of the query's time. It replaces
-- HybridTune's rule (algorithm 1), which sys.hybridtune_task_assignment keeps.
SELECT
  found.query_id, 'uneven assignment' AS detector, concat('fragment ', fragment_id, ', worker ', worker_id) AS subject,
  concat(
    'Worker ', worker_id, ' had ', CAST(round(100 * work_ns / greatest(all_work_ns, 1)) AS BIGINT),
    ' % of the work of ',
    workers, ' workers and needed ', CAST(round(now_ns / 1000000.0) AS BIGINT),
    ' ms; an even assignment needs at least ',
    CAST(round(best_ns / 1000000.0) AS BIGINT), ' ms.') AS cause,
  'Spread the rows evenly over workers (REBALANCE), or give the worker more cores.' AS advice,
  fragment_id, CAST(NULL AS BIGINT) AS operator_id, worker_id, CAST(NULL AS BIGINT) AS partition,
  CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id,
  CAST(now_ns - best_ns AS BIGINT) AS cost_ns, now_ns / greatest(best_ns, 1) AS score, 1.2 AS threshold,
  CAST(NULL AS DOUBLE) AS confidence, false AS innocent,
  concat('SELECT worker_id, count(*) AS tasks, sum(cpu_ns + blocked_ns) AS work_ns FROM sys.task_accounts WHERE ',
    'query_id = ', found.query_id, ' AND fragment_id = ', fragment_id, ' GROUP BY worker_id') AS evidence_sql
FROM (
  SELECT
    *, greatest(max(piece_ns) OVER fragment, sum(work_ns) OVER fragment / sum(cores) OVER fragment) AS best_ns,
    sum(work_ns) OVER fragment AS all_work_ns, count(*) OVER fragment AS workers,
    row_number() OVER (PARTITION BY query_id, fragment_id ORDER BY now_ns DESC, worker_id) AS place
  FROM (
    SELECT
      query_id, fragment_id, worker_id, work_ns, piece_ns, cores, greatest(longest_ns, work_ns / cores) AS now_ns
    FROM (
      SELECT
        tasks.query_id, tasks.fragment_id, tasks.worker_id,
        sum(tasks.wall_ns - coalesce(tasks.runqueue_ns, 0)) AS work_ns,
        max(tasks.wall_ns - coalesce(tasks.runqueue_ns, 0)) AS longest_ns,
        max((tasks.wall_ns - coalesce(tasks.runqueue_ns, 0)) / ceil(greatest(scans.rows, 1) / 131072.0)) AS piece_ns,
        least(CAST(count(*) AS DOUBLE), greatest(coalesce(max(hosts.cores), CAST(count(*) AS DOUBLE)), 0.1)) AS cores
      FROM sys.task_stats AS tasks
      LEFT JOIN (
        SELECT stats.query_id, stats.fragment_id, stats.worker_id, stats.partition, max(stats.rows_out) AS rows
        FROM sys.operator_stats AS stats
        JOIN sys.operators AS operators
          ON stats.query_id = operators.query_id AND stats.operator_id = operators.operator_id
        WHERE operators.kind = 'scan'
        GROUP BY stats.query_id, stats.fragment_id, stats.worker_id, stats.partition
      ) AS scans
        ON tasks.query_id = scans.query_id AND tasks.fragment_id = scans.fragment_id
          AND tasks.worker_id = scans.worker_id AND tasks.partition = scans.partition
      LEFT JOIN (
        SELECT query_id, worker_id, min(value) AS cores
        FROM sys.worker_metrics
        WHERE metric = 'effective_cores'
        GROUP BY query_id, worker_id
      ) AS hosts ON tasks.query_id = hosts.query_id AND tasks.worker_id = hosts.worker_id
      GROUP BY tasks.query_id, tasks.fragment_id, tasks.worker_id
    ) AS work
  ) AS loads
  WINDOW fragment AS (PARTITION BY query_id, fragment_id)
) AS found
JOIN sys.queries AS queries ON found.query_id = queries.query_id
WHERE place = 1 AND workers > 1 AND now_ns >= 1.2 * best_ns AND now_ns - best_ns >= 10000000
  AND now_ns - best_ns >= 0.05 * (coalesce(queries.queued_ns, 0) + queries.planning_ns + queries.execution_ns)
