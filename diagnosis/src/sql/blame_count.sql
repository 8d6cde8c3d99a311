-- The predicates that separate expensive records: exactly, how many rows of the table each holds for, how many of
-- them were measured as records (`records`), and their time. It separates them if its rows took a tenth of the time
-- of the table's records, and four times the time of the others each.
WITH spent AS (
  SELECT row_id, sum(latency_ns) AS self_ns
  FROM sys.record_latency
  WHERE query_id = $query_id AND table_name = $table_name AND kind = 'computation'
  GROUP BY row_id
),
counted AS (
  SELECT
    count(*) AS table_rows,
    $counts
  FROM $table AS t
  LEFT JOIN spent ON t._row_id = spent.row_id
),
predicates AS (
  SELECT
    unnest(make_array($numbers)) AS number, unnest(make_array($rows)) AS matched_rows,
    unnest(make_array($records)) AS records, unnest(make_array($times)) AS ns, table_rows,
    CAST($all_records AS BIGINT) AS all_records, CAST($all_ns AS BIGINT) AS all_ns
  FROM counted
)
SELECT number, matched_rows, ns, table_rows
FROM predicates
WHERE $rule
ORDER BY number
