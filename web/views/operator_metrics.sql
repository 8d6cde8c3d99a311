-- What DataFusion's operator counted itself, over all its partitions: rows of a join's build side, row groups that a scan
-- left out, bytes that it read.
-- $query_id BIGINT: the query
-- $operator_id BIGINT: the operator
SELECT metric, CAST(sum(value) AS BIGINT) AS total, max(value) AS most, count(*) AS partitions
FROM sys.operator_metrics
WHERE query_id = $query_id AND operator_id = $operator_id
GROUP BY metric
ORDER BY metric
