-- Findings about keys of exchanges: the rows of sys.heavy_keys and sys.null_keys together, which one pass over
-- sys.key_frequencies makes. Place is the task with the key's rows. The cost is less if another task of the fragment
-- ended later than that task. Level `counters` and above.
WITH keys AS (
  SELECT
    query_id, exchange_id, key, tuples, is_empty,
    row_number() OVER (PARTITION BY query_id, exchange_id, is_empty ORDER BY tuples DESC, key) AS place
  FROM (
    SELECT
      query_id, exchange_id, key, sum(tuples) AS tuples,
      regexp_like(key, '^(NULL|0|-1|unknown|)(,\s*(NULL|0|-1|unknown|))*$', 'i') AS is_empty
    FROM sys.key_frequencies
    WHERE input IS NULL
    GROUP BY query_id, exchange_id, key
  ) AS all_workers
),
loads AS (
  SELECT
    stats.query_id, stats.operator_id, stats.fragment_id, stats.worker_id, stats.partition, stats.rows_out,
    tasks.work_ns, tasks.mean_ns, tasks.second_ns, tasks.slack_ns, sum(stats.rows_out) OVER exchanges AS rows,
    count(*) OVER exchanges AS partitions,
    row_number() OVER (
      PARTITION BY stats.query_id, stats.operator_id ORDER BY stats.rows_out DESC, stats.partition
    ) AS place
  FROM sys.operator_stats AS stats
  JOIN (
    SELECT
      query_id, fragment_id, worker_id, partition, coalesce(cpu_ns, wall_ns) AS work_ns,
      CAST(avg(coalesce(cpu_ns, wall_ns)) OVER fragments AS BIGINT) AS mean_ns,
      nth_value(coalesce(cpu_ns, wall_ns), 2) OVER (
        PARTITION BY query_id, fragment_id ORDER BY coalesce(cpu_ns, wall_ns) DESC
        ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
      ) AS second_ns,
      max(CAST(ended_at AS BIGINT)) OVER fragments - CAST(ended_at AS BIGINT) AS slack_ns
    FROM sys.task_stats
    WINDOW fragments AS (PARTITION BY query_id, fragment_id)
  ) AS tasks
    ON stats.query_id = tasks.query_id AND stats.fragment_id = tasks.fragment_id
      AND stats.worker_id = tasks.worker_id AND stats.partition = tasks.partition
  WINDOW exchanges AS (PARTITION BY stats.query_id, stats.operator_id)
),
found AS (
  SELECT
    loads.*, keys.key, keys.tuples, operators.name, operators.routing,
    CAST(keys.tuples AS DOUBLE) / loads.rows AS share,
    CASE
      WHEN is_empty AND (key <> '0' OR tuples * partitions <= rows) THEN 'NULL keys' ELSE 'heavy key'
    END AS detector,
    CAST(CASE
      WHEN is_empty AND (key <> '0' OR tuples * partitions <= rows) THEN
        least(
          work_ns * least(CAST(tuples AS DOUBLE) / greatest(rows_out, 1), 1), work_ns - coalesce(second_ns, 0)
        ) - slack_ns
      ELSE work_ns - mean_ns - slack_ns
    END AS BIGINT) AS cost_ns,
    row_number() OVER (
      PARTITION BY loads.query_id, loads.fragment_id, is_empty ORDER BY tuples DESC, loads.operator_id
    ) AS of_fragment
  FROM keys
  JOIN loads ON keys.query_id = loads.query_id AND keys.exchange_id = loads.operator_id
  JOIN sys.operators AS operators
    ON loads.query_id = operators.query_id AND loads.operator_id = operators.operator_id
  WHERE keys.place = 1 AND loads.place = 1 AND loads.partitions > 1
    -- The fullest partition must be the one that has the key.
    AND loads.rows_out >= 0.8 * keys.tuples
)
SELECT
  query_id, detector,
  concat('operator ', operator_id, ' ', name, ', partition ', partition, ' on worker ', worker_id) AS subject,
  concat(
    'About ', CAST(round(100 * least(share, 1)) AS BIGINT), ' % of ', rows, ' rows ',
    CASE
      WHEN routing = 'value number' THEN 'are made of one value that a subquery is asked for, as of a long list'
      ELSE concat('have the key ', CASE WHEN key = '' THEN 'of empty text' ELSE key END)
    END,
    ' and go to one of ', partitions, ' tasks. That task worked ', work_ns / 1000000,
    ' ms, the mean task ', mean_ns / 1000000, ' ms: these rows cost ',
    cost_ns / 1000000, ' ms.') AS cause,
  CASE
    WHEN routing = 'value number' THEN 'Split the long value, or compute the subquery for it by itself.'
    WHEN detector = 'NULL keys' AND key LIKE '%NULL%' THEN
      concat(
        'NULL matches nothing: leave these rows out before an inner join, and add them with UNION ALL after an outer ',
        'join. Where rows are grouped, aggregate before the exchange.')
    WHEN detector = 'NULL keys' THEN
      'If the key means that a value is missing, store NULL and leave these rows out, or treat that key by itself.'
    ELSE 'Treat that key by itself, or, where rows are grouped, aggregate before the exchange.'
  END AS advice,
  fragment_id, operator_id, worker_id, partition, operator_id AS exchange_id, CAST(NULL AS VARCHAR) AS table_name,
  CAST(NULL AS BIGINT) AS row_id, cost_ns, share AS score,
  CASE WHEN detector = 'NULL keys' THEN 0.05 ELSE least(1.0 / partitions, 0.1) END AS threshold,
  CAST(NULL AS DOUBLE) AS confidence, FALSE AS innocent,
  concat(
    'SELECT * FROM sys.key_frequencies WHERE query_id = ', query_id, ' AND exchange_id = ', operator_id,
    ' ORDER BY share DESC') AS evidence_sql
FROM found
WHERE of_fragment = 1 AND cost_ns >= 10000000
  AND share > CASE WHEN detector = 'NULL keys' THEN 0.05 ELSE least(1.0 / partitions, 0.1) END
  -- Most of what the partition has beyond the mean are the key's rows.
  AND 2.0 * tuples >= rows_out - rows / partitions
