-- How many records of a table were measured whose rows are no longer in it, and their time: if they took a tenth of
-- all that was measured, and are all of its records, or are separated from the others as by a predicate.
WITH spent AS (
  SELECT row_id, sum(latency_ns) AS self_ns
  FROM sys.record_latency
  WHERE query_id = $query_id AND table_name = $table_name AND kind = 'computation'
  GROUP BY row_id
),
gone AS (
  SELECT
    count(*) FILTER (WHERE t._row_id IS NULL) AS records,
    CAST(sum(spent.self_ns) FILTER (WHERE t._row_id IS NULL) AS BIGINT) AS ns,
    count(*) AS all_records, CAST(sum(spent.self_ns) AS BIGINT) AS all_ns
  FROM spent
  LEFT JOIN $table AS t ON t._row_id = spent.row_id
)
SELECT records, ns
FROM gone
WHERE ns >= 0.1 * $measured_ns AND (
  records > 0 AND records = all_records
  OR $rule
)
