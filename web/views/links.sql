-- The connections between the nodes as QUIC measures them now, by sender and receiver; 0 is the master. loss is the
-- share of the packets sent that were lost.
SELECT
  worker_id, peer_id, max(rtt_ns) AS rtt_ns, min(min_rtt_ns) AS min_rtt_ns,
  CAST(sum(sent_packets) AS BIGINT) AS sent_packets, CAST(sum(lost_packets) AS BIGINT) AS lost_packets,
  CAST(sum(lost_packets) AS DOUBLE) / nullif(sum(sent_packets), 0) AS loss,
  CAST(sum(congestion_events) AS BIGINT) AS congestion_events,
  CAST(sum(sent_bytes) AS BIGINT) AS sent_bytes, CAST(sum(received_bytes) AS BIGINT) AS received_bytes
FROM sys.links
GROUP BY worker_id, peer_id
ORDER BY worker_id, peer_id
