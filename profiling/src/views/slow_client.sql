-- The query was not slow, the client was: `slow client`. The result's last task waited for its rows to be taken, for at
-- least a tenth of the query's time. Its cost is that time. Level `counters` and above.
SELECT
  stats.query_id, 'slow client' AS detector, 'the reader of the result' AS subject,
  'The query was not slow, the client was: ' || queries.rows_returned || ' rows waited '
    || CAST(round(stats.waited_ns / 1000000.0) AS BIGINT) || ' ms of '
    || CAST(round(queries.elapsed_ns / 1000000.0) AS BIGINT) || ' ms to be taken.' AS cause,
  'Read the rows faster, or ask for fewer: with LIMIT, fewer columns, or by grouping.' AS advice,
  stats.fragment_id, stats.operator_id, CAST(NULL AS BIGINT) AS worker_id, CAST(NULL AS BIGINT) AS partition,
  CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id,
  stats.waited_ns AS cost_ns, CAST(stats.waited_ns AS DOUBLE) / queries.elapsed_ns AS score, 0.1 AS threshold,
  CAST(NULL AS DOUBLE) AS confidence, FALSE AS innocent,
  'SELECT operator_id, partition, output_wait_ns FROM sys.operator_stats WHERE query_id = ' || stats.query_id
    || ' AND operator_id = 0' AS evidence_sql
FROM (
  SELECT query_id, fragment_id, operator_id, max(output_wait_ns) AS waited_ns
  FROM sys.operator_stats
  WHERE operator_id = 0
  GROUP BY query_id, fragment_id, operator_id
) AS stats
JOIN (
  SELECT
    query_id, rows_returned,
    coalesce(queued_ns, 0) + coalesce(planning_ns, 0) + coalesce(execution_ns, 0) AS elapsed_ns
  FROM sys.queries
) AS queries ON stats.query_id = queries.query_id
WHERE stats.waited_ns >= 10000000 AND stats.waited_ns >= 0.1 * queries.elapsed_ns
