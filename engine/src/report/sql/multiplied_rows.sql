-- The scans whose rows an unnest or a join multiplies, and what operators that are not timed record by
-- record took from the first such one on, up to the first that captures lineage, or to the result. A join
-- multiplies rows if it returns twice as many as the larger of its inputs has. `rows` is the most that any of
-- them returned.
WITH RECURSIVE operators AS (
  SELECT operator_id, parent_operator_id, name, captures
  FROM sys.operators WHERE query_id = $query_id
),
work AS (
  SELECT operator_id, sum(rows_out) AS rows_out, sum(self_ns) AS busy_ns
  FROM sys.operator_stats WHERE query_id = $query_id
  GROUP BY operator_id
),
inputs AS (
  SELECT operators.parent_operator_id AS operator_id, max(work.rows_out) AS rows
  FROM operators
  JOIN work ON operators.operator_id = work.operator_id
  GROUP BY operators.parent_operator_id
),
path AS (
  SELECT scans.operator_id AS scan_id, scans.operator_id, 0 AS height
  FROM operators AS scans
  LEFT JOIN operators AS below ON scans.operator_id = below.parent_operator_id
  WHERE below.operator_id IS NULL
  UNION ALL
  SELECT path.scan_id, below.parent_operator_id, path.height + 1
  FROM path
  JOIN operators AS below ON path.operator_id = below.operator_id
  WHERE below.parent_operator_id IS NOT NULL AND NOT below.captures
),
multiplied AS (
  SELECT path.scan_id, min(path.height) AS height
  FROM path
  JOIN operators ON path.operator_id = operators.operator_id
  JOIN work ON path.operator_id = work.operator_id
  JOIN inputs ON path.operator_id = inputs.operator_id
  WHERE operators.name LIKE 'Unnest%'
    OR operators.name LIKE '%Join%' AND work.rows_out >= 2 * inputs.rows
  GROUP BY path.scan_id
)
SELECT
  path.scan_id, max(work.rows_out) AS rows,
  sum(CASE WHEN operators.name <> 'TimedEvaluationExec' THEN work.busy_ns ELSE 0 END) AS busy_ns
FROM path
JOIN multiplied ON path.scan_id = multiplied.scan_id AND path.height >= multiplied.height
JOIN operators ON path.operator_id = operators.operator_id
JOIN work ON path.operator_id = work.operator_id
GROUP BY path.scan_id
ORDER BY path.scan_id
