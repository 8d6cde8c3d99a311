-- The wait that one record caused: the result rows whose most impactful source it is, their greatest latency with it
-- and without it.
-- $query_id BIGINT: the query
-- $table_name VARCHAR: the table, as in sys.record_latency
-- $row_id BIGINT: the record
SELECT rank, impact_ns, max_total_ns, max_remediated_ns, outputs, self_ns, method, error_ns
FROM sys.expensive_inputs
WHERE query_id = $query_id AND table_name = $table_name AND row_id = $row_id
