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
  CAST((regexp_match(found.subject, '^operator ([0-9]+)'))[1] AS BIGINT) AS operator_id,
  CAST((regexp_match(found.subject, '^fragment ([0-9]+)'))[1] AS BIGINT) AS fragment_id,
  CAST((regexp_match(found.subject, 'partition ([0-9]+)'))[1] AS BIGINT) AS partition,
  CAST((regexp_match(found.subject, 'worker ([0-9]+)'))[1] AS BIGINT) AS worker_id,
  (regexp_match(found.subject, '^(.+) row [0-9]+$'))[1] AS table_name,
  CAST((regexp_match(found.subject, ' row ([0-9]+)$'))[1] AS BIGINT) AS row_id
FROM sys.diagnoses AS found
JOIN sys.queries AS queries ON queries.query_id = found.query_id
WHERE found.query_id = $query_id
ORDER BY place
