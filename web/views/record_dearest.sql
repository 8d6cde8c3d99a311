-- The dearest 100 records of a table, or of an operator's groups, whose latency lies between two bounds. How many
-- there are between them, what they took together, and the same of all records, are in every row.
-- $query_id BIGINT: the query
-- $measure VARCHAR = expressions: `expressions`, `operators` (apportioned by rows), or `groups` (made by aggregates)
-- $source VARCHAR: the table as in sys.record_latency; of groups, for example `operator 3`
-- $low_ns BIGINT = NULL: the least latency; NULL is none
-- $high_ns BIGINT = NULL: latencies stay below it; NULL is none
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
),
totals AS (
  SELECT count(*) AS all_records, CAST(sum(latency_ns) AS BIGINT) AS all_ns
  FROM latencies WHERE source = $source
)
SELECT
  latencies.row_id, latencies.latency_ns, CAST(latencies.latency_ns AS DOUBLE) / nullif(totals.all_ns, 0) AS share,
  latencies.method, latencies.error_ns, count(*) OVER () AS records,
  CAST(sum(latencies.latency_ns) OVER () AS BIGINT) AS time_ns, totals.all_records, totals.all_ns
FROM latencies
CROSS JOIN totals
WHERE latencies.source = $source
  AND latencies.latency_ns >= coalesce($low_ns, 0) AND latencies.latency_ns < coalesce($high_ns, 9223372036854775807)
ORDER BY latencies.latency_ns DESC, latencies.row_id
LIMIT 100
