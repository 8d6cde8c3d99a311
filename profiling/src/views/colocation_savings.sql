-- What storing a table by hash of a column would save, over all queries that are kept: the bytes and rows that crossed
-- between workers by hash of that column, and the statement that stores the table so. One row for each table and
-- column, most bytes first. It reads all queries: it takes as long as they are many.
SELECT
  table_name, column_name, count(DISTINCT query_id) AS queries, sum(tuples) AS tuples, sum(bytes) AS bytes,
  max(query_id) AS last_query_id,
  'CREATE TABLE new_table PARTITION BY HASH (' || column_name || ') AS SELECT * FROM ' || table_name AS statement
FROM sys.colocation_candidates
GROUP BY table_name, column_name
ORDER BY bytes DESC
