-- The records of a query that stand out. `sys.anomaly_candidates` defines them: `EXPLAIN PROFILE`, `sys.diagnoses`
-- and the shell's hint name exactly these. `reason` says why a record stands out. `cost_ns` is what it costs, which is at
-- least `threshold_ns`: its impact (`critical path`), its self time (`self time`), or the time that operators
-- took for the rows that were made of it (`fan-out`). The columns from `rank` to `error_ns` are as in
-- `sys.expensive_inputs`. `median_ns` is the median self time of the records of its table, `even_ns` the self time
-- of all operators ÷ the rows scanned, and `query_ns` the time of planning and execution. If many rows were made
-- of the record, `rows_made` counts them, `table_rows` counts the rows of all traced records of its table,
-- `apportioned_ns` is the time that operators took for its rows, and `operator_id` is the scan. A row without
-- `row_id` is a scan whose rows took as much time, where it is unknown which records they descend from. `unknown`
-- says why: `no log` was kept, the records were `sampled`, most rows were `left out` before lineage was captured,
-- there is `no lineage` of them, or they were `not counted` for lack of memory. Level `records`. Without a filter
-- on `query_id` the view shows the 16 newest queries.
SELECT
  query_id, table_name, row_id, reason, cost_ns, threshold_ns, rank, impact_ns, max_total_ns,
  max_remediated_ns, outputs, self_ns, method, error_ns, median_ns, even_ns, query_ns, operator_id,
  rows_made, table_rows, apportioned_ns, unknown
FROM sys.anomaly_candidates
WHERE reason IS NOT NULL
