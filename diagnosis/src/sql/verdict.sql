-- The causes that sys.diagnoses names first, and the findings that follow from others.
SELECT place, rule, severity, subject, cause, advice, wasted_ns, evidence_sql, zoom_sql, explained_by
FROM sys.diagnoses
WHERE query_id = $query_id AND (place <= 3 OR explained_by IS NOT NULL)
ORDER BY place
