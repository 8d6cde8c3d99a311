-- Queries that took much longer than earlier runs of the same statement, because the plan or the data changed. The
-- query took 1.5 times the median of its earlier runs, and longer than each of them. At least five and at most 32
-- finished runs count. `plan changed`: these runs read the same versions of tables, and the plan has other operators
-- than the last of these runs. `data changed`: they read other versions, and since the last run the rows of the tables
-- grew by a fifth. Its cost is the time beyond the median. Statements are the same if they differ in literals only.
-- All levels; the view reads `sys.queries` of all queries, and `sys.operators` only if the query was slower.
WITH slower AS (
  SELECT
    query_id, elapsed_ns, is_same, CAST(median(past_ns) AS BIGINT) AS usual_ns, count(*) AS runs,
    max(past_id) AS past_id, first_value(tables_read) AS tables_read,
    first_value(past_tables_read ORDER BY past_id DESC) AS past_tables_read
  FROM (
    SELECT
      this.query_id, this.elapsed_ns, this.tables_read, past.query_id AS past_id, past.elapsed_ns AS past_ns,
      past.tables_read AS past_tables_read, past.tables_read = this.tables_read AS is_same,
      row_number() OVER (
        PARTITION BY this.query_id, past.tables_read = this.tables_read ORDER BY past.query_id DESC) AS age
    FROM (
      SELECT
        query_id, fingerprint, tables_read, coalesce(planning_ns, 0) + coalesce(execution_ns, 0) AS elapsed_ns
      FROM sys.queries
      WHERE status = 'finished' AND imported_from IS NULL
    ) AS this
    JOIN (
      SELECT
        query_id, fingerprint, tables_read, coalesce(planning_ns, 0) + coalesce(execution_ns, 0) AS elapsed_ns
      FROM sys.queries
      WHERE status = 'finished' AND imported_from IS NULL
    ) AS past ON this.fingerprint = past.fingerprint AND this.query_id > past.query_id
    WHERE this.elapsed_ns >= 20000000 AND this.tables_read LIKE '[{%'
  ) AS runs
  WHERE age <= 32
  GROUP BY query_id, elapsed_ns, is_same
  HAVING count(*) >= 5 AND elapsed_ns >= 1.5 * median(past_ns) AND elapsed_ns > max(past_ns)
    AND elapsed_ns - median(past_ns) >= 10000000
),
compared AS (
  -- Of each of both runs the plan, and the rows of its tables.
  SELECT
    runs.query_id, runs.is_same, count(DISTINCT plans.plan) AS plans,
    max(CASE WHEN runs.run_id = runs.query_id THEN runs.rows END) AS rows,
    max(CASE WHEN runs.run_id <> runs.query_id THEN runs.rows END) AS past_rows
  FROM (
    SELECT
      query_id, is_same, run_id, sum(CAST(split_part(part, ',', 1) AS BIGINT)) AS rows
    FROM (
      SELECT query_id, is_same, run_id, unnest(string_to_array(tables_read, '"rows":')) AS part
      FROM (
        SELECT
          query_id, is_same, unnest([query_id, past_id]) AS run_id,
          unnest([tables_read, past_tables_read]) AS tables_read
        FROM slower
      ) AS both
    ) AS parts
    WHERE part NOT LIKE '[{%'
    GROUP BY query_id, is_same, run_id
  ) AS runs
  LEFT JOIN (
    SELECT
      query_id,
      string_agg(
        concat(operator_id, ' ', parent_operator_id, ' ', name, ' ', table_name), chr(10) ORDER BY operator_id) AS plan
    FROM sys.operators
    WHERE NOT is_internal
    GROUP BY query_id
  ) AS plans ON runs.run_id = plans.query_id
  GROUP BY runs.query_id, runs.is_same
)
SELECT
  slower.query_id, CASE WHEN slower.is_same THEN 'plan changed' ELSE 'data changed' END AS detector,
  'the query' AS subject,
  concat(
    'The query took ', slower.elapsed_ns / 1000000, ' ms, the median of ', slower.runs,
    ' earlier runs ', slower.usual_ns / 1000000, ' ms. ',
    CASE
      WHEN slower.is_same THEN 'It read the same data by another plan.'
      ELSE concat('Its tables have ', compared.rows, ' rows, they had ', compared.past_rows, ' rows.')
    END,
    CASE WHEN compared.plans > 1 AND NOT slower.is_same THEN ' The plan changed, too.' END) AS cause,
  concat('Compare both runs: EXPLAIN PROFILE DIFF ', slower.past_id, ', ', slower.query_id, '.') AS advice,
  CAST(NULL AS BIGINT) AS fragment_id, CAST(NULL AS BIGINT) AS operator_id, CAST(NULL AS BIGINT) AS worker_id,
  CAST(NULL AS BIGINT) AS partition, CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name,
  CAST(NULL AS BIGINT) AS row_id, slower.elapsed_ns - slower.usual_ns AS cost_ns,
  CAST(slower.elapsed_ns AS DOUBLE) / greatest(slower.usual_ns, 1) AS score, 1.5 AS threshold,
  CAST(NULL AS DOUBLE) AS confidence, FALSE AS innocent,
  concat(
    'SELECT query_id, started_at, planning_ns, execution_ns, tables_read FROM sys.queries WHERE fingerprint = ',
    '(SELECT fingerprint FROM sys.queries WHERE query_id = ', slower.query_id, ') ORDER BY query_id DESC LIMIT 33')
    AS evidence_sql
FROM slower
JOIN compared ON slower.query_id = compared.query_id AND slower.is_same = compared.is_same
WHERE CASE WHEN slower.is_same THEN compared.plans > 1 ELSE compared.rows >= 1.2 * compared.past_rows END
