-- Links between nodes that are slower than others: `slow link`. Either one link: a worker sends its last batch over
-- it at least 10 ms later than over its other links, and the receiver gets the batches of its other links at least 10
-- ms earlier, so that neither of both is slow by itself. Its cost is the smaller of both delays; times are of
-- sending, so that a delay shows only if buffers are full. Or all links of a node: their round trips take at least 5
-- ms, and four times the median of the links between other nodes. `sys.links` has the present only, so this holds for
-- queries that ended in the last two minutes. Its cost is what the round trips take longer, for the start of the
-- query, each of its exchanges, and each window of bytes that crossed the node's links. Level `counters` and above.
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
streams_found AS (
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
),
pairs AS (
  SELECT one, other, min(rtt_ns) AS rtt_ns, max(window_bytes) AS window_bytes
  FROM (
    SELECT
      least(worker_id, peer_id) AS one, greatest(worker_id, peer_id) AS other, rtt_ns,
      greatest(coalesce(window_bytes, 0), 65536) AS window_bytes
    FROM sys.links
  ) AS connections
  GROUP BY one, other
),
nodes AS (
  SELECT
    nodes.worker_id, min(CASE WHEN nodes.worker_id IN (one, other) THEN rtt_ns END) AS rtt_ns,
    median(CASE WHEN nodes.worker_id NOT IN (one, other) THEN rtt_ns END) AS usual_ns,
    max(window_bytes) AS window_bytes
  FROM (SELECT DISTINCT worker_id FROM sys.links) AS nodes
  CROSS JOIN pairs
  GROUP BY nodes.worker_id
),
crossed AS (
  SELECT query_id, worker_id, count(DISTINCT exchange_id) AS exchanges, sum(bytes) AS bytes
  FROM (
    SELECT query_id, exchange_id, bytes, unnest([source_worker, destination_worker]) AS worker_id
    FROM sys.tuples_sent
    WHERE source_worker <> destination_worker
  ) AS sent
  GROUP BY query_id, worker_id
)
SELECT
  query_id, 'slow link' AS detector,
  'from worker ' || source_worker || ' to worker ' || destination_worker AS subject,
  'The last of ' || bytes || ' bytes from worker ' || source_worker || ' to worker ' || destination_worker || ' left '
    || cost_ns / 1000000 || ' ms after the last over any other link of both, in operator '
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
FROM streams_found
WHERE place = 1 AND cost_ns >= 0.5 * whole_ns

UNION ALL
SELECT
  crossed.query_id, 'slow link', concat('all links of worker ', crossed.worker_id),
  concat(
    'Round trips over the network to worker ', crossed.worker_id, ' take ', round(nodes.rtt_ns / 1000000.0, 1),
    ' ms, between other nodes ', round(nodes.usual_ns / 1000000.0, 1), ' ms. ', crossed.exchanges,
    ' exchanges sent ', crossed.bytes, ' bytes over them.'),
  concat('Look at the network of worker ', crossed.worker_id, ': SELECT * FROM sys.links ORDER BY rtt_ns DESC'),
  CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), crossed.worker_id, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT),
  CAST(NULL AS VARCHAR), CAST(NULL AS BIGINT),
  CAST((nodes.rtt_ns - nodes.usual_ns)
    * (1 + crossed.exchanges + crossed.bytes / nodes.window_bytes) AS BIGINT),
  nodes.rtt_ns / greatest(nodes.usual_ns, 1), 4.0, CAST(NULL AS DOUBLE), FALSE,
  'SELECT * FROM sys.links ORDER BY rtt_ns DESC'
FROM crossed
JOIN nodes ON crossed.worker_id = nodes.worker_id
JOIN sys.queries AS queries ON crossed.query_id = queries.query_id
WHERE nodes.rtt_ns >= 5000000 AND nodes.rtt_ns >= 4 * nodes.usual_ns AND queries.imported_from IS NULL
  AND queries.ended_at >= now() - INTERVAL '2 minutes'
