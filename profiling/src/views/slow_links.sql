-- Links between nodes that are slower than others: `slow link`. Of both directions of a link the shorter round trip
-- counts. All links of a node are slow if even its fastest one takes 5 ms or more, and four times the fastest one of
-- the median node. One link is slow if it takes 10 ms or more, and four times the fastest link of either end, so that
-- it is neither node. Where the query's tasks waited for a processor for a fifth of their time, threads that send and
-- receive wait, too: the round trip must take 40 ms then. `sys.links` has the present only: the view shows queries
-- that ended in the last two minutes and sent rows over such a link. Its cost is what round trips take longer, for the
-- start of the query, each exchange, and each window of bytes that crossed. Level `counters` and above.
WITH pairs AS (
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
  SELECT *, median(fastest_ns) OVER () AS usual_ns
  FROM (
    SELECT worker_id, min(rtt_ns) AS fastest_ns, max(window_bytes) AS window_bytes
    FROM (
      SELECT one AS worker_id, rtt_ns, window_bytes FROM pairs
      UNION ALL
      SELECT other, rtt_ns, window_bytes FROM pairs
    ) AS ends
    GROUP BY worker_id
  ) AS fastest
),
slow AS (
  SELECT worker_id, CAST(NULL AS BIGINT) AS peer_id, fastest_ns AS rtt_ns, usual_ns, window_bytes
  FROM nodes
  WHERE fastest_ns >= 5000000 AND fastest_ns >= 4 * usual_ns
  UNION ALL
  SELECT
    pairs.one, pairs.other, pairs.rtt_ns, CAST(greatest(ones.fastest_ns, others.fastest_ns) AS DOUBLE),
    pairs.window_bytes
  FROM pairs
  JOIN nodes AS ones ON pairs.one = ones.worker_id
  JOIN nodes AS others ON pairs.other = others.worker_id
  WHERE pairs.rtt_ns >= 10000000 AND pairs.rtt_ns >= 4 * greatest(ones.fastest_ns, others.fastest_ns)
),
crossed AS (
  SELECT
    query_id, least(source_worker, destination_worker) AS one, greatest(source_worker, destination_worker) AS other,
    exchange_id, sum(bytes) AS bytes
  FROM sys.tuples_sent
  WHERE source_worker <> destination_worker
  GROUP BY query_id, one, other, exchange_id
),
found AS (
  SELECT
    crossed.query_id, slow.worker_id, slow.peer_id, slow.rtt_ns, slow.usual_ns, sum(crossed.bytes) AS bytes,
    count(DISTINCT crossed.exchange_id) AS exchanges, max(slow.window_bytes) AS window_bytes
  FROM crossed
  JOIN slow
    ON crossed.one = slow.worker_id AND crossed.other = slow.peer_id
      OR slow.peer_id IS NULL AND slow.worker_id IN (crossed.one, crossed.other)
  GROUP BY crossed.query_id, slow.worker_id, slow.peer_id, slow.rtt_ns, slow.usual_ns
)
SELECT
  found.query_id, 'slow link' AS detector,
  CASE
    WHEN peer_id IS NULL THEN concat('all links of worker ', worker_id)
    ELSE concat('link between worker ', worker_id, ' and worker ', peer_id)
  END AS subject,
  concat(
    'Round trips over the network ',
    CASE
      WHEN peer_id IS NULL THEN concat('to worker ', worker_id)
      ELSE concat('between worker ', worker_id, ' and worker ', peer_id)
    END,
    ' take ', round(rtt_ns / 1000000.0, 1), ' ms, over other links ', round(usual_ns / 1000000.0, 1), ' ms. ',
    exchanges, ' exchanges sent ', bytes, ' bytes this way.') AS cause,
  'Look at the network of both ends: SELECT * FROM sys.links ORDER BY rtt_ns DESC' AS advice,
  CAST(NULL AS BIGINT) AS fragment_id, CAST(NULL AS BIGINT) AS operator_id, worker_id,
  CAST(NULL AS BIGINT) AS partition, CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name,
  CAST(NULL AS BIGINT) AS row_id,
  CAST((rtt_ns - usual_ns) * (1 + exchanges + bytes / window_bytes) AS BIGINT) AS cost_ns,
  rtt_ns / greatest(usual_ns, 1.0) AS score, 4.0 AS threshold, CAST(NULL AS DOUBLE) AS confidence, FALSE AS innocent,
  'SELECT * FROM sys.links ORDER BY rtt_ns DESC' AS evidence_sql
FROM found
JOIN sys.queries AS queries ON found.query_id = queries.query_id
LEFT JOIN (
  SELECT query_id, sum(runqueue_ns) >= 0.2 * (sum(runqueue_ns) + sum(cpu_ns)) AS is_contended
  FROM sys.task_stats
  GROUP BY query_id
) AS waits ON found.query_id = waits.query_id
WHERE (rtt_ns >= 40000000 OR NOT coalesce(is_contended, false)) AND queries.imported_from IS NULL AND queries.ended_at >= now() - INTERVAL '2 minutes'
