-- What is conspicuous about a query: one row for each finding, with SQL that shows why,
-- the time that it costs (NULL where that cannot be told) and what to do. The severity follows
-- from the share of the query's execution time: `critical` from a half, `warning` from a tenth. The rule
-- `expensive input` holds for each record of `sys.anomalies`, with severity `warning` at least.
-- `zoom_sql` looks more closely: it runs a query again, at level `records`, that was only counted. Of
-- a query that ran elsewhere it is NULL: the tables are there. The columns from `operator_id` on say of what the
-- finding is, as `subject` does in words; they are NULL where they do not apply. `exchange_id` is the
-- operator if that is an exchange, and `fragment_id` is also that of the operator.
SELECT
  found.query_id, found.rule,
  CASE
    WHEN found.severity IS NOT NULL THEN found.severity
    WHEN found.wasted_ns >= 0.5 * queries.execution_ns THEN 'critical'
    WHEN found.wasted_ns >= 0.1 * queries.execution_ns THEN 'warning'
    WHEN found.rule = 'expensive input' THEN 'warning'
    ELSE 'info'
  END AS severity,
  found.subject, found.evidence_sql, found.wasted_ns, found.advice,
  CASE
    WHEN queries.imported_from IS NOT NULL THEN NULL
    WHEN found.reason = 'fan-out' OR found.rule = 'expensive input' AND queries.lineage = 'piggyback' THEN NULL
    WHEN found.rule = 'expensive input' THEN 'SELECT * FROM sys.blame(' || found.query_id || ')'
    WHEN found.rule IN ('slow rows', 'task imbalance', 'data skew', 'spilling')
      AND queries.profile_level IN ('counters', 'calls')
      AND regexp_like(queries.sql, '^[\s(]*(select|with|values|from|table)\b', 'i')
      THEN 'EXPLAIN PROFILE QUERY ' || found.query_id
  END AS zoom_sql,
  found.operator_id, coalesce(found.fragment_id, operators.fragment_id) AS fragment_id, found.worker_id,
  found.partition, found.exchange_id, found.table_name, found.row_id
