-- The records that one record was made from, as the rows of a group: by what each took since it was read or made.
-- `records` counts all of them, `edges` how often this one occurs.
-- $query_id BIGINT: the query
-- $operator_id BIGINT: the operator that made the record
-- $record_id BIGINT: the record
SELECT
  input_operator_id, table_name, input_id, count(*) AS edges, max(input_latency_ns) AS latency_ns,
  count(*) OVER () AS records
FROM sys.lineage
WHERE query_id = $query_id AND operator_id = $operator_id AND output_id = $record_id
GROUP BY input_operator_id, table_name, input_id
ORDER BY latency_ns DESC, edges DESC, input_id
LIMIT 20
