-- Exactly: rows of the table, records of it that were measured and their time; the same for the
-- rows of each predicate.
WITH spent AS (
  SELECT row_id, sum(latency_ns) AS self_ns
  FROM sys.record_latency
  WHERE query_id = $query_id AND table_name = $table_name AND kind = 'computation'
  GROUP BY row_id
)
SELECT
  count(*) AS rows, count(spent.row_id) AS records, sum(spent.self_ns) AS total_ns,
  $counts
FROM $table AS t
LEFT JOIN spent ON t._row_id = spent.row_id
