-- Statements that run queries now, and the ones that wait for admission.
-- gauge skewer_queries_running: Statements that run queries now.
-- gauge skewer_queries_queued: Statements that wait for admission now.
SELECT
  count(*) FILTER (WHERE state = 'running') AS skewer_queries_running,
  count(*) FILTER (WHERE state = 'waiting') AS skewer_queries_queued
FROM sys.running
