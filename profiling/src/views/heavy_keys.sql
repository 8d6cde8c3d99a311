-- Keys that make one partition of an exchange work for all: `heavy key`. The key has more than 1/n of the rows that
-- the exchange sends to n partitions, so that no distribution of whole keys is even. Its cost is the time that the
-- fullest task worked beyond the mean of all tasks of the fragment: time of processors, where the system tells it.
-- Of several exchanges into a fragment, as below a join, the one with the most rows of its key counts. The key's
-- rows are estimated by `sys.key_frequencies`. Level `counters` and above.
-- Source: Gedik, Partitioning functions for stateful data parallelism in stream processing, VLDB Journal 2014.
WITH keys AS (
  SELECT
    query_id, exchange_id, key, tuples, error,
    row_number() OVER (PARTITION BY query_id, exchange_id ORDER BY tuples DESC, key) AS place
  FROM (
    SELECT query_id, exchange_id, key, sum(tuples) AS tuples, sum(error) AS error
    FROM sys.key_frequencies
    WHERE input IS NULL
    GROUP BY query_id, exchange_id, key
  ) AS all_workers
),
tasks AS (
  SELECT
    query_id, fragment_id, worker_id, partition, coalesce(cpu_ns, wall_ns) AS work_ns,
    coalesce(cpu_ns, wall_ns) - avg(coalesce(cpu_ns, wall_ns)) OVER (PARTITION BY query_id, fragment_id) AS excess_ns
  FROM sys.task_stats
),
loads AS (
  SELECT
    stats.query_id, stats.operator_id, stats.fragment_id, stats.worker_id, stats.partition, stats.rows_out,
    keys.key, keys.tuples, tasks.work_ns, tasks.excess_ns,
    sum(stats.rows_out) OVER exchanges AS rows, count(*) OVER exchanges AS partitions,
    row_number() OVER (
      PARTITION BY stats.query_id, stats.operator_id ORDER BY stats.rows_out DESC, stats.partition
    ) AS place
  FROM sys.operator_stats AS stats
  JOIN keys ON stats.query_id = keys.query_id AND stats.operator_id = keys.exchange_id
  JOIN tasks
    ON stats.query_id = tasks.query_id AND stats.fragment_id = tasks.fragment_id
      AND stats.worker_id = tasks.worker_id AND stats.partition = tasks.partition
  WHERE keys.place = 1
  WINDOW exchanges AS (PARTITION BY stats.query_id, stats.operator_id)
),
heavy AS (
  SELECT
    loads.*, operators.name, operators.routing, CAST(loads.tuples AS DOUBLE) / loads.rows AS share,
    row_number() OVER (
      PARTITION BY loads.query_id, loads.fragment_id ORDER BY loads.tuples DESC, loads.operator_id
    ) AS of_fragment
  FROM loads
  JOIN sys.operators AS operators
    ON loads.query_id = operators.query_id AND loads.operator_id = operators.operator_id
  WHERE loads.place = 1 AND loads.partitions > 1 AND loads.excess_ns >= 10000000
    AND CAST(loads.tuples AS DOUBLE) * loads.partitions > loads.rows
    -- The fullest partition must be the one that has the key.
    AND loads.rows_out >= 0.8 * loads.tuples
)
SELECT
  query_id, 'heavy key' AS detector,
  'operator ' || operator_id || ' ' || name || ', partition ' || partition || ' on worker ' || worker_id AS subject,
  'About ' || CAST(round(100 * least(share, 1)) AS BIGINT) || ' % of ' || rows || ' rows '
    || CASE
      WHEN routing = 'value number' THEN 'are made of one value that a subquery is asked for, as of a long list'
      ELSE 'have the key ' || CASE WHEN key = '' THEN 'of empty text' ELSE key END
    END
    || ': one of ' || partitions || ' tasks worked ' || CAST(round(work_ns / 1000000.0) AS BIGINT) || ' ms, '
    || CAST(round(excess_ns / 1000000.0) AS BIGINT) || ' ms more than the mean.' AS cause,
  CASE
    WHEN routing = 'value number' THEN 'Split the long value, or compute the subquery for it by itself.'
    ELSE 'Treat that key by itself, or, where rows are grouped, aggregate before the exchange.'
  END AS advice,
  fragment_id, operator_id, worker_id, partition, operator_id AS exchange_id, CAST(NULL AS VARCHAR) AS table_name,
  CAST(NULL AS BIGINT) AS row_id, CAST(excess_ns AS BIGINT) AS cost_ns, share AS score,
  1.0 / partitions AS threshold, CAST(NULL AS DOUBLE) AS confidence, FALSE AS innocent,
  'SELECT * FROM sys.key_frequencies WHERE query_id = ' || query_id || ' AND exchange_id = ' || operator_id
    || ' ORDER BY share DESC' AS evidence_sql
FROM heavy
WHERE of_fragment = 1
