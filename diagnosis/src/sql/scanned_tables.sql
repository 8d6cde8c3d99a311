-- The table that each scan reads.
SELECT operator_id, table_name
FROM sys.operators
WHERE query_id = $query_id AND table_name IS NOT NULL
ORDER BY operator_id
