-- The slowest result row waits for records to be brought together: `shuffle latency`. More than half of its latency,
-- and at least 10 ms, is the time to group its records, three times as long as for the other result rows in the mean:
-- groups of one size have no key to treat. Its cost is that latency. Level `records` with a log.
SELECT
  query_id, 'shuffle latency' AS detector,
  'result row ' || first_value(output_row ORDER BY total_ns DESC, output_row) AS subject,
  'The slowest result row waits ' || (max(shuffle_ns) / 1000000)
    || ' ms for records to be brought together, not for computation: a key has very many records.' AS cause,
  'Aggregate the records in two steps, or earlier.' AS advice,
  CAST(NULL AS BIGINT) AS fragment_id, CAST(NULL AS BIGINT) AS operator_id, CAST(NULL AS BIGINT) AS worker_id,
  CAST(NULL AS BIGINT) AS partition, CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name,
  CAST(NULL AS BIGINT) AS row_id, max(shuffle_ns) AS cost_ns,
  CAST(first_value(shuffle_ns ORDER BY total_ns DESC, output_row) AS DOUBLE) / greatest(max(total_ns), 1) AS score,
  0.5 AS threshold, CAST(NULL AS DOUBLE) AS confidence, FALSE AS innocent,
  'SELECT * FROM sys.heavy_records WHERE query_id = ' || query_id || ' ORDER BY edges DESC LIMIT 10' AS evidence_sql
FROM sys.output_latency
GROUP BY query_id
HAVING max(shuffle_ns) >= 10000000 AND count(*) > 1
  AND max(shuffle_ns) * (count(*) - 1) >= 3 * (sum(shuffle_ns) - max(shuffle_ns))
  AND first_value(shuffle_ns ORDER BY total_ns DESC, output_row) > 0.5 * max(total_ns)
