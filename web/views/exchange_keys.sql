-- Heavy keys of an exchange, estimated from a sample: rows, error, share of all rows. Where a single partition got
-- enough rows from each sender to have taken the key, it is the receiver. Of the whole query.
-- $query_id BIGINT: the query
-- $exchange_id BIGINT: the operator id of the exchange
WITH seen AS (
  SELECT key, worker_id, sum(tuples) AS tuples, sqrt(sum(error * error)) AS error, max(share) AS share
  FROM sys.key_frequencies
  WHERE query_id = $query_id AND exchange_id = $exchange_id AND input IS NULL
  GROUP BY key, worker_id
),
loads AS (
  SELECT source_worker, destination_worker, partition, sum(tuples) AS tuples
  FROM sys.tuples_sent
  WHERE query_id = $query_id AND exchange_id = $exchange_id
  GROUP BY source_worker, destination_worker, partition
),
fits AS (
  SELECT seen.key, loads.destination_worker, loads.partition
  FROM seen
  JOIN loads ON loads.source_worker = seen.worker_id AND loads.tuples >= seen.tuples - 2 * seen.error
  GROUP BY seen.key, loads.destination_worker, loads.partition
  HAVING count(*) = (SELECT count(*) FROM seen AS all_seen WHERE all_seen.key = seen.key)
),
receiver AS (
  SELECT key, min(destination_worker) AS worker_id, min(partition) AS partition
  FROM fits GROUP BY key HAVING count(*) = 1
)
SELECT
  keys.key, CAST(keys.tuples AS BIGINT) AS rows, CAST(keys.error AS BIGINT) AS error,
  CAST(keys.tuples AS DOUBLE) / nullif(total.tuples, 0) AS share,
  CAST(keys.error AS DOUBLE) / nullif(total.tuples, 0) AS share_error,
  keys.senders, receiver.worker_id, receiver.partition
FROM (
  SELECT key, sum(tuples) AS tuples, sqrt(sum(error * error)) AS error, count(*) AS senders FROM seen GROUP BY key
) AS keys
CROSS JOIN (SELECT sum(tuples) AS tuples FROM loads) AS total
LEFT JOIN receiver ON receiver.key = keys.key
ORDER BY keys.tuples DESC, keys.key
LIMIT 20
