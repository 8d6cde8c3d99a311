-- Rows that crossed between workers although a table could be stored so that they need not: `co-location`, one row for
-- each table and column of `sys.colocation_candidates` with at least 64 KiB. Its cost is the longest task's own time in
-- the exchanges. It is `innocent`: a table has one order, which pays over many queries or not at all.
-- `sys.colocation_savings` adds up the bytes over all of them. Level `counters` and above. Source: Zamanian et al.,
-- Locality-aware partitioning in parallel database systems, SIGMOD 2015.
SELECT
  query_id, 'co-location' AS detector, concat('table ', table_name, ', column ', column_name) AS subject,
  concat(
    tuples, ' rows, ', bytes, ' bytes, crossed between workers by hash of ', column_name, ', which took a task up to ',
    cost_ns / 1000000, ' ms.') AS cause,
  concat(
    'If other queries agree (SELECT * FROM sys.colocation_savings), store the table by that column: CREATE TABLE ',
    'new_table PARTITION BY HASH (', column_name, ') AS SELECT * FROM ', table_name, '.') AS advice,
  fragment_id, exchange_id AS operator_id, CAST(NULL AS BIGINT) AS worker_id, CAST(NULL AS BIGINT) AS partition,
  exchange_id, table_name, CAST(NULL AS BIGINT) AS row_id, CAST(cost_ns AS BIGINT) AS cost_ns,
  CAST(bytes AS DOUBLE) AS score, 65536.0 AS threshold, CAST(NULL AS DOUBLE) AS confidence, TRUE AS innocent,
  concat(
    'SELECT * FROM sys.communication WHERE query_id = ', query_id, ' AND exchange_id = ', exchange_id) AS evidence_sql
FROM (
  SELECT
    found.query_id, found.table_name, found.column_name, min(found.exchange_id) AS exchange_id,
    min(found.fragment_id) AS fragment_id, sum(found.tuples) AS tuples, sum(found.bytes) AS bytes,
    sum(stats.self_ns) AS cost_ns
  FROM sys.colocation_candidates AS found
  JOIN (
    SELECT query_id, operator_id, max(self_ns) AS self_ns FROM sys.operator_stats GROUP BY query_id, operator_id
  ) AS stats ON found.query_id = stats.query_id AND found.exchange_id = stats.operator_id
  GROUP BY found.query_id, found.table_name, found.column_name
) AS tables
WHERE bytes >= 65536 AND cost_ns >= 10000000
