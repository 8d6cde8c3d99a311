-- The table that each scan reads, as lineage tells.
SELECT input_operator_id AS operator_id, table_name
FROM sys.lineage
WHERE query_id = $query_id AND table_name IS NOT NULL
UNION
SELECT operator_id, table_name
FROM sys.output_records
WHERE query_id = $query_id AND table_name IS NOT NULL
ORDER BY operator_id
