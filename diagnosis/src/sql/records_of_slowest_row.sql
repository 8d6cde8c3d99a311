-- How many input records the slowest result row was made from, and how many were traced at all.
SELECT own.records, everything.traced
FROM (
  SELECT count(*) AS records FROM backward_trace($query_id, $output_row)
) AS own
CROSS JOIN (
  SELECT sum(records) AS traced
  FROM (
    SELECT count(DISTINCT input_id) AS records
    FROM sys.lineage
    WHERE query_id = $query_id AND table_name IS NOT NULL
    GROUP BY table_name
  ) AS of_tables
) AS everything
