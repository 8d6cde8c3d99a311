-- Whether any record is known that the result was made of, or a table was read whose rows have ids.
SELECT 1 AS known FROM (
  (SELECT 1 FROM sys.lineage WHERE query_id = $query_id AND table_name IS NOT NULL LIMIT 1)
  UNION ALL
  (SELECT 1 FROM sys.output_records WHERE query_id = $query_id AND table_name IS NOT NULL LIMIT 1)
  UNION ALL
  (SELECT 1 FROM sys.operators WHERE query_id = $query_id AND table_name IS NOT NULL LIMIT 1)
) AS records
