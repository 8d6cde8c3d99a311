-- The causes that sys.diagnoses names first, and how many findings each of them explains.
SELECT
  verdict.place, verdict.rule, verdict.severity, verdict.subject, verdict.cause, verdict.advice, verdict.wasted_ns,
  verdict.evidence_sql, verdict.zoom_sql, coalesce(folded.findings, 0) AS explains
FROM sys.diagnoses AS verdict
LEFT JOIN (
  SELECT explained_by, count(*) AS findings
  FROM sys.diagnoses
  WHERE query_id = $query_id AND explained_by IS NOT NULL
  GROUP BY explained_by
) AS folded ON verdict.rule = folded.explained_by
WHERE verdict.query_id = $query_id AND verdict.place <= 3
ORDER BY verdict.place
