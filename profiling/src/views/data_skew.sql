-- How evenly rows were spread over the partitions of each operator that has several: the largest
-- partition, its share, and the largest over the mean (1 is even). At level `records`,
-- sys.heavy_records names the groups behind it.
SELECT
  skew.query_id, skew.operator_id, operators.name, operators.kind, operators.routing, operators.details,
  skew.partitions, skew.rows, skew.max_rows, skew.largest_partition,
  CAST(skew.max_rows AS DOUBLE) / nullif(skew.rows, 0) AS share, skew.skew
FROM (
  SELECT
    query_id, operator_id, count(*) AS partitions, sum(rows) AS rows, max(rows) AS max_rows,
    first_value(partition ORDER BY rows DESC, partition) AS largest_partition,
    max(rows) / nullif(avg(rows), 0) AS skew
  FROM (
    SELECT query_id, operator_id, partition, sum(greatest(rows_in, rows_out)) AS rows
    FROM sys.operator_stats
    GROUP BY query_id, operator_id, partition
  ) AS loads
  GROUP BY query_id, operator_id
  HAVING count(*) > 1 AND sum(rows) > 0
) AS skew
JOIN sys.operators AS operators
  ON skew.query_id = operators.query_id AND skew.operator_id = operators.operator_id
