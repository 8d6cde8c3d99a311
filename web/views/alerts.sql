-- The alerts that hold now, the worst first.
SELECT
  alert, subject, severity, CAST(now() AS BIGINT) - CAST(since AS BIGINT) AS since_ns, cause,
  CAST(value AS DOUBLE) AS value, CAST(threshold AS DOUBLE) AS threshold, evidence_sql
FROM sys.alerts
ORDER BY CASE severity WHEN 'critical' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END, since_ns, alert, subject
