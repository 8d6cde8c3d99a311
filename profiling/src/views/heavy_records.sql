-- Records that were made from many others: a group of an aggregate with the number of its edges
-- of lineage and their share of all edges of the operator. Level `records`.
SELECT
  query_id, operator_id, record_id, edges,
  CAST(edges AS DOUBLE) / sum(edges) OVER (PARTITION BY query_id, operator_id) AS share
FROM (
  SELECT query_id, operator_id, output_id AS record_id, count(*) AS edges
  FROM sys.lineage
  GROUP BY query_id, operator_id, output_id
) AS records
