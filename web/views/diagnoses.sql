-- What is conspicuous about the query, the cause before its effects: what it costs, where it is, what to do, the
-- SQL that shows why, and the statement that looks more closely.
-- $query_id BIGINT: the query
SELECT
  CAST(row_number() OVER (
    ORDER BY
      CASE WHEN found.rule IN ('expensive input', 'hot join key') THEN 0 ELSE 1 END,
      CASE found.severity WHEN 'critical' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END,
      CASE found.rule
        WHEN 'data skew' THEN 0 WHEN 'spilling' THEN 1 WHEN 'slow rows' THEN 2 WHEN 'shuffle latency' THEN 3
        WHEN 'incomplete profile' THEN 9 ELSE 5
      END,
      found.wasted_ns DESC NULLS LAST, found.subject
  ) AS BIGINT) AS place,
  found.rule, found.severity, found.subject, found.wasted_ns,
  CAST(found.wasted_ns AS DOUBLE) / nullif(queries.planning_ns + queries.execution_ns, 0) AS share,
  found.advice, found.evidence_sql, found.zoom_sql,
  found.operator_id, found.fragment_id, found.worker_id, found.partition, found.table_name, found.row_id
FROM sys.diagnoses AS found
JOIN sys.queries AS queries ON queries.query_id = found.query_id
WHERE found.query_id = $query_id
ORDER BY place
