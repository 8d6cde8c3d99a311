-- The input records that cost most, and which of them stand out: `reason` says why. Where `row_id` is NULL, it
-- is not known of which records the rows of a scan are that took much time.
SELECT
  table_name, row_id, reason, impact_ns, max_total_ns, max_remediated_ns, outputs, self_ns, method,
  error_ns, median_ns, rows_made, table_rows, apportioned_ns, unknown
FROM sys.anomaly_candidates
WHERE query_id = $query_id
ORDER BY
  row_id IS NULL, reason IS NULL, reason = 'fan-out', CASE WHEN reason = 'fan-out' THEN cost_ns END DESC,
  impact_ns DESC, self_ns DESC, row_id, table_name, operator_id
