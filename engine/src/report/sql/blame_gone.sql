-- How many records of a table were measured whose rows are no longer in it, and their time.
WITH spent AS (
  SELECT row_id, sum(latency_ns) AS self_ns
  FROM sys.record_latency
  WHERE query_id = $query_id AND table_name = $table_name AND kind = 'computation'
  GROUP BY row_id
)
SELECT count(*) AS records, sum(spent.self_ns) AS total_ns
FROM spent
LEFT ANTI JOIN $table AS t ON t._row_id = spent.row_id
