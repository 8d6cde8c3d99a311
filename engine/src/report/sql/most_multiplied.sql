-- Of each scan the records from which many rows descend, and one row for all of the others: how many rows that
-- is, how many records, and the most that descend from one of them. Rows are counted where they arrive at the
-- first operator that captures lineage, or in the result.
SELECT
  scan_id, consumer_id, table_name, many AS row_id, sum(made) AS rows, count(*) AS records, max(made) AS most
FROM (
  SELECT
    scan_id, consumer_id, table_name, made, CASE WHEN made >= CASE scan_id $many END THEN row_id END AS many
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
) AS compared
GROUP BY scan_id, consumer_id, table_name, many
ORDER BY scan_id, consumer_id, table_name, rows DESC, row_id
