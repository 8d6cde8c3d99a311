-- A record that an operator made, as a group of an aggregate: its total latency, its parts along the slowest way, the
-- base record that it waited for most, and how many records it was made from.
-- $query_id BIGINT: the query
-- $operator_id BIGINT: the operator that made the record
-- $record_id BIGINT: the record
SELECT
  latency.total_ns, latency.computation_ns, latency.shuffle_ns, latency.remediated_ns, latency.source_table,
  latency.source_row_id, inputs.edges, inputs.input_operator_id
FROM sys.intermediate_latency AS latency
CROSS JOIN (
  SELECT count(*) AS edges, min(input_operator_id) AS input_operator_id
  FROM sys.lineage
  WHERE query_id = $query_id AND operator_id = $operator_id AND output_id = $record_id
) AS inputs
WHERE latency.query_id = $query_id AND latency.operator_id = $operator_id AND latency.record_id = $record_id
