-- What crossed each exchange between each pair of workers, and how evenly it was spread over the
-- partitions that received it (the largest over the mean; 1 is even).
SELECT
  sent.query_id, sent.exchange_id, operators.name, operators.details,
  sent.source_worker, sent.destination_worker, sent.partitions, sent.tuples, sent.bytes,
  sent.max_tuples, sent.skew
FROM (
  SELECT
    query_id, exchange_id, source_worker, destination_worker, count(*) AS partitions,
    sum(tuples) AS tuples, sum(bytes) AS bytes, max(tuples) AS max_tuples,
    max(tuples) / nullif(avg(tuples), 0) AS skew
  FROM (
    SELECT
      query_id, exchange_id, source_worker, destination_worker, partition,
      sum(tuples) AS tuples, sum(bytes) AS bytes
    FROM sys.tuples_sent
    GROUP BY query_id, exchange_id, source_worker, destination_worker, partition
  ) AS received
  GROUP BY query_id, exchange_id, source_worker, destination_worker
) AS sent
LEFT JOIN sys.operators AS operators
  ON sent.query_id = operators.query_id AND sent.exchange_id = operators.operator_id
