-- Findings about operators: the rows of sys.multiplying_joins, sys.wrong_estimates, sys.spills, sys.fission and
-- sys.slow_client together, which one pass over sys.operator_stats makes. Level `counters` and above.
WITH tasks AS (
  SELECT
    stats.query_id, stats.fragment_id, stats.operator_id, stats.worker_id, stats.partition, stats.rows_in,
    stats.rows_out, stats.self_ns, stats.output_wait_ns, stats.spilled_bytes, operators.name, operators.kind,
    operators.estimated_rows, operators.details LIKE '%mode=CollectLeft%' AS is_broadcast, operators.is_expression,
    metrics.spilled_rows, metrics.build_rows, metrics.probe_rows, metrics.build_ns, operators.build_estimate,
    sum(stats.self_ns) OVER (
      PARTITION BY stats.query_id, stats.fragment_id, stats.worker_id, stats.partition ORDER BY stats.operator_id
    ) AS above_ns,
    sum(stats.self_ns) OVER one_task AS task_ns,
    sum(CASE WHEN is_expression THEN stats.self_ns END) OVER one_task AS expressions_ns,
    max(CASE WHEN is_expression THEN stats.self_ns END) OVER one_task AS dearest_ns
  FROM sys.operator_stats AS stats
  JOIN (
    SELECT
      query_id, operator_id, name, kind, estimated_rows, details,
      kind IN ('evaluation', 'projection', 'filter', 'unnest') AS is_expression,
      -- The first input of an operator has the next number. Nobody estimates rows of exchanges.
      nullif(
        first_value(CASE WHEN kind <> 'exchange' THEN coalesce(estimated_rows, -1) END) IGNORE NULLS OVER (
          PARTITION BY query_id ORDER BY operator_id ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING),
        -1) AS build_estimate
    FROM sys.operators
  ) AS operators ON stats.query_id = operators.query_id AND stats.operator_id = operators.operator_id
  LEFT JOIN (
    SELECT
      query_id, operator_id, worker_id, partition,
      sum(CASE WHEN metric = 'spilled_rows' THEN value END) AS spilled_rows,
      sum(CASE WHEN metric = 'build_input_rows' THEN value END) AS build_rows,
      sum(CASE WHEN metric = 'input_rows' THEN value END) AS probe_rows,
      sum(CASE WHEN metric = 'build_time_ns' THEN value END) AS build_ns
    FROM sys.operator_metrics
    WHERE metric IN ('spilled_rows', 'build_input_rows', 'input_rows', 'build_time_ns')
    GROUP BY query_id, operator_id, worker_id, partition
  ) AS metrics
    ON stats.query_id = metrics.query_id AND stats.operator_id = metrics.operator_id
      AND stats.worker_id = metrics.worker_id AND stats.partition = metrics.partition
  WINDOW one_task AS (PARTITION BY stats.query_id, stats.fragment_id, stats.worker_id, stats.partition)
),
operators AS (
  SELECT
    query_id, fragment_id, operator_id, name, kind, is_expression, max(estimated_rows) AS estimated_rows,
    max(build_estimate) AS build_estimate, sum(rows_in) AS rows_in, sum(rows_out) AS rows_out,
    max(self_ns) AS self_ns, max(output_wait_ns) AS output_wait_ns, sum(spilled_bytes) AS spilled_bytes,
    sum(spilled_rows) AS spilled_rows,
    max(self_ns * (CAST(spilled_rows AS DOUBLE) / greatest(rows_in + spilled_rows, 1))) AS spill_ns,
    CASE WHEN bool_or(is_broadcast) THEN max(build_rows) ELSE sum(build_rows) END AS build_rows,
    sum(probe_rows) AS probe_rows,
    -- Exchanges bring all rows of the first input to each task that joins.
    max(build_ns) + CASE
      WHEN bool_or(is_broadcast) AND lead(kind, 1) OVER plans = 'exchange' THEN
        lead(max(self_ns), 1) OVER plans
          + CASE WHEN lead(kind, 2) OVER plans = 'exchange' THEN lead(max(self_ns), 2) OVER plans ELSE 0 END
      ELSE 0
    END AS build_ns,
    coalesce(
      greatest(CASE WHEN bool_or(is_broadcast) THEN max(build_rows) ELSE sum(build_rows) END, sum(probe_rows)),
      sum(rows_in)) AS larger_rows, max(above_ns) AS above_ns,
    first_value(worker_id ORDER BY above_ns DESC, partition) AS worker_id,
    first_value(partition ORDER BY above_ns DESC, partition) AS partition,
    max(CASE WHEN is_expression AND self_ns = dearest_ns AND 2 * expressions_ns >= task_ns THEN expressions_ns END)
      AS expressions_ns,
    max(dearest_ns) AS dearest_ns, count(*) AS tasks, sum(sum(self_ns)) OVER queries AS busy_ns,
    max(count(*)) OVER queries AS most_tasks
  FROM tasks
  GROUP BY query_id, fragment_id, operator_id, name, kind, is_expression
  WINDOW queries AS (PARTITION BY query_id), plans AS (PARTITION BY query_id ORDER BY operator_id)
),
keys AS (
  -- Each worker joins what it has seen of both inputs.
  SELECT
    query_id, exchange_id, max(product) AS product, first_value(key ORDER BY product DESC, key) AS key
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
    GROUP BY query_id, exchange_id, key
  ) AS products
  GROUP BY query_id, exchange_id
),
rated AS (
  SELECT
    operators.*, kinds.rule, queries.execution_ns, queries.status, queries.rows_returned,
    regexp_like(queries.sql, '^[\s(]*(select|with|values|from|table)\b', 'i') AS returns_rows,
    coalesce(queries.queued_ns, 0) + coalesce(queries.planning_ns, 0) + coalesce(queries.execution_ns, 0)
      AS elapsed_ns,
    -- A key that makes far more or fewer rows than there are is no cause: most of its rows do not match.
    CASE WHEN keys.product >= 0.2 * rows_out AND keys.product <= 2 * rows_out THEN keys.key END AS key,
    least(keys.product / greatest(rows_out, 1), 1) AS part,
    CAST(CASE kinds.rule
      WHEN 'join multiplies rows' THEN above_ns * (1 - CAST(larger_rows AS DOUBLE) / greatest(rows_out, 1))
      WHEN 'spilling' THEN spill_ns
      WHEN 'slow client' THEN output_wait_ns
      WHEN 'operator fission' THEN
        CASE WHEN tasks = 1 THEN expressions_ns * (1 - 1.0 / most_tasks) ELSE expressions_ns - dearest_ns END
      WHEN 'wrong estimate' THEN CASE
        WHEN build_rows >= 2 * probe_rows AND build_rows >= 10 * build_estimate
          THEN build_ns * (1 - CAST(probe_rows AS DOUBLE) / build_rows)
      END
    END AS BIGINT) AS cost_ns
  FROM operators
  JOIN sys.queries AS queries ON operators.query_id = queries.query_id
  LEFT JOIN keys ON operators.query_id = keys.query_id AND operators.operator_id = keys.exchange_id
  CROSS JOIN (
    VALUES ('join multiplies rows'), ('wrong estimate'), ('spilling'), ('operator fission'), ('slow client')
  ) AS kinds (rule)
)
SELECT
  query_id, CASE WHEN rule = 'join multiplies rows' AND key IS NOT NULL THEN 'hot join key' ELSE rule END AS detector,
  CASE
    WHEN rule = 'slow client' THEN 'the reader of the result' ELSE concat('operator ', operator_id, ' ', name)
  END AS subject,
  CASE rule
    WHEN 'join multiplies rows' THEN concat(
      'The join makes ', rows_out, ' rows of ', rows_in, ' rows. ',
      CASE
        WHEN key IS NOT NULL THEN concat(
          'About ', CAST(round(100 * part) AS BIGINT), ' % of them have the key ', key,
          ', which many rows of both inputs have. ')
      END,
      'The rows beyond its larger input cost a task up to ', cost_ns / 1000000, ' ms.')
    WHEN 'spilling' THEN concat(
      'The operator wrote ', spilled_bytes, ' bytes to temporary files',
      CASE
        WHEN cost_ns IS NOT NULL
          THEN concat(', ', spilled_rows, ' rows: that took about ', cost_ns / 1000000, ' ms')
      END, '.')
    WHEN 'slow client' THEN concat(
      'The query was not slow, the client was: ', rows_returned, ' rows waited ',
      cost_ns / 1000000, ' ms of ', elapsed_ns / 1000000,
      ' ms to be taken.')
    WHEN 'operator fission' THEN concat(
      'A task evaluated expressions for ', expressions_ns / 1000000, ' ms of ',
      execution_ns / 1000000, ' ms, ',
      CASE
        WHEN tasks = 1 THEN 'alone in its fragment, while processors had little to do.'
        ELSE concat(
          'one operator after the other. The dearest took ', dearest_ns / 1000000, ' ms.')
      END)
    ELSE CASE
      WHEN cost_ns IS NULL THEN concat('Expected ', estimated_rows, ' rows, got ', rows_out, ' rows.')
      ELSE concat(
        'The join built its hash table of ', build_rows, ' rows where it expected ', build_estimate,
        ', and looked up ', probe_rows, ' rows: the smaller input would save ',
        cost_ns / 1000000, ' ms.')
    END
  END AS cause,
  CASE rule
    WHEN 'join multiplies rows' THEN CASE
      WHEN key IS NULL
        THEN 'Look whether the join has all its conditions. Aggregate one input by its key before the join.'
      ELSE 'Aggregate before the join, or treat that key by itself.'
    END
    WHEN 'spilling' THEN 'Raise the memory limit, or reduce what the operator holds.'
    WHEN 'slow client' THEN 'Read the rows faster, or ask for fewer: with LIMIT, fewer columns, or by grouping.'
    WHEN 'operator fission' THEN CASE
      WHEN tasks = 1 THEN 'Store the rows in a table with several row groups, so that several tasks share the work.'
      ELSE 'Compute one of the expressions by itself, and store its result or redistribute the rows between both.'
    END
    ELSE CASE
      WHEN cost_ns IS NULL THEN 'The order and the sides of joins may be wrong.'
      ELSE 'Compute the larger input into a table first, so that its size is known, or join it last.'
    END
  END AS advice,
  fragment_id, operator_id,
  CASE WHEN rule IN ('join multiplies rows', 'operator fission') THEN worker_id END AS worker_id,
  CASE WHEN rule IN ('join multiplies rows', 'operator fission') THEN partition END AS partition,
  CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id,
  cost_ns,
  CASE rule
    WHEN 'join multiplies rows' THEN CAST(rows_out AS DOUBLE) / greatest(larger_rows, 1)
    WHEN 'spilling' THEN CAST(spilled_bytes AS DOUBLE)
    WHEN 'slow client' THEN CAST(cost_ns AS DOUBLE) / elapsed_ns
    WHEN 'operator fission' THEN CAST(expressions_ns AS DOUBLE) / execution_ns
    ELSE CAST(greatest(estimated_rows, rows_out) AS DOUBLE) / greatest(least(estimated_rows, rows_out), 1)
  END AS score,
  CASE rule
    WHEN 'join multiplies rows' THEN 1.5 WHEN 'spilling' THEN 0.0 WHEN 'slow client' THEN 0.3
    WHEN 'operator fission' THEN 0.5 ELSE 10.0
  END AS threshold,
  CAST(NULL AS DOUBLE) AS confidence,
  rule = 'spilling' AND self_ns < 10000000 OR rule = 'wrong estimate' AND cost_ns IS NULL AS innocent,
  CASE
    WHEN key IS NOT NULL AND rule = 'join multiplies rows' THEN concat(
      'SELECT * FROM sys.key_frequencies WHERE query_id = ', query_id, ' AND exchange_id = ', operator_id,
      ' ORDER BY tuples DESC')
    ELSE concat(
      'SELECT * FROM sys.operator_contribution WHERE query_id = ', query_id, ' AND operator_id = ', operator_id)
  END AS evidence_sql
FROM rated
WHERE CASE rule
  WHEN 'join multiplies rows' THEN
    kind = 'join' AND rows_out >= 100000 AND rows_out >= 1.5 * larger_rows AND cost_ns >= 10000000
  WHEN 'spilling' THEN spilled_bytes > 0
  -- A client on the same machine takes half a microsecond a row.
  WHEN 'slow client' THEN
    operator_id = 0 AND returns_rows AND cost_ns >= 10000000 AND cost_ns >= 0.3 * elapsed_ns
      AND cost_ns >= 1000 * rows_returned
  WHEN 'operator fission' THEN
    expressions_ns >= 100000000 AND expressions_ns >= 0.5 * execution_ns AND most_tasks >= 2
      -- A processor at least was free.
      AND busy_ns <= (most_tasks - 0.5) * execution_ns
      AND (tasks = 1 OR expressions_ns - dearest_ns >= 0.1 * expressions_ns)
  ELSE
    kind = 'join' AND status = 'finished'
      AND (
        cost_ns >= 10000000 OR cost_ns IS NULL AND greatest(estimated_rows, rows_out) >= 100000
          AND greatest(estimated_rows, rows_out) >= 10 * least(estimated_rows, rows_out))
END
