-- The connections between nodes as they are now, by sender and receiver.
-- gauge skewer_link_rtt_seconds: Smoothed round-trip time.
-- gauge skewer_link_min_rtt_seconds: Shortest round-trip time.
-- counter skewer_link_sent_packets: Packets that were sent.
-- counter skewer_link_lost_packets: Packets that were lost.
-- counter skewer_link_congestion_events: Times that the sender slowed down since packets were lost or marked.
-- counter skewer_link_sent_bytes: Bytes that were sent.
-- counter skewer_link_received_bytes: Bytes that were received.
SELECT
  worker_id AS worker, peer_id AS peer, max(rtt_ns) / 1e9 AS skewer_link_rtt_seconds,
  min(min_rtt_ns) / 1e9 AS skewer_link_min_rtt_seconds, sum(sent_packets) AS skewer_link_sent_packets,
  sum(lost_packets) AS skewer_link_lost_packets, sum(congestion_events) AS skewer_link_congestion_events,
  sum(sent_bytes) AS skewer_link_sent_bytes, sum(received_bytes) AS skewer_link_received_bytes
FROM sys.links
GROUP BY worker_id, peer_id
ORDER BY worker_id, peer_id
