-- The plan: each operator with its rows, own time, waiting, memory and skew; of exchanges what they sent.
-- $query_id BIGINT: the query
SELECT
  plan.operator_id, plan.parent_operator_id, plan.fragment_id, plan.name, plan.kind, plan.is_internal, plan.details,
  operators.table_name, operators.sql_span,
  CAST(plan.rows_in AS BIGINT) AS rows_in, CAST(plan.rows_out AS BIGINT) AS rows_out, plan.estimated_rows,
  CAST(plan.bytes_out AS BIGINT) AS bytes_out, CAST(plan.self_ns AS BIGINT) AS self_ns, plan.share,
  CAST(plan.input_wait_ns AS BIGINT) AS input_wait_ns, CAST(plan.peak_memory_bytes AS BIGINT) AS peak_memory_bytes,
  CAST(plan.spilled_bytes AS BIGINT) AS spilled_bytes, plan.partitions AS tasks,
  CAST(plan.calls AS BIGINT) AS calls,
  CAST(plan.row_skew AS DOUBLE) AS row_skew, CAST(plan.time_skew AS DOUBLE) AS time_skew,
  sent.tuples AS sent_rows, sent.bytes AS sent_bytes, sent.crossed AS crossed_rows
FROM sys.operator_contribution AS plan
JOIN sys.operators AS operators
  ON operators.query_id = plan.query_id AND operators.operator_id = plan.operator_id
LEFT JOIN (
  SELECT
    exchange_id, CAST(sum(tuples) AS BIGINT) AS tuples, CAST(sum(bytes) AS BIGINT) AS bytes,
    CAST(sum(CASE WHEN source_worker <> destination_worker THEN tuples ELSE 0 END) AS BIGINT) AS crossed
  FROM sys.tuples_sent WHERE query_id = $query_id GROUP BY exchange_id
) AS sent ON sent.exchange_id = plan.operator_id
WHERE plan.query_id = $query_id
ORDER BY plan.operator_id
