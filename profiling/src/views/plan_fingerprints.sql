-- The plan of each query as a fingerprint: the same for queries whose operators do the same, hang
-- together alike, and scan the same tables, whatever their constants are.
SELECT
  query_id, count(*) AS operators,
  md5(string_agg(
    operator_id || ' ' || coalesce(parent_operator_id, -1) || ' ' || name || ' ' || coalesce(table_name, ''),
    chr(10) ORDER BY operator_id)) AS plan_fingerprint
FROM sys.operators
WHERE NOT is_internal
GROUP BY query_id
