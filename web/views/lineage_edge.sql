-- Edges of lineage between named records, and between these and all others (NULL): how many edges, from how many
-- records, and the greatest latency that one of them carries. `to_operator_id` is -1 for result rows.
-- $query_id BIGINT: the query
-- $nodes VARCHAR: the named records, for example `12:777,6:2533279085363200,-1:0`
WITH
named AS (
  SELECT unnest(string_to_array($nodes, ',')) AS node
),
edges AS (
  SELECT
    operator_id AS to_operator_id, output_id AS to_id, input_operator_id AS operator_id, input_id AS id,
    count(*) AS edges, max(input_latency_ns) AS latency_ns
  FROM sys.lineage WHERE query_id = $query_id
  GROUP BY operator_id, output_id, input_operator_id, input_id
  UNION ALL
  SELECT CAST(-1 AS BIGINT), output_row, operator_id, record_id, count(*), max(latency_ns)
  FROM sys.output_records WHERE query_id = $query_id AND record_id IS NOT NULL
  GROUP BY output_row, operator_id, record_id
)
SELECT
  edges.operator_id, CASE WHEN named.node IS NOT NULL THEN edges.id END AS id, edges.to_operator_id,
  CASE WHEN made.node IS NOT NULL THEN edges.to_id END AS to_id,
  CAST(sum(edges.edges) AS BIGINT) AS edges, count(*) AS pairs, max(edges.latency_ns) AS latency_ns
FROM edges
LEFT JOIN named ON edges.operator_id || ':' || edges.id = named.node
LEFT JOIN named AS made ON edges.to_operator_id || ':' || edges.to_id = made.node
GROUP BY
  edges.operator_id, CASE WHEN named.node IS NOT NULL THEN edges.id END, edges.to_operator_id,
  CASE WHEN made.node IS NOT NULL THEN edges.to_id END
ORDER BY to_operator_id, operator_id, edges DESC
