-- Fragments whose rows are uneven between workers: what would be saved if the same rows were dealt out better. Work is
-- a task's rows at the fragment's mean time for a row, without waiting for processors, so that a slow worker is no
-- uneven assignment. A worker needs the mean of its tasks. The best that an assignment can do is the mean of all tasks,
-- or the longest piece that cannot be cut, if that is more: a lower bound of what the rule `longest task first`
-- reaches, so the cost is an upper bound of the gain. A task that scans several row groups of 131,072 rows can be cut;
-- others cannot. The cost is at least 10 ms and 5 % of the query's time. It replaces HybridTune's rule (algorithm 1),
-- which sys.hybridtune_task_assignment keeps.
SELECT
  found.query_id, 'uneven assignment' AS detector, concat('fragment ', fragment_id, ', worker ', worker_id) AS subject,
  concat(
    'Worker ', worker_id, ' had ', CAST(100 * rows / all_rows AS BIGINT), ' % of the rows of ', workers,
    ' workers and needs ', CAST(now_ns AS BIGINT) / 1000000, ' ms for them; an even assignment needs at least ',
    CAST(best_ns AS BIGINT) / 1000000, ' ms.') AS cause,
  'Spread the rows evenly over workers: REBALANCE.' AS advice,
  fragment_id, CAST(NULL AS BIGINT) AS operator_id, worker_id, CAST(NULL AS BIGINT) AS partition,
  CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id,
  CAST(now_ns - best_ns AS BIGINT) AS cost_ns, now_ns / best_ns AS score, 1.2 AS threshold,
  CAST(NULL AS DOUBLE) AS confidence, false AS innocent,
  concat('SELECT worker_id, count(*) AS tasks, sum(rows) AS rows FROM sys.task_accounts WHERE query_id = ',
    found.query_id, ' AND fragment_id = ', fragment_id, ' GROUP BY worker_id') AS evidence_sql
FROM (
  SELECT
    *, rows * row_ns / tasks AS now_ns, greatest(longest_piece * row_ns, all_rows * row_ns / all_tasks) AS best_ns,
    row_number() OVER (
      PARTITION BY query_id, fragment_id ORDER BY rows / CAST(tasks AS DOUBLE) DESC, worker_id) AS place
  FROM (
    SELECT
      *, sum(work_ns) OVER fragment / greatest(CAST(sum(rows) OVER fragment AS DOUBLE), 1) AS row_ns,
      sum(rows) OVER fragment AS all_rows, sum(tasks) OVER fragment AS all_tasks,
      max(piece) OVER fragment AS longest_piece, count(*) OVER fragment AS workers
    FROM (
      SELECT
        tasks.query_id, tasks.fragment_id, tasks.worker_id, count(*) AS tasks, sum(loads.rows) AS rows,
        sum(tasks.wall_ns - coalesce(tasks.runqueue_ns, 0)) AS work_ns,
        max(loads.rows / ceil(greatest(loads.scanned, 1) / 131072.0)) AS piece
      FROM sys.task_stats AS tasks
      JOIN (
        SELECT
          stats.query_id, stats.fragment_id, stats.worker_id, stats.partition,
          sum(greatest(stats.rows_in, stats.rows_out)) AS rows,
          max(CASE WHEN operators.kind = 'scan' THEN stats.rows_out ELSE 0 END) AS scanned
        FROM sys.operator_stats AS stats
        JOIN sys.operators AS operators
          ON stats.query_id = operators.query_id AND stats.operator_id = operators.operator_id
        GROUP BY stats.query_id, stats.fragment_id, stats.worker_id, stats.partition
      ) AS loads
        ON tasks.query_id = loads.query_id AND tasks.fragment_id = loads.fragment_id
          AND tasks.worker_id = loads.worker_id AND tasks.partition = loads.partition
      GROUP BY tasks.query_id, tasks.fragment_id, tasks.worker_id
    ) AS work
    WINDOW fragment AS (PARTITION BY query_id, fragment_id)
  ) AS rated
) AS found
JOIN sys.queries AS queries ON found.query_id = queries.query_id
WHERE place = 1 AND workers > 1 AND now_ns >= 1.2 * best_ns AND now_ns - best_ns >= 10000000
  AND now_ns - best_ns >= 0.05 * (coalesce(queries.queued_ns, 0) + queries.planning_ns + queries.execution_ns)
