-- Queries that one node ran while the workers of the cluster idled: `not distributed`. The query read tables, at least
-- two workers are in the cluster now, and one node did at least 95 % of the operators' work for 100 ms or more. Its
-- cost is the time that equal parts on all workers would save. Level `counters` and above.
SELECT * FROM sys.query_findings WHERE detector = 'not distributed'
