-- Records by what they cost, in quarter octaves of their latency: how many, and how much time they took together.
-- `dearest` is the record of the greatest latency. Of expressions, `sure_ns` is the time that was not apportioned.
-- $query_id BIGINT: the query
-- $measure VARCHAR = expressions: `expressions`, `operators` (apportioned by rows), or `groups` (made by aggregates)
WITH latencies AS (
  SELECT
    table_name AS source, row_id, CAST(sum(latency_ns) AS BIGINT) AS latency_ns,
    first_value(method ORDER BY latency_ns DESC) AS method, CAST(sum(error_ns) AS BIGINT) AS error_ns
  FROM sys.record_latency
  WHERE query_id = $query_id AND kind = 'computation' AND table_name IS NOT NULL AND $measure = 'expressions'
  GROUP BY table_name, row_id
  UNION ALL
  SELECT table_name, row_id, CAST(sum(latency_ns) AS BIGINT), 'apportioned', NULL
  FROM sys.apportioned_latency
  WHERE query_id = $query_id AND $measure = 'operators'
  GROUP BY table_name, row_id
  UNION ALL
  -- Groups: their part of the edges of lineage in their partition, times the partition's own time.
  SELECT
    'operator ' || made.operator_id, made.output_id,
    CAST(CAST(made.edges AS DOUBLE) / sum(made.edges) OVER (PARTITION BY made.operator_id, made.partition)
      * work.self_ns AS BIGINT), 'apportioned', NULL
  FROM (
    SELECT operator_id, partition, output_id, count(*) AS edges
    FROM sys.lineage
    WHERE query_id = $query_id AND $measure = 'groups'
    GROUP BY operator_id, partition, output_id
  ) AS made
  JOIN (
    SELECT operator_id, partition, sum(self_ns) AS self_ns
    FROM sys.operator_stats WHERE query_id = $query_id GROUP BY operator_id, partition
  ) AS work ON made.operator_id = work.operator_id AND made.partition = work.partition
)
SELECT
  source, CAST(floor(4 * log2(greatest(latency_ns, 1))) AS BIGINT) AS bin, count(*) AS records,
  CAST(sum(latency_ns) AS BIGINT) AS time_ns, min(latency_ns) AS least_ns, max(latency_ns) AS most_ns,
  first_value(row_id ORDER BY latency_ns DESC, row_id) AS dearest,
  CAST(sum(CASE WHEN method = 'apportioned' THEN 0 ELSE latency_ns END) AS BIGINT) AS sure_ns
FROM latencies
GROUP BY source, CAST(floor(4 * log2(greatest(latency_ns, 1))) AS BIGINT)
ORDER BY source, bin
