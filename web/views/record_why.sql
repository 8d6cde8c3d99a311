-- Why a result row took as long as it did: the records that it was computed from, dearest first. `records` counts all
-- of them, `all_ns` is what they took together on their way there.
-- $query_id BIGINT: the query
-- $output_row BIGINT: the number of the result row, from 0
SELECT
  table_name, row_id, latency_ns, count(*) OVER () AS records, CAST(sum(latency_ns) OVER () AS BIGINT) AS all_ns
FROM backward_trace($query_id, $output_row)
ORDER BY latency_ns DESC, table_name, row_id
LIMIT 20
