-- Records that lineage tells apart: of each scan, of each operator that makes records, and of the result (`operator_id`
-- is -1), the $k of the greatest latency, if it is not 0, and all others as one (`id` is NULL). `total_ns` is their
-- greatest total latency, of base records what they took themselves; `source_row_id` is the base record that it waited
-- for most.
-- $query_id BIGINT: the query
-- $k BIGINT = 5: how many records of each operator are named
-- $pinned VARCHAR = NULL: where one more named record comes from: a table, `operator 3`, or `result`
-- $row_id BIGINT = NULL: that record
WITH
records AS (
  SELECT
    operator_id, table_name AS source, id, max(latency_ns) AS total_ns, table_name AS source_table, id AS source_row_id
  FROM (
    SELECT input_operator_id AS operator_id, table_name, input_id AS id, max(input_latency_ns) AS latency_ns
    FROM sys.lineage WHERE query_id = $query_id AND table_name IS NOT NULL
    GROUP BY input_operator_id, table_name, input_id
    UNION ALL
    SELECT operator_id, table_name, record_id, max(latency_ns)
    FROM sys.output_records WHERE query_id = $query_id AND table_name IS NOT NULL AND record_id IS NOT NULL
    GROUP BY operator_id, table_name, record_id
  ) AS read
  GROUP BY operator_id, table_name, id
  UNION ALL
  SELECT operator_id, 'operator ' || operator_id, record_id, total_ns, source_table, source_row_id
  FROM sys.intermediate_latency WHERE query_id = $query_id
  UNION ALL
  SELECT CAST(-1 AS BIGINT), 'result', output_row, total_ns, source_table, source_row_id
  FROM sys.output_latency WHERE query_id = $query_id
)
SELECT
  operator_id, source, CASE WHEN is_named THEN id END AS id, count(*) AS records, max(total_ns) AS total_ns,
  first_value(source_table ORDER BY total_ns DESC, id) AS source_table,
  first_value(source_row_id ORDER BY total_ns DESC, id) AS source_row_id
FROM (
  SELECT
    *,
    total_ns > 0 AND row_number() OVER (PARTITION BY operator_id, source ORDER BY total_ns DESC, id) <= $k
      OR coalesce(source = $pinned AND id = $row_id, false) AS is_named
  FROM records
) AS ranked
GROUP BY operator_id, source, CASE WHEN is_named THEN id END
ORDER BY operator_id DESC, id IS NULL, total_ns DESC, id
