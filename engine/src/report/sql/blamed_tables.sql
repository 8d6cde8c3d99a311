-- The tables of whose records time was measured: how many records, and how much time.
SELECT table_name, count(*) AS records, CAST(sum(self_ns) AS BIGINT) AS total_ns
FROM (
  SELECT table_name, row_id, sum(latency_ns) AS self_ns
  FROM sys.record_latency
  WHERE query_id = $query_id AND table_name IS NOT NULL AND kind = 'computation'
  GROUP BY table_name, row_id
) AS spent
GROUP BY table_name
HAVING sum(self_ns) > 0
ORDER BY total_ns DESC, table_name
