-- The table that each scan reads, and how many columns of row groups it found in the cache and decoded.
SELECT operators.operator_id, table_name, cache_hits, cache_misses
FROM sys.operators AS operators
LEFT JOIN (
  SELECT
    operator_id, sum(CASE WHEN metric = 'cache_hits' THEN value END) AS cache_hits,
    sum(CASE WHEN metric = 'cache_misses' THEN value END) AS cache_misses
  FROM sys.operator_metrics
  WHERE query_id = $query_id AND metric IN ('cache_hits', 'cache_misses')
  GROUP BY operator_id
) AS found ON operators.operator_id = found.operator_id
WHERE query_id = $query_id AND table_name IS NOT NULL
ORDER BY operators.operator_id
