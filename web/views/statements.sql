-- Statements: runs whose SQL differs only in literals. The last run is compared with the earlier finished runs at
-- its level: z is its distance from their median, in median absolute deviations that are scaled to a normal
-- distribution, of at least 3 % of the median and 1 ms.
-- $hours BIGINT = NULL: only runs of the last so many hours; NULL is all
-- $find VARCHAR = NULL: only statements with this text in the SQL, tables, status or error of a run
-- $sort VARCHAR = slower: what comes first: slower, total, last or runs
-- $limit BIGINT = 100: so many statements
WITH runs AS (
  SELECT
    query_id, fingerprint, sql, status, profile_level, tables_read, error, CAST(started_at AS BIGINT) AS started,
    coalesce(planning_ns, 0) + coalesce(execution_ns, 0) AS elapsed_ns,
    row_number() OVER (PARTITION BY fingerprint ORDER BY query_id DESC) AS place,
    first_value(profile_level) OVER (PARTITION BY fingerprint ORDER BY query_id DESC) AS last_level
  FROM sys.queries
  WHERE $hours IS NULL
    OR CAST(started_at AS BIGINT) > CAST(now() AS BIGINT) - CAST($hours AS BIGINT) * 3600000000000
),
earlier AS (
  SELECT fingerprint, elapsed_ns, median(elapsed_ns) OVER (PARTITION BY fingerprint) AS median_ns
  FROM runs
  WHERE place > 1 AND status = 'finished' AND profile_level = last_level
),
usual AS (
  SELECT
    fingerprint, count(*) AS runs, CAST(max(median_ns) AS DOUBLE) AS median_ns,
    CAST(median(abs(elapsed_ns - median_ns)) AS DOUBLE) AS deviation_ns
  FROM earlier
  GROUP BY fingerprint
),
statements AS (
  SELECT
    fingerprint, count(*) AS runs,
    CAST(sum(CASE WHEN status = 'failed' THEN 1 ELSE 0 END) AS BIGINT) AS failed,
    CAST(sum(elapsed_ns) AS BIGINT) AS total_ns,
    CAST(median(CASE WHEN status = 'finished' THEN elapsed_ns END) AS BIGINT) AS median_ns,
    max(CASE WHEN strpos(lower(concat_ws(' ', sql, tables_read, status, error)), lower(coalesce($find, ''))) > 0
      THEN 1 ELSE 0 END) AS is_found
  FROM runs
  GROUP BY fingerprint
),
compared AS (
  SELECT
    statements.fingerprint, last.query_id AS last_query_id, last.sql, last.status, last.error, last.profile_level,
    last.tables_read, CAST(now() AS BIGINT) - last.started AS ago_ns, statements.runs, statements.failed,
    statements.total_ns, statements.median_ns, last.elapsed_ns AS last_ns, coalesce(usual.runs, 0) AS earlier_runs,
    CAST(usual.median_ns AS BIGINT) AS earlier_median_ns,
    CASE WHEN last.status = 'finished' AND usual.runs >= 3 THEN
      (last.elapsed_ns - usual.median_ns)
        / greatest(1.4826 * usual.deviation_ns, 0.03 * usual.median_ns, 1000000.0)
    END AS z
  FROM statements
  JOIN runs AS last ON last.fingerprint = statements.fingerprint AND last.place = 1
  LEFT JOIN usual ON usual.fingerprint = statements.fingerprint
  WHERE statements.is_found = 1
)
SELECT
  *,
  CASE
    WHEN status <> 'finished' THEN status
    WHEN z IS NULL THEN 'too few runs'
    WHEN z >= 3.5 AND last_ns >= 1.1 * earlier_median_ns THEN 'slower'
    WHEN z <= -3.5 AND last_ns <= 0.9 * earlier_median_ns THEN 'faster'
    ELSE 'as usual'
  END AS change,
  count(*) OVER () AS statements
FROM compared
ORDER BY
  CASE
    WHEN $sort = 'total' THEN CAST(total_ns AS DOUBLE)
    WHEN $sort = 'last' THEN CAST(last_query_id AS DOUBLE)
    WHEN $sort = 'runs' THEN CAST(runs AS DOUBLE)
    ELSE z
  END DESC NULLS LAST, last_query_id DESC
LIMIT $limit
