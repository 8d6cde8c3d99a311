-- What is conspicuous about the query, the verdict first: what it costs, where it is, what to do, the SQL that shows
-- why, and the statement that looks more closely. place counts independent findings, explained_by names the rule that
-- explains a finding; a finding with neither is harmless.
-- $query_id BIGINT: the query
SELECT
  CAST(row_number() OVER (
    ORDER BY
      found.place NULLS LAST, found.explained_by IS NULL, found.wasted_ns DESC NULLS LAST, found.rule, found.subject
  ) AS BIGINT) AS number,
  CAST(found.place AS BIGINT) AS place, found.explained_by,
  found.rule, found.severity, found.subject, found.cause, found.wasted_ns,
  CAST(found.wasted_ns AS DOUBLE)
    / nullif(coalesce(queries.queued_ns, 0) + queries.planning_ns + queries.execution_ns, 0) AS share,
  found.score, found.threshold, found.confidence,
  found.advice, found.evidence_sql, found.zoom_sql,
  found.operator_id, found.fragment_id, found.worker_id, found.partition, found.exchange_id, found.table_name,
  found.row_id
FROM sys.diagnoses AS found
JOIN sys.queries AS queries ON queries.query_id = found.query_id
WHERE found.query_id = $query_id AND queries.query_id = $query_id
ORDER BY number
