-- Joins of which the planner expected something else: `wrong estimate`. Either the rows that the join returned are
-- off tenfold, at 100,000 rows or more: then its cost is unknown. Or the join built its hash table of the input that
-- turned out at least twice as large as the other, and ten times as large as expected: its cost is the longest
-- task's time to build, less that part which the smaller input would have taken. In a broadcast join each worker
-- builds all rows. Queries that finished, level `counters` and above.
WITH sides AS (
  SELECT
    query_id, operator_id, max(build_rows) AS most_build_rows, sum(build_rows) AS build_rows,
    sum(probe_rows) AS probe_rows, max(build_ns) AS build_ns
  FROM (
    SELECT
      query_id, operator_id, worker_id,
      sum(CASE WHEN metric = 'build_input_rows' THEN value END) AS build_rows,
      sum(CASE WHEN metric = 'input_rows' THEN value END) AS probe_rows,
      max(CASE WHEN metric = 'build_time_ns' THEN value END) AS build_ns
    FROM sys.operator_metrics
    WHERE metric IN ('build_input_rows', 'input_rows', 'build_time_ns')
    GROUP BY query_id, operator_id, worker_id
  ) AS workers
  GROUP BY query_id, operator_id
),
joins AS (
  SELECT
    operators.query_id, operators.fragment_id, operators.operator_id, operators.name, operators.kind,
    operators.estimated_rows, operators.rows_out, sides.probe_rows, sides.build_ns,
    CASE
      WHEN operators.details LIKE '%mode=CollectLeft%' THEN sides.most_build_rows ELSE sides.build_rows
    END AS build_rows,
    -- The first input of an operator has the next number.
    lead(operators.estimated_rows) OVER (
      PARTITION BY operators.query_id ORDER BY operators.operator_id) AS build_estimate
  FROM sys.operator_contribution AS operators
  LEFT JOIN sides
    ON operators.query_id = sides.query_id AND operators.operator_id = sides.operator_id
),
found AS (
  SELECT
    joins.*,
    CASE
      WHEN joins.build_rows >= 2 * joins.probe_rows AND joins.build_rows >= 10 * joins.build_estimate
        AND joins.build_ns * (1 - CAST(joins.probe_rows AS DOUBLE) / joins.build_rows) >= 10000000
        THEN joins.build_ns * (1 - CAST(joins.probe_rows AS DOUBLE) / joins.build_rows)
    END AS cost_ns
  FROM joins
  JOIN sys.queries AS queries ON joins.query_id = queries.query_id
  WHERE joins.kind = 'join' AND queries.status = 'finished'
)
SELECT
  query_id, 'wrong estimate' AS detector, 'operator ' || operator_id || ' ' || name AS subject,
  CASE
    WHEN cost_ns IS NULL THEN 'Expected ' || estimated_rows || ' rows, got ' || rows_out || ' rows.'
    ELSE
      'The join built its hash table of ' || build_rows || ' rows, where it expected ' || build_estimate
        || ' rows, and looked up only ' || probe_rows || ' rows: building took '
        || CAST(round(build_ns / 1000000.0) AS BIGINT) || ' ms, of the other input it would take '
        || CAST(round((build_ns - cost_ns) / 1000000.0) AS BIGINT) || ' ms.'
  END AS cause,
  CASE
    WHEN cost_ns IS NULL THEN 'The order and the sides of joins may be wrong.'
    ELSE 'Compute the larger input into a table first, so that its size is known, or exchange the sides of an outer join.'
  END AS advice,
  fragment_id, operator_id, CAST(NULL AS BIGINT) AS worker_id, CAST(NULL AS BIGINT) AS partition,
  CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id,
  CAST(cost_ns AS BIGINT) AS cost_ns,
  CASE
    WHEN cost_ns IS NULL
      THEN CAST(greatest(estimated_rows, rows_out) AS DOUBLE) / greatest(least(estimated_rows, rows_out), 1)
    ELSE CAST(build_rows AS DOUBLE) / greatest(build_estimate, 1)
  END AS score,
  10.0 AS threshold, CAST(NULL AS DOUBLE) AS confidence, FALSE AS innocent,
  'SELECT operator_id, name, estimated_rows, rows_out FROM sys.operator_contribution WHERE query_id = '
    || query_id || ' ORDER BY operator_id' AS evidence_sql
FROM found
WHERE cost_ns IS NOT NULL
  OR greatest(estimated_rows, rows_out) >= 100000
    AND greatest(estimated_rows, rows_out) >= 10 * least(estimated_rows, rows_out)
