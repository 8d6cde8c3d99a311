-- What is conspicuous about exchanges and joins. (What else sys.diagnoses finds is told from elsewhere.)
SELECT rule, subject, advice, evidence_sql
FROM sys.diagnoses
WHERE query_id = $query_id AND rule IN ('data skew', 'hot join key', 'wrong estimate')
ORDER BY rule, subject LIMIT 4
