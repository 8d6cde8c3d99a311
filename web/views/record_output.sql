-- The total latency of one result row, its parts along the slowest way, and the record that it waited for most.
-- $query_id BIGINT: the query
-- $output_row BIGINT: the number of the result row, from 0
SELECT total_ns, computation_ns, shuffle_ns, remediated_ns, source_table, source_row_id
FROM sys.output_latency
WHERE query_id = $query_id AND output_row = $output_row
