-- Remedies for skew: one row per query and remedy. With setting `remedies` = 'auto' these are the rows of
-- sys.remedy_runs; `is_applied` says whether the run had the remedy, `measured_ns` by how much runs with it were
-- faster so far, and `is_taken_back` that it did not save 5 %. Of other queries they are the rows of
-- sys.remedy_candidates, with the verdict `advised`.
SELECT
  query_id, remedy, subject, because, predicted_ns, measured_ns, verdict, is_applied,
  verdict = 'taken back' AS is_taken_back, exchange_id, evidence_query_id
FROM sys.remedy_runs
UNION ALL
SELECT
  candidates.query_id, candidates.remedy, candidates.subject, candidates.because, candidates.predicted_ns,
  CAST(NULL AS BIGINT) AS measured_ns, 'advised' AS verdict, FALSE AS is_applied, FALSE AS is_taken_back,
  candidates.exchange_id, candidates.query_id AS evidence_query_id
FROM sys.remedy_candidates AS candidates
LEFT ANTI JOIN sys.remedy_runs AS runs ON candidates.query_id = runs.query_id
