-- Batches of an exchange that were sent between $lo and $hi: when, from which worker to which, and when the first call
-- of the exchange that can have used one ended. At most 1,000 of them; total counts all.
-- $query_id BIGINT: the query
-- $exchange_id BIGINT: the exchange's operator
-- $lo BIGINT = NULL: from here, in nanoseconds since the statement arrived; NULL is its start
-- $hi BIGINT = NULL: up to here; NULL is the end
WITH sent AS (
  SELECT
    source_worker, destination_worker, partition, CAST(sent_at AS BIGINT) AS sent_ns, start_ns, tuples, bytes,
    count(*) OVER () AS total, row_number() OVER (ORDER BY sent_at) AS place
  FROM sys.tuples_sent
  CROSS JOIN (SELECT CAST(started_at AS BIGINT) AS start_ns FROM sys.queries WHERE query_id = $query_id) AS queries
  WHERE query_id = $query_id AND exchange_id = $exchange_id
    AND CAST(sent_at AS BIGINT) - start_ns >= coalesce($lo, 0)
    AND ($hi IS NULL OR CAST(sent_at AS BIGINT) - start_ns <= $hi)
)
SELECT
  source_worker, destination_worker, sent.partition, sent_ns - start_ns AS sent_ns,
  min(CAST(calls.ended_at AS BIGINT)) - start_ns AS used_ns,
  first_value(calls.partition ORDER BY calls.ended_at) AS used_partition, tuples, bytes, total
FROM sent
CROSS JOIN (
  SELECT routing FROM sys.operators WHERE query_id = $query_id AND operator_id = $exchange_id
) AS exchange
LEFT JOIN sys.operator_calls AS calls
  ON calls.query_id = $query_id AND calls.operator_id = $exchange_id AND calls.worker_id = destination_worker
  AND (routing = 'gather' OR calls.partition = sent.partition) AND calls.rows > 0
  AND CAST(calls.ended_at AS BIGINT) BETWEEN sent_ns AND sent_ns + 100000000 AND total <= 200
WHERE place <= 1000
GROUP BY source_worker, destination_worker, sent.partition, sent_ns, start_ns, tuples, bytes, total, place
ORDER BY place
