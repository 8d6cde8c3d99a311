-- Active tasks over time: how long calls of each operator lasted in each bin of the time axis. A call contains the
-- calls of the operators below it, so an operator's own time is its activity less that of its inputs in the same
-- fragment. Exact: a call adds what is open from its first bin on and takes it away from its last. A bin without a
-- row has open_calls * width_ns of the row before it. A row is a panel's (fragment, operator or worker) layer and
-- bin.
-- $query_id BIGINT: the query
-- $by VARCHAR = fragment: what a panel is: fragment or worker (layers are operators), or operator (layers are workers)
-- $px BIGINT = 600: bins
-- $lo BIGINT = NULL: from here, in nanoseconds since the statement arrived; NULL is its start
-- $hi BIGINT = NULL: up to here; NULL is the end of the last call
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
    CASE WHEN $by = 'worker' THEN worker_id WHEN $by = 'operator' THEN operator_id ELSE fragment_id END AS panel,
    CASE WHEN $by = 'operator' THEN worker_id ELSE operator_id END AS layer,
    greatest(CAST(started_at AS BIGINT), lo) - lo AS from_ns, least(CAST(ended_at AS BIGINT), hi) - lo AS to_ns,
    width_ns
  FROM span
  CROSS JOIN sys.operator_calls
  WHERE query_id = $query_id AND CAST(ended_at AS BIGINT) > lo AND CAST(started_at AS BIGINT) < hi
), counted AS (
  SELECT
    panel, layer, from_ns / width_ns AS first_bin, to_ns / width_ns AS last_bin, count(*) AS calls,
    CAST(sum(from_ns) AS BIGINT) AS from_ns, CAST(sum(to_ns) AS BIGINT) AS to_ns
  FROM calls
  GROUP BY 1, 2, 3, 4
), bins AS (
  SELECT
    panel, layer, width_ns, CASE WHEN is_end THEN last_bin ELSE first_bin END AS bin,
    CAST(sum(CASE WHEN is_end THEN -calls ELSE calls END) AS BIGINT) AS opened,
    CAST(sum(CASE
      WHEN is_end THEN to_ns - calls * last_bin * width_ns
      ELSE calls * first_bin * width_ns - from_ns
    END) AS BIGINT) AS part_ns
  FROM span
  CROSS JOIN (VALUES (false), (true)) AS sides(is_end)
  CROSS JOIN counted
  GROUP BY 1, 2, 3, 4
)
SELECT
  panel, layer, bin, lo - start_ns + bin * bins.width_ns AS at_ns, bins.width_ns,
  part_ns + bins.width_ns * CAST(sum(opened) OVER so_far AS BIGINT) AS active_ns,
  CAST(sum(opened) OVER so_far AS BIGINT) AS open_calls
FROM span
CROSS JOIN bins
WINDOW so_far AS (PARTITION BY panel, layer ORDER BY bin)
ORDER BY panel, layer, bin
