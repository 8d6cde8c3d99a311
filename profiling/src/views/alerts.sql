-- What is wrong now, over all queries and nodes: one row for each alert. `statement got slower`: at least 3 of the
-- last 5 runs of a statement took 1.5 times the median of the 32 runs before, six robust standard deviations and 10
-- ms more. The deviation is at least 5 % of the median; there must be 5 runs before, and a run in the last day. It
-- ends when fewer than 3 of 5 runs are slow. `abnormal node`: a node of `sys.abnormal_nodes`, which has hysteresis of
-- its own. `worker lost`: a worker of the cluster that is lost now. `since` is when the first of these runs began, or
-- since when the reading is off at least, or when the node was read last. `value` over `threshold` is how bad it is.
-- The view reads all queries that are kept.
WITH runs AS (
  SELECT
    *, median(CASE WHEN age > 5 THEN elapsed_ns END) OVER statements AS usual_ns,
    count(CASE WHEN age > 5 THEN 1 END) OVER statements AS runs_before
  FROM (
    SELECT
      query_id, fingerprint, sql, started_at,
      CAST(coalesce(planning_ns, 0) + coalesce(execution_ns, 0) AS DOUBLE) AS elapsed_ns,
      row_number() OVER (PARTITION BY fingerprint ORDER BY query_id DESC) AS age
    FROM sys.queries
    WHERE status = 'finished' AND imported_from IS NULL
  ) AS finished
  WHERE age <= 37
  WINDOW statements AS (PARTITION BY fingerprint)
),
rated AS (
  SELECT
    *, age <= 5 AND elapsed_ns >= 1.5 * usual_ns AND elapsed_ns - usual_ns >= 10000000
      AND elapsed_ns - usual_ns > 6 * greatest(1.4826 * spread_ns, 0.05 * usual_ns) AS is_slow
  FROM (
    SELECT
      *, median(CASE WHEN age > 5 THEN abs(elapsed_ns - usual_ns) END) OVER (PARTITION BY fingerprint) AS spread_ns
    FROM runs
    WHERE runs_before >= 5
  ) AS measured
),
statements AS (
  SELECT
    fingerprint, first_value(sql ORDER BY age) AS sql, min(CASE WHEN is_slow THEN started_at END) AS since,
    max(query_id) AS query_id, median(CASE WHEN age <= 5 THEN elapsed_ns END) AS now_ns, max(usual_ns) AS usual_ns
  FROM rated
  GROUP BY fingerprint
  HAVING count(CASE WHEN is_slow THEN 1 END) >= 3 AND max(started_at) >= now() - INTERVAL '1 day'
)
SELECT
  'statement got slower' AS alert, substr(regexp_replace(sql, '\s+', ' ', 'g'), 1, 80) AS subject, since,
  CASE WHEN now_ns >= 3 * usual_ns THEN 'critical' ELSE 'warning' END AS severity,
  concat(
    'The last runs took ', CAST(now_ns AS BIGINT) / 1000000, ' ms in the median, earlier ones ',
    CAST(usual_ns AS BIGINT) / 1000000, ' ms. The last one is query ', query_id, '.') AS cause,
  now_ns / greatest(usual_ns, 1) AS value, CAST(1.5 AS DOUBLE) AS threshold,
  concat(
    'SELECT query_id, started_at, planning_ns, execution_ns FROM sys.queries WHERE fingerprint = ''', fingerprint,
    ''' ORDER BY query_id DESC LIMIT 37') AS evidence_sql
FROM statements

UNION ALL
SELECT
  'abnormal node', subject, now() - INTERVAL '30 seconds', 'warning', cause, score, threshold, evidence_sql
FROM sys.abnormal_nodes

UNION ALL
SELECT
  'worker lost', concat('worker ', lost.worker_id), coalesce(readings.last_at, now()), 'critical',
  concat('Worker ', lost.worker_id, ' at ', lost.address, ' is lost. Queries that need its rows fail.'), 1.0, 0.0,
  'SELECT * FROM sys.workers WHERE query_id IS NULL'
FROM sys.workers AS lost
LEFT JOIN (
  SELECT worker_id, max(at) AS last_at FROM sys.node_metrics GROUP BY worker_id
) AS readings ON lost.worker_id = readings.worker_id
WHERE lost.query_id IS NULL AND lost.state = 'lost'
