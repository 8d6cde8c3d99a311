-- Partitions that cost more to begin than to run: `heavy initialisation`. In every partition of a projection or
-- filter, the time up to the end of its first call is at least ten times the mean of its other calls, and at least 20
-- ms. Such a function loads a model or compiles something in each partition. Its cost is the longest first call less
-- a usual one. Where partitions had one call only, nothing is found. Level `counters` and above; at level `records`
-- expressions with a time for each record are left out, since the profiler makes their first calls slow.
WITH bins AS (
  SELECT
    query_id, fragment_id, operator_id, worker_id, partition, calls, self_ns,
    sum(calls) OVER (
      PARTITION BY query_id, operator_id, worker_id, partition ORDER BY started_at
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS ended
  FROM sys.operator_timeline
),
partitions AS (
  SELECT
    query_id, fragment_id, operator_id, worker_id, partition, sum(calls) AS calls, sum(self_ns) AS self_ns,
    sum(CASE WHEN ended = calls THEN self_ns END) AS first_ns,
    max(CASE WHEN ended = calls THEN calls END) AS first_calls
  FROM bins
  GROUP BY query_id, fragment_id, operator_id, worker_id, partition
),
found AS (
  SELECT
    partitions.query_id, partitions.fragment_id, partitions.operator_id, operators.name, count(*) AS partitions,
    max(partitions.first_ns) AS most_ns, sum(partitions.first_ns) AS all_ns,
    median(CAST(partitions.self_ns - partitions.first_ns AS DOUBLE)
      / nullif(partitions.calls - partitions.first_calls, 0)) AS usual_ns,
    min(partitions.first_ns / greatest(partitions.first_calls, 1)) AS first_ns
  FROM partitions
  JOIN sys.operators AS operators
    ON partitions.query_id = operators.query_id AND partitions.operator_id = operators.operator_id
  WHERE operators.kind IN ('projection', 'filter')
  GROUP BY partitions.query_id, partitions.fragment_id, partitions.operator_id, operators.name
)
SELECT
  query_id, 'heavy initialisation' AS detector, 'operator ' || operator_id || ' ' || name AS subject,
  'The first call took at least ' || first_ns / 1000000 || ' ms in each of ' || partitions
    || ' partitions, other calls ' || round(usual_ns / 1000000.0, 1) || ' ms: beginning took '
    || all_ns / 1000000 || ' ms in all.' AS cause,
  'Keep what the function loads for all partitions of a process, or use fewer partitions: SET target_partitions.'
    AS advice,
  fragment_id, operator_id, CAST(NULL AS BIGINT) AS worker_id, CAST(NULL AS BIGINT) AS partition,
  CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id,
  CAST(most_ns - usual_ns AS BIGINT) AS cost_ns, first_ns / greatest(usual_ns, 1) AS score, 10.0 AS threshold,
  CAST(NULL AS DOUBLE) AS confidence, FALSE AS innocent,
  'SELECT worker_id, partition, bin, started_at, calls, self_ns FROM sys.operator_timeline WHERE query_id = '
    || query_id || ' AND operator_id = ' || operator_id || ' ORDER BY worker_id, partition, bin' AS evidence_sql
FROM found
WHERE partitions > 1 AND first_ns >= 20000000 AND first_ns >= 10 * usual_ns AND most_ns - usual_ns >= 10000000
