-- The statements that run or wait for admission now. `fraction` is the share of the input that was read, where the
-- size of the input is known.
SELECT
  query_id, sql, state, CAST(now() AS BIGINT) - CAST(since AS BIGINT) AS elapsed_ns, rows, fraction
FROM sys.running
ORDER BY query_id
