-- The tasks of one operator: what each took, returned, waited for and held, and when it worked.
-- $query_id BIGINT: the query
-- $operator_id BIGINT: the operator
SELECT
  stats.worker_id, stats.partition, stats.calls, stats.rows_in, stats.rows_out, stats.bytes_out,
  stats.self_ns, stats.total_ns, stats.input_wait_ns, stats.output_wait_ns,
  stats.peak_memory_bytes, stats.spilled_bytes,
  CAST(stats.first_call_at AS BIGINT) - CAST(queries.started_at AS BIGINT) AS began_ns,
  CAST(stats.last_call_at AS BIGINT) - CAST(queries.started_at AS BIGINT) AS ended_ns
FROM sys.operator_stats AS stats
JOIN sys.queries AS queries ON queries.query_id = stats.query_id
WHERE stats.query_id = $query_id AND queries.query_id = $query_id AND stats.operator_id = $operator_id
ORDER BY stats.worker_id, stats.partition
