-- What each operator of a query contributed: time of its own and its share of all operators'
-- time, rows, waiting, memory, spilling, and how evenly its partitions were loaded (the largest
-- partition over the mean; 1 is even).
SELECT
  operators.query_id, operators.fragment_id, operators.operator_id, operators.parent_operator_id,
  operators.name, operators.kind, operators.is_internal, operators.details, stats.partitions, stats.calls,
  stats.rows_in, stats.rows_out, operators.estimated_rows, stats.bytes_out,
  stats.self_ns,
  CAST(stats.self_ns AS DOUBLE)
    / nullif(sum(stats.self_ns) OVER (PARTITION BY operators.query_id), 0) AS share,
  stats.total_ns, stats.input_wait_ns, stats.output_wait_ns,
  stats.peak_memory_bytes, stats.spilled_bytes,
  stats.row_skew, stats.time_skew
FROM sys.operators AS operators
LEFT JOIN (
  SELECT
    query_id, operator_id, count(*) AS partitions, sum(calls) AS calls,
    sum(rows_in) AS rows_in, sum(rows_out) AS rows_out, sum(bytes_out) AS bytes_out,
    sum(self_ns) AS self_ns, max(total_ns) AS total_ns,
    sum(input_wait_ns) AS input_wait_ns, sum(output_wait_ns) AS output_wait_ns,
    sum(peak_memory_bytes) AS peak_memory_bytes, sum(spilled_bytes) AS spilled_bytes,
    max(rows_out) / nullif(avg(rows_out), 0) AS row_skew,
    max(self_ns) / nullif(avg(self_ns), 0) AS time_skew
  FROM sys.operator_stats
  GROUP BY query_id, operator_id
) AS stats
  ON operators.query_id = stats.query_id AND operators.operator_id = stats.operator_id
