-- What the scans of a table read, and about how many bytes that was.
SELECT operators.operator_id, operators.details, sum(stats.bytes_out) AS bytes
FROM sys.operators AS operators
JOIN sys.operator_stats AS stats
  ON operators.query_id = stats.query_id AND operators.operator_id = stats.operator_id
WHERE operators.query_id = $query_id AND operators.table_name = $table_name
GROUP BY operators.operator_id, operators.details
