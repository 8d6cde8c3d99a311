-- The scans, and values that subqueries are asked for, whose rows an unnest, a join or a recursive query multiplies,
-- and what operators that are not timed record by record took for them from the first such one on, up to the first
-- that captures lineage, or to the result. A join multiplies rows if it returns twice as many as the larger of its
-- inputs has, a recursive query if it returns twice as many as its static term: its recursive term worked for
-- these. `rows` is the most that any of them returned, `arriving` how many arrive where lineage is captured, or in
-- the result.
WITH RECURSIVE operators AS (
  SELECT operator_id, parent_operator_id, kind, captures, table_name
  FROM sys.operators WHERE query_id = $query_id
),
work AS (
  SELECT
    operator_id, CAST(sum(rows_out) AS DOUBLE) AS rows_out, CAST(sum(self_ns) AS DOUBLE) AS busy_ns
  FROM sys.operator_stats WHERE query_id = $query_id
  GROUP BY operator_id
),
inputs AS (
  SELECT
    operators.parent_operator_id AS operator_id, max(work.rows_out) AS largest,
    sum(work.rows_out) AS rows
  FROM operators
  JOIN work ON operators.operator_id = work.operator_id
  GROUP BY operators.parent_operator_id
),
-- The operators of recursive terms. The static term comes first.
terms AS (
  SELECT query.operator_id AS recursive_id, term.operator_id
  FROM operators AS query
  JOIN operators AS term ON query.operator_id = term.parent_operator_id
  JOIN (
    SELECT parent_operator_id, min(operator_id) AS static_id FROM operators GROUP BY parent_operator_id
  ) AS first ON query.operator_id = first.parent_operator_id AND term.operator_id <> first.static_id
  WHERE query.kind = 'recursive'
  UNION ALL
  SELECT terms.recursive_id, below.operator_id
  FROM terms
  JOIN operators AS below ON terms.operator_id = below.parent_operator_id
),
recursive_work AS (
  SELECT terms.recursive_id, sum(work.busy_ns) AS busy_ns
  FROM terms
  JOIN operators ON terms.operator_id = operators.operator_id
  JOIN work ON terms.operator_id = work.operator_id
  WHERE operators.kind <> 'evaluation'
  GROUP BY terms.recursive_id
),
-- From an operator to the one above it: which part of that one's rows come from here, and which part of its
-- time is theirs. A row of a join comes from both sides, and its time goes by the rows it takes and returns.
steps AS (
  SELECT
    child.operator_id AS child_id, child.captures, parent.operator_id, parent.kind,
    parent.captures AS captures_above,
    CASE
      WHEN parent.kind = 'recursive' AND terms.operator_id IS NULL THEN below.rows_out
    END AS static_rows,
    CASE
      WHEN parent.kind IN ('join', 'recursive') THEN 1
      ELSE coalesce(below.rows_out / nullif(inputs.rows, 0), 1)
    END AS of_rows,
    CASE
      WHEN parent.kind = 'join' THEN coalesce(
        (below.rows_out + above.rows_out) / nullif(inputs.rows + above.rows_out, 0), 1
      )
      ELSE coalesce(below.rows_out / nullif(inputs.rows, 0), 1)
    END AS of_time
  FROM operators AS child
  JOIN operators AS parent ON child.parent_operator_id = parent.operator_id
  LEFT JOIN work AS below ON child.operator_id = below.operator_id
  LEFT JOIN work AS above ON parent.operator_id = above.operator_id
  LEFT JOIN inputs ON parent.operator_id = inputs.operator_id
  LEFT JOIN terms
    ON parent.operator_id = terms.recursive_id AND child.operator_id = terms.operator_id
),
path AS (
  SELECT
    scans.operator_id AS scan_id, scans.operator_id, scans.kind, scans.captures, 0 AS height,
    CAST(NULL AS DOUBLE) AS static_rows, CAST(1 AS DOUBLE) AS of_rows, CAST(1 AS DOUBLE) AS of_time
  FROM operators AS scans
  LEFT JOIN operators AS below ON scans.operator_id = below.parent_operator_id
  WHERE below.operator_id IS NULL
    AND (scans.table_name IS NOT NULL OR scans.kind = 'subquery values')
  UNION ALL
  SELECT
    path.scan_id, steps.operator_id, steps.kind, steps.captures_above, path.height + 1,
    steps.static_rows, path.of_rows * steps.of_rows, path.of_rows * steps.of_time
  FROM path
  JOIN steps ON path.operator_id = steps.child_id
  WHERE NOT steps.captures
),
multiplied AS (
  SELECT path.scan_id, min(path.height) AS height
  FROM path
  JOIN work ON path.operator_id = work.operator_id
  JOIN inputs ON path.operator_id = inputs.operator_id
  WHERE path.kind = 'unnest' OR path.kind = 'join' AND work.rows_out >= 2 * inputs.largest
    OR work.rows_out >= 2 * path.static_rows
  GROUP BY path.scan_id
)
SELECT
  path.scan_id, CAST(max(work.rows_out * path.of_rows) AS BIGINT) AS rows,
  CAST(first_value(
    path.of_rows * CASE WHEN path.captures THEN inputs.rows ELSE work.rows_out END
    ORDER BY path.height DESC
  ) AS BIGINT) AS arriving,
  CAST(sum(
    CASE WHEN path.kind <> 'evaluation' THEN work.busy_ns * path.of_time ELSE 0 END
    + CASE WHEN path.static_rows IS NULL THEN 0 ELSE coalesce(recursive_work.busy_ns, 0) END
  ) AS BIGINT) AS busy_ns
FROM path
JOIN multiplied ON path.scan_id = multiplied.scan_id AND path.height >= multiplied.height
JOIN work ON path.operator_id = work.operator_id
LEFT JOIN inputs ON path.operator_id = inputs.operator_id
LEFT JOIN recursive_work ON path.operator_id = recursive_work.recursive_id
GROUP BY path.scan_id
ORDER BY path.scan_id
