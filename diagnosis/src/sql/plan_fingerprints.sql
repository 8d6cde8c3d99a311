-- Whether the plans are the same: their fingerprints.
SELECT query_id, plan_fingerprint
FROM sys.plan_fingerprints
WHERE query_id IN ($before, $after)
