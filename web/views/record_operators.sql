-- What operators took for one record of a table: timed by itself where they evaluate expressions, apportioned by rows
-- elsewhere.
-- $query_id BIGINT: the query
-- $table_name VARCHAR: the table, as in sys.record_latency
-- $row_id BIGINT: the record
-- $measure VARCHAR = expressions: `expressions`, or `operators` that are not timed record by record
SELECT
  operator_id, CAST(sum(latency_ns) AS BIGINT) AS latency_ns, min(kind) AS kind,
  first_value(method ORDER BY latency_ns DESC) AS method, CAST(sum(error_ns) AS BIGINT) AS error_ns,
  count(*) AS times
FROM (
  SELECT operator_id, latency_ns, kind, method, error_ns
  FROM sys.record_latency
  WHERE query_id = $query_id AND table_name = $table_name AND row_id = $row_id AND $measure = 'expressions'
  UNION ALL
  SELECT operator_id, latency_ns, kind, method, NULL
  FROM sys.apportioned_latency
  WHERE query_id = $query_id AND table_name = $table_name AND row_id = $row_id AND $measure = 'operators'
) AS latencies
GROUP BY operator_id
ORDER BY operator_id DESC