FROM (
  SELECT
    query_id, 'expensive input' AS rule, CAST(NULL AS VARCHAR) AS severity,
    table_name || ' row ' || row_id AS subject,
    'SELECT * FROM sys.anomalies WHERE query_id = ' || query_id || ' ORDER BY cost_ns DESC'
      AS evidence_sql,
    cost_ns AS wasted_ns,
    CASE
      WHEN reason = 'fan-out' THEN
        'It became ' || rows_made || ' of the ' || table_rows || ' rows that descend from its table. Look at '
          || 'this record: SELECT * FROM ' || table_name || ' WHERE _row_id = ' || row_id
          || '. Removing or splitting it saves up to what operators took for these rows.'
      ELSE
        'Look at this record: SELECT * FROM ' || table_name || ' WHERE _row_id = ' || row_id
          || '. Removing, splitting or rewriting it saves up to its '
          || CASE WHEN reason = 'self time' THEN 'self time.' ELSE 'impact.' END
    END AS advice,
    operator_id, CAST(NULL AS BIGINT) AS fragment_id, CAST(NULL AS BIGINT) AS worker_id,
    CAST(NULL AS BIGINT) AS partition, CAST(NULL AS BIGINT) AS exchange_id, table_name, row_id,
    reason
  FROM sys.anomalies
  WHERE row_id IS NOT NULL

  UNION ALL
  SELECT *, CAST(NULL AS VARCHAR) AS reason
  FROM (
    SELECT
      query_id, 'shuffle latency' AS rule, CAST(NULL AS VARCHAR) AS severity,
      'result row ' || first_value(output_row ORDER BY total_ns DESC, output_row) AS subject,
      'SELECT * FROM sys.heavy_records WHERE query_id = ' || query_id || ' ORDER BY edges DESC LIMIT 10'
        AS evidence_sql,
      max(shuffle_ns) AS wasted_ns,
      'The slowest result row waits for records to be brought together, not for computation: a key '
        || 'has very many records. Aggregate them in two steps, or earlier.' AS advice,
      CAST(NULL AS BIGINT) AS operator_id, CAST(NULL AS BIGINT) AS fragment_id,
      CAST(NULL AS BIGINT) AS worker_id, CAST(NULL AS BIGINT) AS partition,
      CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name,
      CAST(NULL AS BIGINT) AS row_id
    FROM sys.output_latency
    GROUP BY query_id
    HAVING max(shuffle_ns) >= 1000000
      AND first_value(shuffle_ns ORDER BY total_ns DESC, output_row) > 0.5 * max(total_ns)

    UNION ALL
    SELECT
      query_id, 'task imbalance', CAST(NULL AS VARCHAR),
      'fragment ' || fragment_id || ', partition ' || longest_partition || ' on worker '
        || longest_worker,
      'SELECT * FROM sys.stragglers WHERE query_id = ' || query_id || ' ORDER BY excess_ns DESC',
      wasted_ns,
      'This task worked ' || CAST(round(max_ns / 1000000.0) AS BIGINT) || ' ms, the median of the '
        || 'fragment''s ' || tasks || ' tasks ' || CAST(round(median_ns / 1000000.0) AS BIGINT)
        || ' ms: see sys.data_skew whether it has more rows.',
      CAST(NULL AS BIGINT) AS operator_id, fragment_id, longest_worker AS worker_id,
      longest_partition AS partition, CAST(NULL AS BIGINT) AS exchange_id,
      CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id
    FROM sys.task_imbalance
    WHERE imbalance >= 1.5 AND wasted_ns >= 10000000

    UNION ALL
    SELECT
      query_id, 'slow rows', CAST(NULL AS VARCHAR),
      'operator ' || operator_id || ' ' || name || ', partition ' || partition || ' on worker '
        || worker_id,
      'SELECT * FROM sys.stragglers WHERE query_id = ' || query_id || ' ORDER BY excess_ns DESC',
      excess_ns,
      'Its ' || rows_in || ' rows took ' || CAST(round(row_ns) AS BIGINT) || ' ns each, those of the '
        || 'other partitions ' || CAST(round(others_row_ns) AS BIGINT) || ' ns: a few records may be '
        || 'expensive. Recorded at level records, sys.expensive_inputs names them.',
      operator_id, fragment_id, worker_id, partition, CAST(NULL AS BIGINT) AS exchange_id,
      CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id
    FROM (
      SELECT
        *, CAST(self_ns AS DOUBLE) / greatest(rows_in, 1) AS row_ns,
        CAST(others_ns AS DOUBLE) / greatest(others_rows, 1) AS others_row_ns,
        row_number() OVER (PARTITION BY query_id ORDER BY excess_ns DESC, operator_id) AS place
      FROM sys.stragglers
      WHERE rows_in > 0 AND others_rows > 0 AND excess_ns >= 10000000
    ) AS slow
    WHERE place = 1 AND row_ns >= 4 * others_row_ns

    UNION ALL
    SELECT
      skew.query_id, 'data skew', 'warning',
      'operator ' || skew.operator_id || ' ' || skew.name || ', partition ' || skew.largest_partition,
      'SELECT * FROM sys.key_frequencies WHERE query_id = ' || skew.query_id
        || ' AND exchange_id = ' || skew.operator_id || ' ORDER BY share DESC',
      CAST(NULL AS BIGINT),
      'The partition got ' || CAST(round(100 * skew.share) AS BIGINT) || ' % of ' || skew.rows
        || ' rows. '
        || coalesce(
          'About ' || CAST(round(100 * heavy.share) AS BIGINT) || ' % of all rows ' || CASE
            WHEN skew.routing = 'value number' THEN
              'are made of one value that a subquery is asked for, as of a long list.'
            ELSE
              'have the key ' || heavy.key
                || ': treat that key by itself, or, where rows are grouped, aggregate before the exchange.'
          END,
          'No key has many of them: choose a key with more values.'
        ),
      skew.operator_id, CAST(NULL AS BIGINT) AS fragment_id, CAST(NULL AS BIGINT) AS worker_id,
      skew.largest_partition AS partition, skew.operator_id AS exchange_id,
      CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id
    FROM sys.data_skew AS skew
    LEFT JOIN (
      SELECT
        query_id, exchange_id, max(share) AS share,
        first_value(key ORDER BY share DESC, key) AS key
      FROM sys.key_frequencies
      WHERE input IS NULL
      GROUP BY query_id, exchange_id
    ) AS heavy ON skew.query_id = heavy.query_id AND skew.operator_id = heavy.exchange_id
    WHERE skew.routing IN ('hash', 'value number') AND skew.rows >= 100000
      AND skew.max_rows * (skew.partitions - 1) >= 3 * (skew.rows - skew.max_rows)

    UNION ALL
    -- A key that many rows of both inputs of a join have: it makes as many rows as the product.
    SELECT
      hot.query_id, 'hot join key', 'warning',
      'operator ' || hot.operator_id || ' ' || hot.name,
      'SELECT * FROM sys.key_frequencies WHERE query_id = ' || hot.query_id || ' AND exchange_id = '
        || hot.operator_id || ' ORDER BY tuples DESC',
      CAST(NULL AS BIGINT),
      'The join makes ' || hot.rows_out || ' rows of ' || hot.rows_in || ' rows. About '
        || CAST(round(100 * least(hot.product / hot.rows_out, 1.0)) AS BIGINT) || ' % of them have the key '
        || hot.key || ', which many rows of both inputs have: aggregate before the join, or treat that key '
        || 'by itself.',
      hot.operator_id, CAST(NULL AS BIGINT) AS fragment_id, CAST(NULL AS BIGINT) AS worker_id,
      CAST(NULL AS BIGINT) AS partition, CAST(NULL AS BIGINT) AS exchange_id,
      CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id
    FROM (
      SELECT
        joins.query_id, joins.operator_id, joins.name, joins.rows_in, joins.rows_out, keys.key, keys.product,
        row_number() OVER (
          PARTITION BY joins.query_id, joins.operator_id ORDER BY keys.product DESC, keys.key
        ) AS place
      FROM sys.operator_contribution AS joins
      JOIN (
        -- Each worker joins what it has seen of both.
        SELECT
          one.query_id, one.exchange_id, one.key,
          sum(CAST(one.tuples AS DOUBLE) * other.tuples) AS product
        FROM sys.key_frequencies AS one
        JOIN sys.key_frequencies AS other
          ON one.query_id = other.query_id AND one.exchange_id = other.exchange_id
            AND one.worker_id = other.worker_id AND one.key = other.key
        WHERE one.input = 0 AND other.input = 1
        GROUP BY one.query_id, one.exchange_id, one.key
      ) AS keys ON joins.query_id = keys.query_id AND joins.operator_id = keys.exchange_id
      WHERE joins.rows_out >= 100000 AND joins.rows_out >= 2 * joins.rows_in
    ) AS hot
    -- Rows that do not match make far fewer rows than that: their key is NULL, or another condition leaves
    -- them out.
    WHERE hot.place = 1 AND hot.product BETWEEN 0.2 * hot.rows_out AND 2 * hot.rows_out

    UNION ALL
    SELECT
      query_id, 'spilling', 'warning',
      'operator ' || operator_id || ' ' || name,
      'SELECT * FROM sys.operator_contribution WHERE query_id = ' || query_id
        || ' AND spilled_bytes > 0',
      CAST(NULL AS BIGINT),
      'The operator wrote ' || spilled_bytes || ' bytes to temporary files: raise the memory limit '
        || 'or reduce what it holds.',
      operator_id, CAST(NULL AS BIGINT) AS fragment_id, CAST(NULL AS BIGINT) AS worker_id,
      CAST(NULL AS BIGINT) AS partition, CAST(NULL AS BIGINT) AS exchange_id,
      CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id
    FROM sys.operator_contribution
    WHERE spilled_bytes > 0

    UNION ALL
    SELECT
      query_id, 'wrong estimate', 'info',
      'operator ' || operator_id || ' ' || name,
      'SELECT operator_id, name, estimated_rows, rows_out FROM sys.operator_contribution WHERE query_id = '
        || query_id || ' ORDER BY operator_id',
      CAST(NULL AS BIGINT),
      'Expected ' || estimated_rows || ' rows, got ' || rows_out
        || ' rows: the order and the sides of joins may be wrong.',
      operator_id, CAST(NULL AS BIGINT) AS fragment_id, CAST(NULL AS BIGINT) AS worker_id,
      CAST(NULL AS BIGINT) AS partition, CAST(NULL AS BIGINT) AS exchange_id,
      CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id
    FROM sys.operator_contribution
    WHERE kind = 'join' AND greatest(estimated_rows, rows_out) >= 100000
      AND greatest(estimated_rows, rows_out) >= 10 * least(estimated_rows, rows_out)

    UNION ALL
    SELECT
      query_id, 'slow planning', CAST(NULL AS VARCHAR),
      'the query',
      'SELECT planning_ns, execution_ns FROM sys.queries WHERE query_id = ' || query_id,
      planning_ns,
      'Planning took longer than execution: prepare the statement once, or join fewer tables. (Functions '
        || 'of constants are computed while planning.)',
      CAST(NULL AS BIGINT) AS operator_id, CAST(NULL AS BIGINT) AS fragment_id,
      CAST(NULL AS BIGINT) AS worker_id, CAST(NULL AS BIGINT) AS partition,
      CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name,
      CAST(NULL AS BIGINT) AS row_id
    FROM sys.queries
    WHERE planning_ns >= 100000000 AND planning_ns > execution_ns

    UNION ALL
    SELECT
      query_id, 'incomplete profile', 'warning',
      'worker ' || worker_id,
      'SELECT * FROM sys.profiler_overhead WHERE query_id = ' || query_id,
      CAST(NULL AS BIGINT),
      events_dropped || ' events were dropped since the profiler''s memory was full: lower '
        || 'profile.sample_rate, or take every number about this query as a lower bound.',
      CAST(NULL AS BIGINT) AS operator_id, CAST(NULL AS BIGINT) AS fragment_id, worker_id,
      CAST(NULL AS BIGINT) AS partition, CAST(NULL AS BIGINT) AS exchange_id,
      CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id
    FROM sys.profiler_overhead
    WHERE events_dropped > 0
  ) AS others
) AS found
JOIN sys.queries AS queries ON found.query_id = queries.query_id
LEFT JOIN sys.operators AS operators
  ON found.query_id = operators.query_id AND found.operator_id = operators.operator_id
-- What was expected of all rows says nothing of a part of them.
WHERE found.rule <> 'wrong estimate' OR queries.status = 'finished'
