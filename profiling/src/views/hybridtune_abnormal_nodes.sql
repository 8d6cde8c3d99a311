-- HybridTune's rule for abnormal nodes as published (Ren et al., 2017), kept for comparison: the mean cosine similarity
-- of a worker's readings to those of the other workers of the query is below 0.40. Readings are means over the query,
-- each divided by the largest of all workers.
SELECT
  query_id, 'hybridtune abnormal node' AS detector, concat('worker ', worker_id) AS subject,
  concat('Its readings have a mean cosine similarity of ', round(avg(similarity), 3), ' to those of other workers.')
    AS cause,
  'Compare it with sys.abnormal_nodes.' AS advice, CAST(NULL AS BIGINT) AS fragment_id,
  CAST(NULL AS BIGINT) AS operator_id, worker_id, CAST(NULL AS BIGINT) AS partition,
  CAST(NULL AS BIGINT) AS exchange_id,
  CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id, CAST(NULL AS BIGINT) AS cost_ns,
  avg(similarity) AS score, 0.4 AS threshold, CAST(NULL AS DOUBLE) AS confidence, false AS innocent,
  concat('SELECT * FROM sys.worker_metrics WHERE query_id = ', query_id) AS evidence_sql
FROM (
  SELECT
    one.query_id, one.worker_id, other.worker_id AS other_id,
    sum(one.reading * other.reading)
      / nullif(sqrt(sum(one.reading * one.reading)) * sqrt(sum(other.reading * other.reading)), 0) AS similarity
  FROM (
    SELECT query_id, worker_id, metric, avg(value) / nullif(max(abs(avg(value))) OVER (PARTITION BY query_id,
    metric), 0)
      AS reading
    FROM sys.worker_metrics
    WHERE worker_id > 0
    GROUP BY query_id, worker_id, metric
  ) AS one
  JOIN (
    SELECT query_id, worker_id, metric, avg(value) / nullif(max(abs(avg(value))) OVER (PARTITION BY query_id,
    metric), 0)
      AS reading
    FROM sys.worker_metrics
    WHERE worker_id > 0
    GROUP BY query_id, worker_id, metric
  ) AS other ON one.query_id = other.query_id AND one.metric = other.metric AND one.worker_id <> other.worker_id
  GROUP BY one.query_id, one.worker_id, other.worker_id
) AS pairs
GROUP BY query_id, worker_id
HAVING avg(similarity) < 0.4
