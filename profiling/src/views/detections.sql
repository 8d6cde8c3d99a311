-- Everything that the detectors find: one row for each finding, before findings are judged together. Each detector is
-- a view of its own, whose comment has the rule. `cause` names the cause and its cost, `advice` what to do. `cost_ns`
-- is the time of the query that would be saved, NULL where that cannot be told. `score` over `threshold` is how
-- conspicuous the finding is, `confidence` how often such a finding was right in the fault laboratory, NULL where
-- nobody measured it. `innocent` findings explain something that needs no action. `sys.diagnoses` judges them.
SELECT * FROM sys.expensive_records
UNION ALL
SELECT * FROM sys.shuffle_latencies
UNION ALL
SELECT * FROM sys.key_findings
UNION ALL
SELECT * FROM sys.data_size_skew
UNION ALL
SELECT * FROM sys.operator_findings
UNION ALL
SELECT * FROM sys.overpartitioned
UNION ALL
SELECT * FROM sys.colocation
UNION ALL
SELECT * FROM sys.task_assignment
UNION ALL
SELECT * FROM sys.straggler_tasks
UNION ALL
SELECT * FROM sys.worker_findings
UNION ALL
SELECT * FROM sys.slow_links
UNION ALL
SELECT * FROM sys.changed_runs
UNION ALL
SELECT * FROM sys.query_findings
UNION ALL
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, coalesce(innocent, false), evidence_sql
FROM sys.user_detections
