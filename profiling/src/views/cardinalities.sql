-- Rows that operators returned, and rows that the optimizer expected: of operators that returned all rows of a relation.
-- `q_error` is the larger number divided by the smaller one, 1 for a perfect estimate (Moerkotte, Neumann and Steidl,
-- "Preventing bad plans by bounding the impact of cardinality estimation errors", VLDB 2009). Later queries plan with
-- these rows as long as the tables stay the same. Queries that finished, level `counters` and `calls`.
SELECT
  operators.query_id, operators.operator_id, operators.relation, operators.name, operators.table_name,
  operators.details, operators.estimated_rows, stats.rows_out AS returned_rows,
  CAST(greatest(estimated_rows, stats.rows_out, 1) AS DOUBLE)
    / greatest(least(estimated_rows, stats.rows_out), 1) AS q_error
FROM sys.operators AS operators
JOIN (
  SELECT query_id, operator_id, CAST(sum(rows_out) AS BIGINT) AS rows_out
  FROM sys.operator_stats
  GROUP BY query_id, operator_id
) AS stats ON operators.query_id = stats.query_id AND operators.operator_id = stats.operator_id
JOIN sys.queries AS queries ON operators.query_id = queries.query_id
WHERE operators.relation IS NOT NULL AND queries.status = 'finished'
