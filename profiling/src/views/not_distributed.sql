-- Queries that one node ran while the workers of the cluster idled: `not distributed`. Scans read tables, at least two
-- workers are in the cluster now, and one node did at least 95 % of the operators' work for 100 ms or more. Its cost
-- is the time that equal parts on all workers would save. Level `counters` and above.
WITH work AS (
  SELECT
    query_id, worker_id, sum(coalesce(cpu_ns, wall_ns)) AS work_ns,
    sum(sum(coalesce(cpu_ns, wall_ns))) OVER (PARTITION BY query_id) AS all_ns
  FROM sys.task_stats
  GROUP BY query_id, worker_id
),
members AS (
  SELECT count(*) AS workers FROM sys.workers WHERE query_id IS NULL AND state = 'alive' AND worker_id > 0
),
scans AS (
  SELECT query_id, count(*) AS scans FROM sys.operators
  WHERE kind = 'scan' AND table_name IS NOT NULL
  GROUP BY query_id
)
SELECT
  work.query_id, 'not distributed' AS detector, 'the query' AS subject,
  CASE WHEN work.worker_id = 0 THEN 'The master' ELSE 'Worker ' || work.worker_id END || ' did '
    || CAST(round(100.0 * work.work_ns / work.all_ns) AS BIGINT) || ' % of the work, '
    || CAST(round(work.work_ns / 1000000.0) AS BIGINT) || ' ms, while other nodes of a cluster of '
    || members.workers || ' workers idled.' AS cause,
  CASE
    WHEN work.worker_id = 0 THEN
      'Look at the plan: recursive queries, files read in place and functions of a session run on the master alone.'
    ELSE 'Look where the rows are, SELECT * FROM sys.cluster, and distribute them: REBALANCE.'
  END AS advice,
  CAST(NULL AS BIGINT) AS fragment_id, CAST(NULL AS BIGINT) AS operator_id, work.worker_id,
  CAST(NULL AS BIGINT) AS partition, CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name,
  CAST(NULL AS BIGINT) AS row_id,
  CAST(least(work.work_ns, queries.execution_ns) * (1 - 1.0 / members.workers) AS BIGINT) AS cost_ns,
  CAST(work.work_ns AS DOUBLE) / work.all_ns AS score, 0.95 AS threshold, CAST(NULL AS DOUBLE) AS confidence,
  FALSE AS innocent,
  'SELECT worker_id, sum(cpu_ns) AS cpu_ns, sum(wall_ns) AS wall_ns FROM sys.task_stats WHERE query_id = '
    || work.query_id || ' GROUP BY worker_id' AS evidence_sql
FROM work
JOIN sys.queries AS queries ON work.query_id = queries.query_id
JOIN scans ON work.query_id = scans.query_id
CROSS JOIN members
WHERE work.work_ns >= 100000000 AND work.work_ns >= 0.95 * work.all_ns AND members.workers >= 2
  AND queries.imported_from IS NULL
  AND work.work_ns >= 0.5 * queries.execution_ns
