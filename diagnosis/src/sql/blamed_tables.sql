-- The tables of whose records time was measured: how many records, how much time, and whether that is 5 % of all
-- operators' self time (`is_much`), so that a report looks for predicates.
SELECT
  spent.table_name, count(*) AS records, CAST(sum(spent.self_ns) AS BIGINT) AS total_ns,
  coalesce(sum(spent.self_ns) >= 0.05 * max(work.busy_ns), true) AS is_much
FROM (
  SELECT table_name, row_id, sum(latency_ns) AS self_ns
  FROM sys.record_latency
  WHERE query_id = $query_id AND table_name IS NOT NULL AND kind = 'computation'
  GROUP BY table_name, row_id
) AS spent
CROSS JOIN (
  SELECT CAST(sum(self_ns) AS BIGINT) AS busy_ns FROM sys.operator_stats WHERE query_id = $query_id
) AS work
GROUP BY spent.table_name
HAVING sum(spent.self_ns) > 0
ORDER BY total_ns DESC, table_name
