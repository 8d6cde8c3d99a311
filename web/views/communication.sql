-- What each sender of an exchange sent to each of its receivers. Senders and receivers are partitions where these are
-- recorded. Of more than 64 senders or receivers (4,096 if the other side is one), partitions are summed to workers.
-- $query_id BIGINT: the query
-- $exchange_id BIGINT: the operator id of the exchange
-- $lo BIGINT = NULL: sent not before, in nanoseconds since the start; NULL is no bound
-- $hi BIGINT = NULL: sent not after, in nanoseconds since the start; NULL is no bound
WITH cells AS (
  SELECT
    sent.source_worker, coalesce(sent.source_partition, CASE WHEN exchange.gathers THEN sent.partition END)
      AS source_partition,
    sent.destination_worker, CASE WHEN NOT exchange.gathers THEN sent.partition END AS destination_partition,
    sum(sent.tuples) AS tuples, sum(sent.bytes) AS bytes, count(*) AS batches,
    min(CAST(sent.sent_at AS BIGINT) - exchange.started_ns) AS first_ns,
    max(CAST(sent.sent_at AS BIGINT) - exchange.started_ns) AS last_ns
  FROM sys.tuples_sent AS sent
  CROSS JOIN (
    SELECT CAST(queries.started_at AS BIGINT) AS started_ns, coalesce(operators.routing, '') = 'gather' AS gathers
    FROM sys.queries AS queries
    JOIN sys.operators AS operators ON operators.query_id = queries.query_id
    WHERE queries.query_id = $query_id AND operators.query_id = $query_id AND operators.operator_id = $exchange_id
  ) AS exchange
  WHERE sent.query_id = $query_id AND sent.exchange_id = $exchange_id
    AND ($lo IS NULL OR CAST(sent.sent_at AS BIGINT) - exchange.started_ns >= $lo)
    AND ($hi IS NULL OR CAST(sent.sent_at AS BIGINT) - exchange.started_ns <= $hi)
  GROUP BY 1, 2, 3, 4
),
size AS (
  SELECT
    senders * receivers <= 64 * 64 AND (least(senders, receivers) = 1 OR greatest(senders, receivers) <= 64) AS fits
  FROM (
    SELECT
      count(DISTINCT source_worker || ' ' || coalesce(source_partition, -1)) AS senders,
      count(DISTINCT destination_worker || ' ' || coalesce(destination_partition, -1)) AS receivers
    FROM cells
  ) AS ends
)
SELECT
  source_worker, CASE WHEN size.fits THEN source_partition END AS source_partition,
  destination_worker, CASE WHEN size.fits THEN destination_partition END AS destination_partition,
  CAST(sum(tuples) AS BIGINT) AS rows, CAST(sum(bytes) AS BIGINT) AS bytes, CAST(sum(batches) AS BIGINT) AS batches,
  min(first_ns) AS first_ns, max(last_ns) AS last_ns
FROM cells CROSS JOIN size
GROUP BY 1, 2, 3, 4
ORDER BY 1, 2, 3, 4
