-- How much of a range of latencies a predicate over one column covers: records of the range and their time, and those
-- of them that satisfy it.
-- $query_id BIGINT: the query
-- $table_name VARCHAR: the table, as in sys.record_latency
-- $table IDENTIFIER: the same, to read it
-- $column IDENTIFIER: the column
-- $of VARCHAR = value: what is compared: `value`, or its `length`
-- $compare VARCHAR: `>`, `<`, `=`, `BETWEEN` or `IS NULL`
-- $first VARCHAR = NULL: what it is compared with
-- $second VARCHAR = NULL: of BETWEEN, the upper bound
-- $low_ns BIGINT = NULL: the least latency of the range; NULL is none
-- $high_ns BIGINT = NULL: latencies of the range stay below it; NULL is none
WITH
latencies AS (
  SELECT row_id, CAST(sum(latency_ns) AS BIGINT) AS latency_ns
  FROM sys.record_latency
  WHERE query_id = $query_id AND kind = 'computation' AND table_name = $table_name
  GROUP BY row_id
  HAVING sum(latency_ns) >= coalesce($low_ns, 0) AND sum(latency_ns) < coalesce($high_ns, 9223372036854775807)
),
compared AS (
  SELECT
    latencies.latency_ns, CAST(rows.$column AS VARCHAR) AS value,
    CASE WHEN $of = 'length' THEN CAST(character_length(CAST(rows.$column AS VARCHAR)) AS DOUBLE)
      ELSE TRY_CAST(CAST(rows.$column AS VARCHAR) AS DOUBLE) END AS number
  FROM latencies
  JOIN $table AS rows ON latencies.row_id = rows._row_id
)
SELECT
  count(*) AS records, count(*) FILTER (WHERE matches) AS matched_records, CAST(sum(latency_ns) AS BIGINT) AS time_ns,
  CAST(coalesce(sum(latency_ns) FILTER (WHERE matches), 0) AS BIGINT) AS matched_ns
FROM (
  SELECT
    latency_ns,
    CASE $compare
      WHEN '>' THEN number > TRY_CAST($first AS DOUBLE)
      WHEN '<' THEN number < TRY_CAST($first AS DOUBLE)
      WHEN '=' THEN coalesce(number = TRY_CAST($first AS DOUBLE), $of = 'value' AND value = $first)
      WHEN 'BETWEEN' THEN number BETWEEN TRY_CAST($first AS DOUBLE) AND TRY_CAST($second AS DOUBLE)
      ELSE value IS NULL
    END AS matches
  FROM compared
) AS judged
