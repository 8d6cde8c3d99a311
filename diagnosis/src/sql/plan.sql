-- Every operator of the plan with its rows, times, memory and skew (largest partition over mean). The plan
-- is shown without internal operators.
SELECT
  operator_id, parent_operator_id, name, kind, is_internal, details, partitions, rows_in, rows_out,
  estimated_rows, self_ns, share, input_wait_ns, peak_memory_bytes, spilled_bytes, row_skew, time_skew
FROM sys.operator_contribution
WHERE query_id = $query_id
ORDER BY operator_id
