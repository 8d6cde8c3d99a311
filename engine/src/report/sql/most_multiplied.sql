-- Of each scan the record from which most rows descend, and how many records there are. Rows are counted where
-- they arrive at the first operator that captures lineage, or in the result.
SELECT
  scan_id, table_name, first_value(row_id ORDER BY made DESC, row_id) AS row_id,
  max(made) AS rows, sum(made) AS table_rows, count(*) AS records
FROM (
  SELECT scan_id, consumer_id, table_name, row_id, count(*) AS made
  FROM (
    SELECT input_operator_id AS scan_id, operator_id AS consumer_id, table_name, input_id AS row_id
    FROM sys.lineage
    WHERE query_id = $query_id AND input_operator_id IN ($scans) AND table_name IS NOT NULL
    UNION ALL
    SELECT operator_id, CAST(NULL AS BIGINT) AS consumer_id, table_name, record_id
    FROM sys.output_records
    WHERE query_id = $query_id AND operator_id IN ($scans) AND table_name IS NOT NULL
      AND record_id IS NOT NULL
  ) AS edges
  WHERE $traced
  GROUP BY scan_id, consumer_id, table_name, row_id
) AS descendants
GROUP BY scan_id, consumer_id, table_name
ORDER BY rows DESC, row_id, table_name
