-- Everything that the detectors find: one row for each finding, before findings are judged together. Each detector is
-- a view of its own, whose comment has the rule. `cause` names the cause and its cost, `advice` what to do. `cost_ns` is
-- the time of the query that would be saved, NULL where that cannot be told. `score` over `threshold` is how conspicuous
-- the finding is, `confidence` how often such a finding was right in the fault laboratory, NULL where nobody measured
-- it. `innocent` findings explain something that needs no action. `sys.diagnoses` judges them.
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, innocent, evidence_sql
FROM sys.expensive_records
UNION ALL
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, innocent, evidence_sql
FROM sys.shuffle_latencies
UNION ALL
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, innocent, evidence_sql
FROM sys.null_keys
UNION ALL
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, innocent, evidence_sql
FROM sys.heavy_keys
UNION ALL
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, innocent, evidence_sql
FROM sys.data_size_skew
UNION ALL
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, innocent, evidence_sql
FROM sys.multiplying_joins
UNION ALL
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, innocent, evidence_sql
FROM sys.wrong_estimates
UNION ALL
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, innocent, evidence_sql
FROM sys.spills
UNION ALL
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, innocent, evidence_sql
FROM sys.fission
UNION ALL
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, innocent, evidence_sql
FROM sys.overpartitioned
UNION ALL
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, innocent, evidence_sql
FROM sys.colocation
UNION ALL
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, innocent, evidence_sql
FROM sys.task_assignment
UNION ALL
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, innocent, evidence_sql
FROM sys.not_distributed
UNION ALL
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, innocent, evidence_sql
FROM sys.straggler_tasks
UNION ALL
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, innocent, evidence_sql
FROM sys.worker_findings
UNION ALL
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, innocent, evidence_sql
FROM sys.abnormal_nodes
UNION ALL
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, innocent, evidence_sql
FROM sys.slow_links
UNION ALL
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, innocent, evidence_sql
FROM sys.changed_runs
UNION ALL
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, innocent, evidence_sql
FROM sys.slow_client
UNION ALL
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, innocent, evidence_sql
FROM sys.waiting_statements
UNION ALL
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, innocent, evidence_sql
FROM sys.profiler_faults
UNION ALL
SELECT
  query_id, detector, subject, cause, advice, fragment_id, operator_id, worker_id, partition, exchange_id, table_name,
  row_id, cost_ns, score, threshold, confidence, coalesce(innocent, false), evidence_sql
FROM sys.user_detections
