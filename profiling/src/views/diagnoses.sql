-- What is conspicuous about a query, judged together: the findings of `sys.detections` that matter, one row each, with
-- what it costs, what to do, and SQL that shows why. A finding matters if it costs 10 ms and 5 % of the query's time
-- (queue, planning and execution). Detectors count a task's cost only as far as the task gates its fragment. Findings
-- whose cost cannot be told stay, and so does each record of `sys.anomalies`. `explained_by` names the finding that
-- causes this one; data explain before placement, and placement before the machine. `place` ranks what is left and
-- needs action: 1 is the verdict, 2 and 3 matter too. The dearest comes first; of those that cost at least 0.8 of it,
-- data come first. `severity` follows from the share of the query's execution time: `critical` from a half, `warning`
-- from a tenth. Thresholds are conservative, so that no correction for many tests is needed. `zoom_sql` looks more
-- closely: it runs a query again, at level `records`, that was only counted. Of a query that ran elsewhere it is NULL:
-- the tables are there. The columns from `operator_id` on say where the finding is, as `subject` does in words; they
-- are NULL where they do not apply. `cause` names the cause in a sentence.
WITH found AS (
  SELECT
    *, concat(' of task ', fragment_id, ':', partition, ':', worker_id, ';') AS of_task,
    concat(' of tasks ', fragment_id, ':', partition, ';') AS of_tasks,
    concat(' of operator ', operator_id, ';') AS of_operator, concat(' of worker ', worker_id, ';') AS of_worker
  FROM (
    SELECT
      found.query_id, found.detector AS rule, found.subject, found.cause, found.advice, found.evidence_sql,
      found.operator_id, found.fragment_id, found.worker_id,
      found.partition, found.exchange_id, found.table_name, found.row_id, found.score, found.threshold,
      found.confidence, found.innocent, queries.execution_ns, queries.imported_from, queries.lineage,
      queries.profile_level, queries.sql,
      coalesce(queries.queued_ns, 0) + coalesce(queries.planning_ns, 0) + coalesce(queries.execution_ns, 0)
        AS elapsed_ns,
      CASE
        WHEN found.detector = 'expensive input' OR found.cost_ns IS NULL THEN found.cost_ns
        ELSE least(
          found.cost_ns,
          coalesce(queries.queued_ns, 0) + coalesce(queries.planning_ns, 0) + coalesce(queries.execution_ns, 0))
      END AS wasted_ns
    FROM sys.detections AS found
    JOIN sys.queries AS queries ON found.query_id = queries.query_id
  ) AS priced
  WHERE wasted_ns IS NULL OR rule = 'expensive input' OR wasted_ns >= 10000000 AND wasted_ns >= 0.05 * elapsed_ns
),
marked AS (
  SELECT
    *,
    -- All findings of the query as one text: a rule, and where.
    string_agg(concat(rule, of_task, rule, of_tasks, rule, of_operator, rule, of_worker), '')
      OVER (PARTITION BY query_id) AS marks
  FROM found
),
folded AS (
  SELECT
    *,
    -- The first that holds. (Planning a CASE of so many conditions takes too long.)
    nullif(split_part(concat_ws(
      ',',
      CASE
        WHEN rule IN ('heavy key', 'uneven rows') AND strpos(marks, concat('NULL keys', of_operator)) > 0
          OR rule IN ('straggler task', 'uneven rows', 'uneven assignment')
            AND strpos(marks, concat('NULL keys', of_tasks)) > 0
          THEN 'NULL keys'
      END,
      CASE
        WHEN rule = 'uneven rows' AND strpos(marks, concat('heavy key', of_operator)) > 0
          OR rule IN ('straggler task', 'uneven rows', 'uneven assignment')
            AND strpos(marks, concat('heavy key', of_tasks)) > 0
          OR rule = 'shuffle latency' AND strpos(marks, 'heavy key of task') > 0
          THEN 'heavy key'
      END,
      CASE
        WHEN rule = 'wrong estimate' AND strpos(marks, concat('hot join key', of_operator)) > 0
          OR rule IN ('straggler task', 'uneven rows') AND strpos(marks, concat('hot join key', of_tasks)) > 0
          THEN 'hot join key'
      END,
      CASE
        WHEN rule = 'wrong estimate' AND strpos(marks, concat('join multiplies rows', of_operator)) > 0
          OR rule IN ('straggler task', 'uneven rows') AND strpos(marks, concat('join multiplies rows', of_tasks)) > 0
          THEN 'join multiplies rows'
      END,
      CASE
        WHEN rule IN ('straggler task', 'operator fission', 'uneven rows')
            AND strpos(marks, concat('expensive input', of_task)) > 0
          OR rule IN ('disk wait', 'memory pressure') AND strpos(marks, 'expensive input of task ') > 0
          THEN 'expensive input'
      END,
      CASE WHEN rule = 'operator fission' AND strpos(marks, 'not distributed of task') > 0 THEN 'not distributed' END,
      CASE
        WHEN rule IN (
            'straggler task', 'slow worker', 'slow link', 'uneven assignment', 'waited for a processor')
          AND strpos(marks, concat('throttled worker', of_worker)) > 0 THEN 'throttled worker'
      END,
      CASE
        WHEN rule = 'straggler task' AND strpos(marks, concat('slow worker', of_worker)) > 0 THEN 'slow worker'
      END,
      CASE
        WHEN rule IN ('slow link', 'slow client') AND strpos(marks, 'waited for a processor of ') > 0
          THEN 'waited for a processor'
        WHEN rule IN ('straggler task', 'slow worker') AND advice LIKE 'Stop other programs%'
          AND strpos(marks, 'waited for a processor of task') > 0 THEN 'waited for a processor'
      END
    ), ',', 1), '') AS explained_by,
    CASE
      WHEN rule IN (
          'expensive input', 'heavy key', 'NULL keys', 'hot join key', 'join multiplies rows', 'uneven rows',
          'data changed') THEN 0
      WHEN rule IN ('uneven assignment', 'not distributed', 'co-location', 'operator fission', 'plan changed') THEN 1
      ELSE 2
    END AS blame
  FROM marked
)
SELECT
  query_id, rule,
  CASE
    WHEN innocent THEN 'info'
    WHEN wasted_ns >= 0.5 * execution_ns THEN 'critical'
    WHEN wasted_ns >= 0.1 * execution_ns THEN 'warning'
    WHEN rule = 'expensive input' THEN 'warning'
    WHEN wasted_ns IS NULL AND rule IN ('spilling', 'uneven rows', 'incomplete profile') THEN 'warning'
    ELSE 'info'
  END AS severity,
  subject, evidence_sql, wasted_ns, advice,
  CASE
    WHEN imported_from IS NOT NULL THEN NULL
    WHEN rule = 'expensive input' AND (lineage = 'piggyback' OR cause LIKE 'It became %') THEN NULL
    WHEN rule = 'expensive input' THEN 'SELECT * FROM sys.blame(' || query_id || ')'
    WHEN rule IN ('straggler task', 'heavy key', 'NULL keys', 'uneven rows', 'spilling', 'operator fission')
      AND profile_level IN ('counters', 'calls')
      AND regexp_like(sql, '^[\s(]*(select|with|values|from|table)\b', 'i')
      THEN 'EXPLAIN PROFILE QUERY ' || query_id
  END AS zoom_sql,
  operator_id, fragment_id, worker_id, partition, exchange_id, table_name, row_id, cause, score, threshold,
  confidence, explained_by,
  CASE
    WHEN is_open THEN
      row_number() OVER (
        PARTITION BY query_id, is_open
        ORDER BY
          CASE WHEN wasted_ns >= 0.8 * dearest_ns THEN blame ELSE 3 END, wasted_ns DESC NULLS LAST,
          rule = 'incomplete profile', rule, table_name, row_id, subject
      )
  END AS place
FROM (
  SELECT
    *, explained_by IS NULL AND NOT innocent AS is_open,
    max(CASE WHEN explained_by IS NULL AND NOT innocent THEN wasted_ns END) OVER (PARTITION BY query_id) AS dearest_ns
  FROM folded
) AS ranked
