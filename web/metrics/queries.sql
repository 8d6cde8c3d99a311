-- Statements that have ended since the database was opened, by how they ended.
-- counter skewer_queries: Statements that ended.
-- counter skewer_query_rows: Rows that statements returned or changed.
-- counter skewer_query_queued_seconds: Time that statements waited for admission.
-- counter skewer_query_planning_seconds: Time that statements spent in parsing, optimizing and planning.
SELECT
  status, sum(queries) AS skewer_queries, sum(rows_returned) AS skewer_query_rows,
  sum(queued_ns) / 1e9 AS skewer_query_queued_seconds, sum(planning_ns) / 1e9 AS skewer_query_planning_seconds
FROM sys.query_totals
GROUP BY status
ORDER BY status
