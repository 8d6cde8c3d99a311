-- The slowest result row: total latency, what of it is computation and what shuffle latency, and
-- the input record that most of it came from.
SELECT
  output_row, total_ns, computation_ns, shuffle_ns, remediated_ns, source_table, source_row_id
FROM sys.output_latency
WHERE query_id = $query_id
ORDER BY total_ns DESC, output_row
LIMIT 1
