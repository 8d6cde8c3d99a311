-- How a column's values in dear records differ from those in all: the column in at most 32 values, or in 16 parts of
-- as many rows by number or length, for each octave of latency and for a range of latencies (`bin` is NULL). `distance`
-- is 0 where the values are spread as in all records and 1 where they never occur elsewhere. The part whose share grows
-- most is from `low` to `high`.
-- $query_id BIGINT: the query
-- $table_name VARCHAR: the table, as in sys.record_latency
-- $table IDENTIFIER: the same, to read it
-- $column IDENTIFIER: the column
-- $low_ns BIGINT = NULL: the least latency of the range; NULL is none
-- $high_ns BIGINT = NULL: latencies of the range stay below it; NULL is none
WITH
latencies AS (
  SELECT row_id, CAST(sum(latency_ns) AS BIGINT) AS latency_ns
  FROM sys.record_latency
  WHERE query_id = $query_id AND kind = 'computation' AND table_name = $table_name
  GROUP BY row_id
),
joined AS (
  SELECT
    latencies.latency_ns, CAST(floor(log2(greatest(latencies.latency_ns, 1))) AS BIGINT) AS octave,
    left(CAST(rows.$column AS VARCHAR), 60) AS value, character_length(CAST(rows.$column AS VARCHAR)) AS length,
    CASE WHEN arrow_typeof(rows.$column) NOT LIKE '%Utf8%' THEN TRY_CAST(CAST(rows.$column AS VARCHAR) AS DOUBLE) END
      AS number
  FROM latencies
  JOIN $table AS rows ON latencies.row_id = rows._row_id
),
parts AS (
  SELECT
    *, CASE WHEN is_few THEN dense_rank() OVER (ORDER BY value, length) ELSE ntile(16) OVER (ORDER BY size) END AS part
  FROM (
    SELECT joined.*, few.is_few, coalesce(number, length) AS size
    FROM joined CROSS JOIN (SELECT count(DISTINCT value || ' ' || length) <= 32 AS is_few FROM joined) AS few
  ) AS sized
),
alike AS (
  SELECT
    part, is_few, CAST(count(*) AS DOUBLE) / sum(count(*)) OVER () AS share, min(value) AS value,
    min(size) AS low, max(size) AS high, max(number) IS NULL AND NOT is_few AS by_length
  FROM parts GROUP BY part, is_few
),
-- Each octave, and the range.
sets AS (
  SELECT octave, part, count(*) AS records FROM parts GROUP BY octave, part
  UNION ALL
  SELECT CAST(NULL AS BIGINT), part, count(*)
  FROM parts
  WHERE latency_ns >= coalesce($low_ns, 0) AND latency_ns < coalesce($high_ns, 9223372036854775807)
  GROUP BY part
),
shares AS (
  SELECT
    octave, part, sum(records) OVER (PARTITION BY octave) AS records,
    CAST(records AS DOUBLE) / sum(records) OVER (PARTITION BY octave) AS share
  FROM sets
)
SELECT
  shares.octave AS bin, max(shares.records) AS records,
  sum(greatest(shares.share - alike.share, 0)) AS distance,
  first_value(CASE WHEN alike.is_few THEN alike.value END ORDER BY shares.share - alike.share DESC) AS value,
  first_value(CASE WHEN alike.is_few THEN NULL ELSE CAST(alike.low AS DOUBLE) END
    ORDER BY shares.share - alike.share DESC) AS low,
  first_value(CASE WHEN alike.is_few THEN NULL ELSE CAST(alike.high AS DOUBLE) END
    ORDER BY shares.share - alike.share DESC) AS high,
  first_value(alike.by_length ORDER BY shares.share - alike.share DESC) AS by_length,
  first_value(shares.share ORDER BY shares.share - alike.share DESC) AS share,
  first_value(alike.share ORDER BY shares.share - alike.share DESC) AS share_of_all
FROM shares
JOIN alike ON shares.part = alike.part
GROUP BY shares.octave
ORDER BY bin
