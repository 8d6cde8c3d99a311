-- About how long the query would have taken without some records of a table, and without the profiler.
-- $query_id BIGINT: the query
-- $table_name VARCHAR: the table, as in sys.record_latency
-- $row_ids VARCHAR: the records, separated by commas
SELECT query_ns, without_ns, query_ns - without_ns >= greatest(0.05 * query_ns, 1000000) AS saves_much
FROM sys.what_if($query_id, $table_name, $row_ids)
