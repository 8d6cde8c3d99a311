-- The slowest result row: total latency, what of it is computation and what shuffle latency (beside
-- the mean of all result rows), and the input record that most of it came from.
SELECT
  output_row, total_ns, computation_ns, shuffle_ns, remediated_ns, source_table, source_row_id,
  CAST(avg(shuffle_ns) OVER () AS BIGINT) AS mean_shuffle_ns
FROM sys.output_latency
WHERE query_id = $query_id
ORDER BY total_ns DESC, output_row
LIMIT 1
