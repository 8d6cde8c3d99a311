-- What was made of one record: the result rows that were computed from it. `outputs` counts all of them.
-- $query_id BIGINT: the query
-- $table_name VARCHAR: the table, as in sys.record_latency
-- $row_id BIGINT: the record
SELECT output_row, count(*) OVER () AS outputs
FROM forward_trace($query_id, $table_name, $row_id)
ORDER BY output_row
LIMIT 20
