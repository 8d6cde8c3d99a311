-- The records that result rows waited for most, by their impact.
-- $query_id BIGINT: the query
SELECT rank, table_name, row_id, impact_ns, max_total_ns, max_remediated_ns, outputs
FROM sys.expensive_inputs
WHERE query_id = $query_id
ORDER BY rank, table_name, row_id
LIMIT 20
