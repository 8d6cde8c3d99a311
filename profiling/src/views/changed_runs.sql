-- Queries that took much longer than earlier runs of the same statement, where the plan or the data is another. The
-- query took 1.5 times the median of the last 32 runs that finished, of which there are five at least, and longer than
-- any of them. `plan changed`: the plan has other operators than in the last run. `data changed`: its tables are of
-- versions that no earlier run read. Its cost is the time beyond the median. Statements are the same if they differ in
-- literals only. All levels; it reads `sys.queries` of all queries, and `sys.operators` only if the query was slower.
WITH runs AS (
  SELECT
    this.query_id, this.elapsed_ns, this.tables_read, past.query_id AS past_id, past.elapsed_ns AS past_ns,
    past.tables_read AS past_tables_read,
    row_number() OVER (PARTITION BY this.query_id ORDER BY past.query_id DESC) AS age
  FROM (
    SELECT
      query_id, fingerprint, tables_read, coalesce(planning_ns, 0) + coalesce(execution_ns, 0) AS elapsed_ns
    FROM sys.queries
    WHERE status = 'finished' AND imported_from IS NULL AND execution_ns >= 10000000
  ) AS this
  JOIN (
    SELECT
      query_id, fingerprint, tables_read, coalesce(planning_ns, 0) + coalesce(execution_ns, 0) AS elapsed_ns
    FROM sys.queries
    WHERE status = 'finished' AND imported_from IS NULL
  ) AS past ON this.fingerprint = past.fingerprint AND this.query_id > past.query_id
),
slower AS (
  SELECT
    query_id, elapsed_ns, CAST(median(past_ns) AS BIGINT) AS usual_ns, count(*) AS runs, max(past_id) AS past_id,
    bool_and(tables_read <> past_tables_read) AS has_other_data
  FROM runs
  WHERE age <= 32
  GROUP BY query_id, elapsed_ns
  HAVING count(*) >= 5 AND elapsed_ns >= 1.5 * median(past_ns) AND elapsed_ns > max(past_ns)
    AND elapsed_ns - median(past_ns) >= 10000000
),
plans AS (
  SELECT
    slower.query_id,
    count(DISTINCT plans.plan) AS plans
  FROM (SELECT query_id, unnest([query_id, past_id]) AS run_id FROM slower) AS slower
  JOIN (
    SELECT
      query_id,
      string_agg(
        operator_id || ' ' || coalesce(parent_operator_id, -1) || ' ' || name || ' ' || coalesce(table_name, ''),
        chr(10) ORDER BY operator_id) AS plan
    FROM sys.operators
    WHERE NOT is_internal
    GROUP BY query_id
  ) AS plans ON slower.run_id = plans.query_id
  GROUP BY slower.query_id
)
SELECT
  slower.query_id, CASE WHEN plans.plans > 1 THEN 'plan changed' ELSE 'data changed' END AS detector,
  'the query' AS subject,
  'The query took ' || CAST(round(slower.elapsed_ns / 1000000.0) AS BIGINT) || ' ms, the median of '
    || slower.runs || ' earlier runs ' || CAST(round(slower.usual_ns / 1000000.0) AS BIGINT) || ' ms. '
    || CASE
      WHEN plans.plans > 1 AND slower.has_other_data THEN 'Its data and its plan changed.'
      WHEN plans.plans > 1 THEN 'Its plan changed.'
      ELSE 'Its tables changed.'
    END AS cause,
  'Compare both runs: EXPLAIN PROFILE DIFF ' || slower.past_id || ', ' || slower.query_id || '.' AS advice,
  CAST(NULL AS BIGINT) AS fragment_id, CAST(NULL AS BIGINT) AS operator_id, CAST(NULL AS BIGINT) AS worker_id,
  CAST(NULL AS BIGINT) AS partition, CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name,
  CAST(NULL AS BIGINT) AS row_id, slower.elapsed_ns - slower.usual_ns AS cost_ns,
  CAST(slower.elapsed_ns AS DOUBLE) / greatest(slower.usual_ns, 1) AS score, 1.5 AS threshold,
  CAST(NULL AS DOUBLE) AS confidence, FALSE AS innocent,
  'SELECT query_id, started_at, planning_ns, execution_ns, tables_read FROM sys.queries WHERE fingerprint = '
    || '(SELECT fingerprint FROM sys.queries WHERE query_id = ' || slower.query_id || ') ORDER BY query_id DESC LIMIT 33'
    AS evidence_sql
FROM slower
LEFT JOIN plans ON slower.query_id = plans.query_id
WHERE plans.plans > 1 OR slower.has_other_data
