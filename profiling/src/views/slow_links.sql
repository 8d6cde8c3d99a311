-- Links between workers that are slower than others: `slow link`. A worker sends its last batch over the link at
-- least 10 ms later than over its other links, and the receiver gets batches over its other links at least 10 ms
-- earlier. So neither the sender nor the receiver alone is slow. Its cost is the smaller of both delays. Times are those
-- of sending: what a link delays shows only if its buffers are full. Level `counters` and above; `sys.links` has
-- round trips and lost packets as they are now.
WITH links AS (
  SELECT query_id, exchange_id, source_worker, destination_worker, bytes, sent,
    sent - lead(sent) OVER (PARTITION BY query_id, exchange_id, source_worker ORDER BY sent DESC) AS of_source_ns,
    sent - lead(sent) OVER (PARTITION BY query_id, exchange_id, destination_worker ORDER BY sent DESC)
      AS of_destination_ns,
    sent - lag(sent) OVER (PARTITION BY query_id, exchange_id, source_worker ORDER BY sent DESC) AS is_earlier,
    sent - lag(sent) OVER (PARTITION BY query_id, exchange_id, destination_worker ORDER BY sent DESC)
      AS is_earlier_there,
    sent - min(sent) OVER (PARTITION BY query_id, exchange_id) AS whole_ns
  FROM (
    SELECT
      query_id, exchange_id, source_worker, destination_worker, sum(bytes) AS bytes,
      max(CAST(sent_at AS BIGINT)) AS sent
    FROM sys.tuples_sent
    GROUP BY query_id, exchange_id, source_worker, destination_worker
  ) AS streams
),
found AS (
  SELECT
    links.*, operators.name, operators.fragment_id, least(links.of_source_ns, links.of_destination_ns) AS cost_ns,
    row_number() OVER (
      PARTITION BY links.query_id, links.source_worker, links.destination_worker
      ORDER BY least(links.of_source_ns, links.of_destination_ns) DESC, links.exchange_id
    ) AS place
  FROM links
  JOIN sys.operators AS operators
    ON links.query_id = operators.query_id AND links.exchange_id = operators.operator_id
  WHERE links.source_worker <> links.destination_worker AND links.is_earlier IS NULL
    AND links.is_earlier_there IS NULL AND links.of_source_ns >= 10000000 AND links.of_destination_ns >= 10000000
    AND operators.routing = 'hash'
)
SELECT
  query_id, 'slow link' AS detector,
  'from worker ' || source_worker || ' to worker ' || destination_worker AS subject,
  'The last of ' || bytes || ' bytes from worker ' || source_worker || ' to worker ' || destination_worker || ' left '
    || CAST(round(cost_ns / 1000000.0) AS BIGINT) || ' ms after the last over any other link of both, in operator '
    || exchange_id || ' ' || name || '.' AS cause,
  'Look at the network between both: SELECT * FROM sys.links WHERE worker_id = ' || source_worker
    || ' AND peer_id = ' || destination_worker AS advice,
  fragment_id, exchange_id AS operator_id, source_worker AS worker_id, CAST(NULL AS BIGINT) AS partition, exchange_id,
  CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id, CAST(cost_ns AS BIGINT) AS cost_ns,
  CAST(cost_ns AS DOUBLE) / whole_ns AS score, 0.5 AS threshold, CAST(NULL AS DOUBLE) AS confidence,
  FALSE AS innocent,
  'SELECT source_worker, destination_worker, sum(bytes) AS bytes, max(sent_at) AS last_sent_at FROM sys.tuples_sent '
    || 'WHERE query_id = ' || query_id || ' AND exchange_id = ' || exchange_id || ' GROUP BY 1, 2 ORDER BY 4 DESC'
    AS evidence_sql
FROM found
WHERE place = 1 AND cost_ns >= 0.5 * whole_ns
