-- The records whose time changed most from one query to another.
SELECT
  coalesce(a.table_name, b.table_name) AS table_name, coalesce(a.row_id, b.row_id) AS row_id,
  a.self_ns AS before_ns, b.self_ns AS after_ns
FROM (
  SELECT table_name, row_id, sum(latency_ns) AS self_ns
  FROM sys.record_latency
  WHERE query_id = $before AND table_name IS NOT NULL AND kind = 'computation'
  GROUP BY table_name, row_id
) AS a
FULL JOIN (
  SELECT table_name, row_id, sum(latency_ns) AS self_ns
  FROM sys.record_latency
  WHERE query_id = $after AND table_name IS NOT NULL AND kind = 'computation'
  GROUP BY table_name, row_id
) AS b
ON a.table_name = b.table_name AND a.row_id = b.row_id
ORDER BY abs(coalesce(b.self_ns, 0) - coalesce(a.self_ns, 0)) DESC, table_name, row_id
LIMIT 20
