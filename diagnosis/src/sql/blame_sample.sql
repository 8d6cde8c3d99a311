-- The $dearest dearest records of a table, and every $stride th of the others by a hash of its row
-- id: what each took, and what can be said of it.
WITH spent AS (
  SELECT row_id, sum(latency_ns) AS self_ns
  FROM sys.record_latency
  WHERE query_id = $query_id AND table_name = $table_name AND kind = 'computation'
  GROUP BY row_id
),
dearest AS (
  SELECT row_id FROM spent ORDER BY self_ns DESC, row_id LIMIT $dearest
),
chosen AS (
  SELECT spent.row_id, spent.self_ns, dearest.row_id IS NOT NULL AS is_dear
  FROM spent
  LEFT JOIN dearest ON spent.row_id = dearest.row_id
  WHERE dearest.row_id IS NOT NULL OR spent.row_id * 48271 % 2147483647 % $stride = 0
)
SELECT chosen.self_ns, chosen.is_dear,
  $features
FROM $table AS t
JOIN chosen ON t._row_id = chosen.row_id
