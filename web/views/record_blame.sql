-- Predicates over a table's own columns that separate its dear records from the others, and about what the query
-- would take without the rows that satisfy them.
-- $query_id BIGINT: the query
SELECT rank, table_name, predicate, matched_rows, row_share, latency_share, query_ns, without_ns, verify
FROM sys.blame($query_id)
ORDER BY rank
