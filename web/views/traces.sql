-- Calls of operators: those of at least a bin one by one, shorter ones summed up per bin, so that no time is lost. A
-- call that crosses the edge of a bin gives each side its part. busy_ns is what lies between $lo and $hi.
-- $query_id BIGINT: the query
-- $px BIGINT = 600: bins
-- $lo BIGINT = NULL: from here, in nanoseconds since the statement arrived; NULL is its start
-- $hi BIGINT = NULL: up to here; NULL is the end of the last call
-- $fragment BIGINT = NULL: only tasks of this fragment; NULL is all of them
WITH span AS (
  SELECT *, greatest((hi - lo + $px - 1) / $px, 1) AS width_ns
  FROM (
    SELECT
      CAST(queries.started_at AS BIGINT) AS start_ns,
      CAST(queries.started_at AS BIGINT) + coalesce($lo, 0) AS lo,
      coalesce(CAST(queries.started_at AS BIGINT) + $hi, stats.last_ns) AS hi
    FROM sys.queries AS queries
    CROSS JOIN (
      SELECT max(CAST(last_call_at AS BIGINT)) AS last_ns FROM sys.operator_stats WHERE query_id = $query_id
    ) AS stats
    WHERE queries.query_id = $query_id
  ) AS times
), calls AS (
  SELECT
    operator_id, worker_id, partition, rows, width_ns,
    CAST(started_at AS BIGINT) - lo AS began_ns, CAST(ended_at AS BIGINT) - CAST(started_at AS BIGINT) AS call_ns,
    greatest(CAST(started_at AS BIGINT) - lo, 0) AS from_ns, least(CAST(ended_at AS BIGINT), hi) - lo AS to_ns
  FROM span
  CROSS JOIN sys.operator_calls
  WHERE query_id = $query_id AND CAST(ended_at AS BIGINT) > lo AND CAST(started_at AS BIGINT) < hi
    AND ($fragment IS NULL OR fragment_id = $fragment)
), counted AS (
  SELECT
    operator_id, worker_id, partition, from_ns / width_ns AS first_bin, to_ns / width_ns AS last_bin,
    count(*) AS calls, min(began_ns) AS began_ns, max(call_ns) AS call_ns, CAST(sum(rows) AS BIGINT) AS rows,
    CAST(sum(from_ns) AS BIGINT) AS from_ns, CAST(sum(to_ns) AS BIGINT) AS to_ns
  FROM calls
  GROUP BY 1, 2, 3, 4, 5
), parts AS (
  SELECT
    worker_id, partition, operator_id, sides.is_end, CASE WHEN sides.is_end THEN last_bin ELSE first_bin END AS bin,
    CASE WHEN last_bin > first_bin + 1 OR call_ns >= width_ns THEN began_ns END AS whole_ns, call_ns,
    CASE
      WHEN is_end THEN to_ns - calls * last_bin * width_ns
      WHEN last_bin = first_bin + 1 AND call_ns < width_ns THEN calls * last_bin * width_ns - from_ns
      ELSE to_ns - from_ns
    END AS busy_ns,
    CASE WHEN is_end THEN 0 ELSE calls END AS calls, CASE WHEN is_end THEN 0 ELSE rows END AS rows
  FROM span
  CROSS JOIN (VALUES (false), (true)) AS sides(is_end)
  CROSS JOIN counted
  WHERE NOT is_end OR last_bin = first_bin + 1 AND call_ns < width_ns
)
SELECT
  worker_id, partition, operator_id,
  lo - start_ns + coalesce(whole_ns, bin * width_ns) AS at_ns,
  CASE WHEN whole_ns IS NULL THEN width_ns ELSE max(call_ns) END AS width_ns,
  CAST(sum(busy_ns) AS BIGINT) AS busy_ns, CAST(sum(calls) AS BIGINT) AS calls, CAST(sum(rows) AS BIGINT) AS rows,
  whole_ns IS NOT NULL AS whole
FROM span
CROSS JOIN parts
GROUP BY worker_id, partition, operator_id, bin, whole_ns, lo, start_ns, width_ns
ORDER BY worker_id, partition, operator_id, at_ns
