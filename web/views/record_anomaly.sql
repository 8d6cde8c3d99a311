-- The records that stand out, why, what each costs, and from which cost on a record stands out. A row without `row_id`
-- is a scan whose rows took as much, where it is unknown which records they come from.
-- $query_id BIGINT: the query
SELECT
  table_name, row_id, reason, cost_ns, threshold_ns, impact_ns, outputs, self_ns, method, error_ns, median_ns,
  rows_made, table_rows, apportioned_ns, query_ns, operator_id, unknown
FROM sys.anomalies
WHERE query_id = $query_id
ORDER BY row_id IS NULL, cost_ns DESC, table_name, row_id
