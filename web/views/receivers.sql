-- What each receiver of an exchange got, also if it got nothing, and how long it was busy with the exchange. Receivers
-- are partitions; where rows are gathered, workers (partition is NULL).
-- $query_id BIGINT: the query
-- $exchange_id BIGINT: the operator id of the exchange
-- $lo BIGINT = NULL: sent not before, in nanoseconds since the start; NULL is no bound
-- $hi BIGINT = NULL: sent not after, in nanoseconds since the start; NULL is no bound
WITH exchange AS (
  SELECT CAST(queries.started_at AS BIGINT) AS started_ns, coalesce(operators.routing, '') = 'gather' AS gathers
  FROM sys.queries AS queries
  JOIN sys.operators AS operators ON operators.query_id = queries.query_id
  WHERE queries.query_id = $query_id AND operators.query_id = $query_id AND operators.operator_id = $exchange_id
),
sent AS (
  SELECT
    destination_worker, CASE WHEN exchange.gathers THEN -1 ELSE partition END AS partition,
    sum(tuples) AS tuples, sum(bytes) AS bytes,
    sum(CASE WHEN source_worker = destination_worker THEN tuples ELSE 0 END) AS local_rows,
    sum(CASE WHEN source_worker = destination_worker THEN bytes ELSE 0 END) AS local_bytes
  FROM sys.tuples_sent CROSS JOIN exchange
  WHERE query_id = $query_id AND exchange_id = $exchange_id
    AND ($lo IS NULL OR CAST(sent_at AS BIGINT) - started_ns >= $lo)
    AND ($hi IS NULL OR CAST(sent_at AS BIGINT) - started_ns <= $hi)
  GROUP BY 1, 2
),
tasks AS (
  SELECT
    worker_id, CASE WHEN exchange.gathers THEN -1 ELSE partition END AS partition,
    sum(self_ns) AS self_ns, sum(input_wait_ns) AS input_wait_ns
  FROM sys.operator_stats CROSS JOIN exchange
  WHERE query_id = $query_id AND operator_id = $exchange_id
  GROUP BY 1, 2
)
SELECT
  coalesce(tasks.worker_id, sent.destination_worker) AS worker_id,
  nullif(coalesce(tasks.partition, sent.partition), -1) AS partition,
  CAST(coalesce(sent.tuples, 0) AS BIGINT) AS rows, CAST(coalesce(sent.bytes, 0) AS BIGINT) AS bytes,
  CAST(coalesce(sent.local_rows, 0) AS BIGINT) AS local_rows,
  CAST(coalesce(sent.local_bytes, 0) AS BIGINT) AS local_bytes,
  CAST(tasks.self_ns AS BIGINT) AS self_ns, CAST(tasks.input_wait_ns AS BIGINT) AS input_wait_ns
FROM tasks
FULL JOIN sent ON sent.destination_worker = tasks.worker_id AND sent.partition = tasks.partition
ORDER BY 1, 2
