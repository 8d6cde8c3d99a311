-- Joins that return far more rows than they take: at least 100,000, and twice the rows of both inputs. If one key
-- makes at least a fifth of the result, since many rows of both inputs have it, the finding is `hot join key`, else
-- `join multiplies rows`. The rows of a key in the result are the product of its rows in both inputs, estimated from
-- samples. Its cost is the longest task's time in the join and in the operators of the same fragment above it, of the
-- part of the rows beyond both inputs. Level `counters` and above.
WITH keys AS (
  -- Each worker joins what it has seen of both.
  SELECT query_id, exchange_id, key, product, row_number() OVER (
    PARTITION BY query_id, exchange_id ORDER BY product DESC, key) AS place
  FROM (
    SELECT query_id, exchange_id, key, sum(CAST(one AS DOUBLE) * other) AS product
    FROM (
      SELECT
        query_id, exchange_id, key, worker_id, sum(CASE WHEN input = 0 THEN tuples END) AS one,
        sum(CASE WHEN input = 1 THEN tuples END) AS other
      FROM sys.key_frequencies
      WHERE input IS NOT NULL
      GROUP BY query_id, exchange_id, key, worker_id
    ) AS of_workers
    WHERE one IS NOT NULL AND other IS NOT NULL
    GROUP BY query_id, exchange_id, key
  ) AS products
),
joins AS (
  SELECT
    query_id, fragment_id, operator_id, name, sum(rows_in) AS rows_in, sum(rows_out) AS rows_out,
    max(above_ns) AS above_ns, first_value(worker_id ORDER BY above_ns DESC, partition) AS worker_id,
    first_value(partition ORDER BY above_ns DESC, partition) AS partition
  FROM (
    SELECT
      stats.query_id, stats.fragment_id, stats.operator_id, stats.worker_id, stats.partition, operators.name,
      operators.kind, stats.rows_in, stats.rows_out,
      sum(stats.self_ns) OVER (
        PARTITION BY stats.query_id, stats.fragment_id, stats.worker_id, stats.partition
        ORDER BY stats.operator_id
      ) AS above_ns
    FROM sys.operator_stats AS stats
    JOIN sys.operators AS operators
      ON stats.query_id = operators.query_id AND stats.operator_id = operators.operator_id
  ) AS tasks
  WHERE kind = 'join'
  GROUP BY query_id, fragment_id, operator_id, name
),
found AS (
  SELECT
    joins.*, keys.key, keys.product, keys.product / joins.rows_out AS part,
    joins.above_ns * (1 - CAST(joins.rows_in AS DOUBLE) / joins.rows_out) AS cost_ns
  FROM joins
  -- Rows that do not match make far fewer rows than that: their key is NULL, or another condition leaves them out.
  LEFT JOIN keys
    ON joins.query_id = keys.query_id AND joins.operator_id = keys.exchange_id AND keys.place = 1
      AND keys.product >= 0.2 * joins.rows_out AND keys.product <= 2 * joins.rows_out
  WHERE joins.rows_out >= 100000 AND joins.rows_out >= 2 * joins.rows_in
)
SELECT
  query_id, CASE WHEN key IS NULL THEN 'join multiplies rows' ELSE 'hot join key' END AS detector,
  'operator ' || operator_id || ' ' || name AS subject,
  'The join makes ' || rows_out || ' rows of ' || rows_in || ' rows. '
    || coalesce(
      'About ' || CAST(round(100 * least(part, 1.0)) AS BIGINT) || ' % of them have the key ' || key
        || ', which many rows of both inputs have. ',
      '')
    || 'The rows beyond its inputs cost a task up to ' || CAST(round(cost_ns / 1000000.0) AS BIGINT) || ' ms.'
    AS cause,
  CASE
    WHEN key IS NULL THEN
      'Look whether the join has all its conditions. Aggregate one input by its key before the join.'
    ELSE 'Aggregate before the join, or treat that key by itself.'
  END AS advice,
  fragment_id, operator_id, worker_id, partition,
  CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id,
  CAST(cost_ns AS BIGINT) AS cost_ns, CAST(rows_out AS DOUBLE) / greatest(rows_in, 1) AS score, 2.0 AS threshold,
  CAST(NULL AS DOUBLE) AS confidence, FALSE AS innocent,
  CASE
    WHEN key IS NULL THEN
      'SELECT operator_id, name, rows_in, rows_out, self_ns FROM sys.operator_contribution WHERE query_id = '
        || query_id || ' AND operator_id <= ' || operator_id || ' ORDER BY operator_id'
    ELSE
      'SELECT * FROM sys.key_frequencies WHERE query_id = ' || query_id || ' AND exchange_id = ' || operator_id
        || ' ORDER BY tuples DESC'
  END AS evidence_sql
FROM found
