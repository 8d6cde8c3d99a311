-- Exactly: rows of the table; of the rows of each predicate how many there are, how many of them were
-- measured as records, and their time.
WITH spent AS (
  SELECT row_id, sum(latency_ns) AS self_ns
  FROM sys.record_latency
  WHERE query_id = $query_id AND table_name = $table_name AND kind = 'computation'
  GROUP BY row_id
)
SELECT
  count(*) AS rows,
  $counts
FROM $table AS t
LEFT JOIN spent ON t._row_id = spent.row_id
