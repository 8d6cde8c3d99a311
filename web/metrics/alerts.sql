-- The alerts that hold now.
-- keep 30 s: sys.alerts reads all queries that schema sys has.
-- gauge skewer_alert: 1 while the alert holds.
SELECT alert, subject, severity, 1 AS skewer_alert
FROM sys.alerts
GROUP BY alert, subject, severity
ORDER BY alert, subject, severity
