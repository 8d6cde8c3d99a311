-- Rows that crossed between workers although a table could be stored so that they need not: `co-location`. At least
-- 64 KiB crossed an exchange of `sys.colocation_candidates`. Its cost is the longest task's own time in the exchange,
-- by the share of bytes that crossed. `sys.colocation_savings` adds up the bytes over all queries. Level `counters`
-- and above.
-- Source: Zamanian et al., Locality-aware partitioning in parallel database systems, SIGMOD 2015.
SELECT
  found.query_id, 'co-location' AS detector,
  'operator ' || found.exchange_id || ' ' || found.name || ', table ' || found.table_name AS subject,
  found.tuples || ' rows, ' || found.bytes || ' bytes, crossed between workers by hash of ' || found.column_name
    || ', which took a task up to ' || CAST(round(stats.cost_ns / 1000000.0) AS BIGINT) || ' ms.' AS cause,
  'Store the table by that column, and what it is joined with alike: CREATE TABLE new_table PARTITION BY HASH ('
    || found.column_name || ') AS SELECT * FROM ' || found.table_name
    || ', then drop the old one and rename the new one.' AS advice,
  found.fragment_id, found.exchange_id AS operator_id, CAST(NULL AS BIGINT) AS worker_id,
  CAST(NULL AS BIGINT) AS partition, found.exchange_id, found.table_name, CAST(NULL AS BIGINT) AS row_id,
  CAST(stats.cost_ns AS BIGINT) AS cost_ns, CAST(found.bytes AS DOUBLE) AS score, 65536.0 AS threshold,
  CAST(NULL AS DOUBLE) AS confidence, FALSE AS innocent,
  'SELECT * FROM sys.communication WHERE query_id = ' || found.query_id || ' AND exchange_id = ' || found.exchange_id
    AS evidence_sql
FROM sys.colocation_candidates AS found
JOIN (
  SELECT query_id, operator_id, max(self_ns) AS cost_ns FROM sys.operator_stats GROUP BY query_id, operator_id
) AS stats ON found.query_id = stats.query_id AND found.exchange_id = stats.operator_id
WHERE found.bytes >= 65536 AND stats.cost_ns >= 10000000
