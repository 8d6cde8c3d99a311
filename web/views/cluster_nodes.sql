-- The workers that ever joined the cluster: their software, what they store, and why a lost one was lost.
SELECT
  worker_id, name, state, reason, version, segments, rows, bytes,
  CAST(now() AS BIGINT) - CAST(since AS BIGINT) AS since_ns,
  CAST(now() AS BIGINT) - CAST(last_heartbeat AS BIGINT) AS heartbeat_ns
FROM sys.cluster
ORDER BY worker_id
