-- Keys that many rows of an exchange or of an input of a join have, estimated from a sample: rows, their error of two
-- standard deviations, and the share of all rows there.
-- $query_id BIGINT: the query
SELECT
  keys.exchange_id AS operator_id, keys.input, keys.key,
  CAST(sum(keys.tuples) AS BIGINT) AS rows, CAST(sqrt(sum(keys.error * keys.error)) AS BIGINT) AS error_rows,
  sum(keys.tuples) / nullif(sum(keys.tuples / keys.share), 0) AS share,
  count(*) AS workers
FROM sys.key_frequencies AS keys
WHERE keys.query_id = $query_id AND keys.share > 0
GROUP BY keys.exchange_id, keys.input, keys.key
ORDER BY keys.exchange_id, keys.input, rows DESC, keys.key
LIMIT 500
