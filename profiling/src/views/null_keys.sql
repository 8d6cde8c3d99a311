-- Keys that say nothing, with many rows: `NULL keys`. At least 5 % of the rows of an exchange have the key NULL, or one
-- that stands for a missing value: empty text, 0, -1, unknown. They all go to one partition, and a join finds no
-- partner for NULL. Its cost is what the task with these rows would work less without them, until another task is
-- the longest: time of processors, where the system tells it. A key 0 with more than 1/n of the rows of n partitions
-- is a `heavy key` instead, since 0 may be a value like any other. Level `counters` and above.
WITH keys AS (
  SELECT query_id, exchange_id, key, sum(tuples) AS tuples
  FROM sys.key_frequencies
  WHERE input IS NULL AND regexp_like(key, '^(NULL|0|-1|unknown|)(,\s*(NULL|0|-1|unknown|))*$', 'i')
  GROUP BY query_id, exchange_id, key
),
tasks AS (
  SELECT
    query_id, fragment_id, worker_id, partition, coalesce(cpu_ns, wall_ns) AS work_ns,
    nth_value(coalesce(cpu_ns, wall_ns), 2) OVER (
      PARTITION BY query_id, fragment_id ORDER BY coalesce(cpu_ns, wall_ns) DESC
      ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    ) AS second_ns
  FROM sys.task_stats
),
loads AS (
  SELECT
    stats.query_id, stats.operator_id, stats.fragment_id, stats.worker_id, stats.partition, stats.rows_out,
    keys.key, keys.tuples, tasks.work_ns, tasks.second_ns,
    sum(stats.rows_out) OVER exchanges AS rows, count(*) OVER exchanges AS partitions,
    row_number() OVER (
      PARTITION BY stats.query_id, stats.operator_id, keys.key ORDER BY stats.rows_out DESC, stats.partition
    ) AS place
  FROM sys.operator_stats AS stats
  JOIN keys ON stats.query_id = keys.query_id AND stats.operator_id = keys.exchange_id
  JOIN tasks
    ON stats.query_id = tasks.query_id AND stats.fragment_id = tasks.fragment_id
      AND stats.worker_id = tasks.worker_id AND stats.partition = tasks.partition
  WINDOW exchanges AS (PARTITION BY stats.query_id, stats.operator_id, keys.key)
),
found AS (
  SELECT
    loads.*, operators.name, CAST(loads.tuples AS DOUBLE) / loads.rows AS share,
    least(
      loads.work_ns * least(CAST(loads.tuples AS DOUBLE) / greatest(loads.rows_out, 1), 1),
      loads.work_ns - coalesce(loads.second_ns, 0)
    ) AS cost_ns,
    row_number() OVER (
      PARTITION BY loads.query_id, loads.fragment_id ORDER BY loads.tuples DESC, loads.operator_id
    ) AS of_fragment
  FROM loads
  JOIN sys.operators AS operators
    ON loads.query_id = operators.query_id AND loads.operator_id = operators.operator_id
  WHERE loads.place = 1 AND loads.partitions > 1 AND loads.tuples >= 0.05 * loads.rows
    AND loads.rows_out >= 0.8 * loads.tuples
    AND (loads.key <> '0' OR CAST(loads.tuples AS DOUBLE) * loads.partitions <= loads.rows)
)
SELECT
  query_id, 'NULL keys' AS detector,
  'operator ' || operator_id || ' ' || name || ', partition ' || partition || ' on worker ' || worker_id AS subject,
  'About ' || CAST(round(100 * least(share, 1)) AS BIGINT) || ' % of ' || rows || ' rows have the key '
    || CASE WHEN key = '' THEN 'of empty text' ELSE key END || ' and go to one of ' || partitions
    || ' tasks: they cost it ' || CAST(round(cost_ns / 1000000.0) AS BIGINT) || ' ms of '
    || CAST(round(work_ns / 1000000.0) AS BIGINT) || ' ms.' AS cause,
  CASE
    WHEN key LIKE '%NULL%' THEN
      'NULL matches nothing: leave these rows out before an inner join, and add them with UNION ALL after an outer '
        || 'join. Where rows are grouped, aggregate before the exchange.'
    ELSE
      'If the key means that a value is missing, store NULL and leave these rows out before the exchange, or treat '
        || 'that key by itself.'
  END AS advice,
  fragment_id, operator_id, worker_id, partition, operator_id AS exchange_id, CAST(NULL AS VARCHAR) AS table_name,
  CAST(NULL AS BIGINT) AS row_id, CAST(cost_ns AS BIGINT) AS cost_ns, share AS score, 0.05 AS threshold,
  CAST(NULL AS DOUBLE) AS confidence, FALSE AS innocent,
  'SELECT * FROM sys.key_frequencies WHERE query_id = ' || query_id || ' AND exchange_id = ' || operator_id
    || ' ORDER BY share DESC' AS evidence_sql
FROM found
WHERE of_fragment = 1 AND cost_ns >= 10000000
