-- Every operator of the plan with its rows, times, memory and skew (largest partition over mean); not
-- those that only tell an operator's records apart in the log.
SELECT
  operator_id, parent_operator_id, name, details, partitions, rows_in, rows_out, estimated_rows,
  self_ns, share, input_wait_ns, peak_memory_bytes, spilled_bytes, row_skew, time_skew
FROM sys.operator_contribution
WHERE query_id = $query_id
  AND name NOT IN ('merge of spilled groups', 'frames of rows', 'parts of frames')
ORDER BY operator_id
