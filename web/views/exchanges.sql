-- Exchanges: the rows and bytes that each sent, how much of that went to another worker, and how evenly its receivers
-- were loaded (the largest over the mean; 1 is even). Receivers are partitions; where rows are gathered, workers.
-- $query_id BIGINT: the query
-- $lo BIGINT = NULL: sent not before, in nanoseconds since the start; NULL is no bound
-- $hi BIGINT = NULL: sent not after, in nanoseconds since the start; NULL is no bound
WITH exchanges AS (
  SELECT operator_id, name, routing, details, coalesce(routing, '') = 'gather' AS gathers
  FROM sys.operators
  WHERE query_id = $query_id AND kind = 'exchange'
),
sent AS (
  SELECT
    exchange_id, source_worker, destination_worker, partition, sum(tuples) AS tuples, sum(bytes) AS bytes,
    count(*) AS batches
  FROM sys.tuples_sent
  WHERE query_id = $query_id
    AND ($lo IS NULL OR sent_at >= (
      SELECT to_timestamp_nanos(CAST(started_at AS BIGINT) + $lo) FROM sys.queries WHERE query_id = $query_id))
    AND ($hi IS NULL OR sent_at <= (
      SELECT to_timestamp_nanos(CAST(started_at AS BIGINT) + $hi) FROM sys.queries WHERE query_id = $query_id))
  GROUP BY exchange_id, source_worker, destination_worker, partition
),
totals AS (
  SELECT
    exchange_id, sum(tuples) AS tuples, sum(bytes) AS bytes, sum(batches) AS batches,
    sum(CASE WHEN source_worker <> destination_worker THEN tuples ELSE 0 END) AS crossed_rows,
    sum(CASE WHEN source_worker <> destination_worker THEN bytes ELSE 0 END) AS crossed_bytes,
    count(DISTINCT source_worker) AS senders
  FROM sent GROUP BY exchange_id
),
receivers AS (
  SELECT tasks.operator_id, tasks.worker_id, tasks.partition, sum(coalesce(sent.tuples, 0)) AS tuples
  FROM (
    SELECT DISTINCT
      exchanges.operator_id, exchanges.gathers, stats.worker_id,
      CASE WHEN exchanges.gathers THEN -1 ELSE stats.partition END AS partition
    FROM exchanges
    JOIN sys.operator_stats AS stats ON stats.operator_id = exchanges.operator_id
    WHERE stats.query_id = $query_id
  ) AS tasks
  LEFT JOIN sent
    ON sent.exchange_id = tasks.operator_id AND sent.destination_worker = tasks.worker_id
    AND (tasks.gathers OR sent.partition = tasks.partition)
  GROUP BY tasks.operator_id, tasks.worker_id, tasks.partition
),
loads AS (
  SELECT
    operator_id, count(*) AS receivers, count(DISTINCT worker_id) AS receiving_workers, max(tuples) AS max_rows,
    max(tuples) / nullif(avg(tuples), 0) AS skew,
    first_value(worker_id ORDER BY tuples DESC, partition, worker_id) AS largest_worker,
    first_value(partition ORDER BY tuples DESC, partition, worker_id) AS largest_partition
  FROM receivers GROUP BY operator_id
)
SELECT
  exchanges.operator_id AS exchange_id, exchanges.name, exchanges.routing, exchanges.details,
  CAST(coalesce(totals.tuples, 0) AS BIGINT) AS rows, CAST(coalesce(totals.bytes, 0) AS BIGINT) AS bytes,
  CAST(coalesce(totals.batches, 0) AS BIGINT) AS batches,
  CAST(coalesce(totals.crossed_rows, 0) AS BIGINT) AS crossed_rows,
  CAST(coalesce(totals.crossed_bytes, 0) AS BIGINT) AS crossed_bytes,
  coalesce(totals.senders, 0) AS senders, coalesce(loads.receivers, 0) AS receivers,
  coalesce(loads.receiving_workers, 0) AS receiving_workers,
  CAST(coalesce(loads.max_rows, 0) AS BIGINT) AS max_rows, CAST(loads.skew AS DOUBLE) AS skew,
  loads.largest_worker, nullif(loads.largest_partition, -1) AS largest_partition
FROM exchanges
LEFT JOIN totals ON totals.exchange_id = exchanges.operator_id
LEFT JOIN loads ON loads.operator_id = exchanges.operator_id
ORDER BY exchanges.operator_id
