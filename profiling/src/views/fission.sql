-- Work that waits in one place while processors idle: `operator fission`. Either a fragment ran in one task that worked
-- for half of the query's execution and at least 100 ms, mostly in expressions: its cost is what several tasks would
-- save. Or two operators of one task that evaluate expressions cost unequally much, and the cheaper one costs a tenth
-- of the time or more: as stages of a pipeline on two processors they take as long as the dearer one. Both need
-- processors that were free: the query's tasks worked less than the processors that the worker had, where that is
-- known, or than the tasks of its widest fragment. Level `counters` and above.
-- Source: Hirzel et al., A catalog of stream processing optimizations, ACM Computing Surveys 2014 (fission).
WITH work AS (
  SELECT
    query_id, fragment_id, worker_id, partition, sum(self_ns) AS task_ns,
    sum(CASE WHEN is_expression THEN self_ns END) AS expressions_ns,
    max(CASE WHEN is_expression THEN self_ns END) AS dearest_ns,
    count(CASE WHEN is_expression AND self_ns >= 10000000 THEN 1 END) AS expensive,
    first_value(operator_id ORDER BY is_expression DESC, self_ns DESC, operator_id) AS operator_id,
    first_value(name ORDER BY is_expression DESC, self_ns DESC, operator_id) AS name,
    count(*) OVER (PARTITION BY query_id, fragment_id) AS tasks,
    sum(sum(self_ns)) OVER (PARTITION BY query_id) AS busy_ns
  FROM (
    SELECT
      stats.query_id, stats.fragment_id, stats.worker_id, stats.partition, stats.operator_id, stats.self_ns,
      operators.name, operators.kind IN ('evaluation', 'projection', 'filter', 'unnest') AS is_expression
    FROM sys.operator_stats AS stats
    JOIN sys.operators AS operators
      ON stats.query_id = operators.query_id AND stats.operator_id = operators.operator_id
  ) AS operators
  GROUP BY query_id, fragment_id, worker_id, partition
),
processors AS (
  SELECT query_id, min(cores) AS cores
  FROM (
    SELECT query_id, worker_id, max(value) AS cores
    FROM sys.worker_metrics
    WHERE metric = 'effective_cores'
    GROUP BY query_id, worker_id
  ) AS workers
  GROUP BY query_id
),
found AS (
  SELECT
    work.*, queries.execution_ns,
    coalesce(processors.cores, max(work.tasks) OVER (PARTITION BY work.query_id)) AS cores,
    CASE
      WHEN work.tasks = 1 THEN work.expressions_ns
      ELSE work.expressions_ns - work.dearest_ns
    END AS divisible_ns,
    row_number() OVER (
      PARTITION BY work.query_id ORDER BY work.expressions_ns DESC NULLS LAST, work.fragment_id, work.partition
    ) AS place
  FROM work
  JOIN sys.queries AS queries ON work.query_id = queries.query_id
  LEFT JOIN processors ON work.query_id = processors.query_id
)
SELECT
  query_id, 'operator fission' AS detector, 'operator ' || operator_id || ' ' || name AS subject,
  CASE
    WHEN tasks = 1 THEN
      'One task evaluated expressions for ' || CAST(round(expressions_ns / 1000000.0) AS BIGINT) || ' ms of '
        || CAST(round(execution_ns / 1000000.0) AS BIGINT) || ' ms, while '
        || CAST(floor(cores) - 1 AS BIGINT) || ' more processors had little to do.'
    ELSE
      'Expressions of one task took ' || CAST(round(expressions_ns / 1000000.0) AS BIGINT)
        || ' ms one after the other, the dearest operator ' || CAST(round(dearest_ns / 1000000.0) AS BIGINT) || ' ms.'
  END AS cause,
  CASE
    WHEN tasks = 1 THEN 'Read the rows from a table with several segments, or split the statement, so that tasks share the work.'
    ELSE 'Compute the expressions in two steps with rows redistributed between them, or store the result of one.'
  END AS advice,
  fragment_id, operator_id, worker_id, partition, CAST(NULL AS BIGINT) AS exchange_id,
  CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id,
  CAST(CASE WHEN tasks = 1 THEN divisible_ns * (1 - 1 / cores) ELSE divisible_ns END AS BIGINT) AS cost_ns,
  CAST(expressions_ns AS DOUBLE) / execution_ns AS score, 0.5 AS threshold, CAST(NULL AS DOUBLE) AS confidence,
  FALSE AS innocent,
  'SELECT operator_id, worker_id, partition, self_ns FROM sys.operator_stats WHERE query_id = ' || query_id
    || ' AND fragment_id = ' || fragment_id || ' ORDER BY self_ns DESC' AS evidence_sql
FROM found
WHERE place = 1 AND expressions_ns >= 100000000 AND expressions_ns >= 0.5 * execution_ns
  AND expressions_ns >= 0.5 * task_ns AND cores >= 2
  -- A processor at least was free.
  AND busy_ns <= (cores - 0.5) * execution_ns
  AND (tasks = 1 OR expensive >= 2 AND divisible_ns >= 0.1 * expressions_ns)
