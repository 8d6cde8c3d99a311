-- # The query
-- The query, how it ended, how long it took, and how much of it was recorded.
SELECT
  queries.query_id, queries.sql, queries.status, queries.error,
  queries.profile_level, queries.lineage, coalesce(overhead.sample_rate, queries.sample_rate) AS sample_rate,
  queries.planning_ns, queries.execution_ns, queries.rows_returned,
  coalesce(work.busy_ns, 0) AS busy_ns, coalesce(overhead.time_ns, 0) AS recording_ns,
  coalesce(overhead.events_dropped, 0) AS events_dropped,
  overhead.given_up,
  lost.workers AS lost_workers, coalesce(elsewhere.workers, 0) AS workers_elsewhere,
  queries.imported_from, queries.tables_read
FROM sys.queries AS queries
LEFT JOIN (
  SELECT query_id, sum(self_ns) AS busy_ns
  FROM sys.operator_stats WHERE query_id = 12 GROUP BY query_id
) AS work ON queries.query_id = work.query_id
LEFT JOIN (
  SELECT query_id, sum(time_ns) AS time_ns, sum(events_dropped) AS events_dropped,
    min(sample_rate) AS sample_rate, max(given_up) AS given_up
  FROM sys.profiler_overhead WHERE query_id = 12 GROUP BY query_id
) AS overhead ON queries.query_id = overhead.query_id
LEFT JOIN (
  SELECT
    workers.query_id,
    string_agg(CAST(workers.worker_id AS VARCHAR), ', ' ORDER BY workers.worker_id) AS workers
  FROM sys.workers AS workers
  LEFT JOIN (
    SELECT worker_id, state FROM sys.workers WHERE query_id IS NULL
  ) AS now ON workers.worker_id = now.worker_id
  WHERE workers.query_id = 12 AND (workers.state = 'lost' OR now.state = 'lost')
  GROUP BY workers.query_id
) AS lost ON queries.query_id = lost.query_id
LEFT JOIN (
  SELECT query_id, count(*) AS workers
  FROM sys.workers WHERE query_id = 12 AND address <> 'in process' GROUP BY query_id
) AS elsewhere ON queries.query_id = elsewhere.query_id
WHERE queries.query_id = 12;

-- # The plan
-- Every operator of the plan with its rows, times, memory and skew (largest partition over mean). The plan
-- is shown without internal operators.
SELECT
  operator_id, parent_operator_id, name, kind, is_internal, details, partitions, rows_in, rows_out,
  estimated_rows, self_ns, share, input_wait_ns, peak_memory_bytes, spilled_bytes, row_skew, time_skew
FROM sys.operator_contribution
WHERE query_id = 12
ORDER BY operator_id;

-- The table that each scan reads.
SELECT operator_id, table_name
FROM sys.operators
WHERE query_id = 12 AND table_name IS NOT NULL
ORDER BY operator_id;

-- # Where the time went: how even the tasks are
-- The fragment that would gain most if its tasks worked equally long, and the operator with the
-- slowest straggler in it.
SELECT
  tasks.fragment_id, tasks.tasks, tasks.max_ns, tasks.mean_ns, tasks.imbalance, tasks.wasted_ns,
  straggler.operator_id, straggler.partition, straggler.self_ns, straggler.rows_in,
  straggler.others_ns, straggler.others_rows
FROM (
  SELECT fragment_id, tasks, max_ns, mean_ns, imbalance, wasted_ns
  FROM sys.task_imbalance
  WHERE query_id = 12 AND tasks > 1
  ORDER BY wasted_ns DESC, fragment_id LIMIT 1
) AS tasks
LEFT JOIN (
  SELECT
    fragment_id, operator_id, partition, self_ns, rows_in, others_ns, others_rows, excess_ns
  FROM sys.stragglers
  WHERE query_id = 12
) AS straggler ON tasks.fragment_id = straggler.fragment_id
ORDER BY straggler.excess_ns DESC NULLS LAST, straggler.operator_id
LIMIT 1;

-- # Where the time went: the slowest result row
-- The slowest result row: total latency, what of it is computation and what shuffle latency (beside
-- the mean of all result rows), and the input record that most of it came from.
SELECT
  output_row, total_ns, computation_ns, shuffle_ns, remediated_ns, source_table, source_row_id,
  CAST(avg(shuffle_ns) OVER () AS BIGINT) AS mean_shuffle_ns
FROM sys.output_latency
WHERE query_id = 12
ORDER BY total_ns DESC, output_row
LIMIT 1;

-- # Where the time went: skew and estimates
-- What is conspicuous about exchanges and joins. (What else sys.diagnoses finds is told from elsewhere.)
SELECT rule, subject, advice, evidence_sql
FROM sys.diagnoses
WHERE query_id = 12 AND rule IN ('data skew', 'hot join key', 'wrong estimate')
ORDER BY rule, subject LIMIT 4;

-- # Expensive inputs
-- The view sys.anomaly_candidates of query 12.
WITH
-- The query: its time, its operators' self time, that time shared out evenly over the rows that were
-- scanned, and how much of it was recorded.
query AS (
  SELECT
    coalesce(queries.planning_ns, 0) + coalesce(queries.execution_ns, 0) AS query_ns,
    coalesce(work.busy_ns, 0) AS busy_ns, work.even_ns,
    coalesce(overhead.sample_rate, queries.sample_rate) AS sample_rate,
    coalesce(queries.lineage, '') <> 'piggyback' AS has_log,
    queries.status = 'finished' AND coalesce(overhead.events_dropped, 0) = 0 AND lost.workers = 0
      AS is_whole
  FROM sys.queries AS queries
  CROSS JOIN (
    SELECT
      CAST(sum(self_ns) AS BIGINT) AS busy_ns,
      CAST(sum(self_ns) / nullif(sum(CASE WHEN rows_in = 0 THEN rows_out END), 0) AS BIGINT) AS even_ns
    FROM sys.operator_stats WHERE query_id = 12
  ) AS work
  CROSS JOIN (
    SELECT min(sample_rate) AS sample_rate, sum(events_dropped) AS events_dropped
    FROM sys.profiler_overhead WHERE query_id = 12
  ) AS overhead
  CROSS JOIN (
    SELECT count(*) AS workers
    FROM sys.workers AS workers
    LEFT JOIN (
      SELECT worker_id, state FROM sys.workers WHERE query_id IS NULL
    ) AS now ON workers.worker_id = now.worker_id
    WHERE workers.query_id = 12 AND (workers.state = 'lost' OR now.state = 'lost')
  ) AS lost
  WHERE queries.query_id = 12
),
-- All time that was measured in expressions over a record, whether the result waited for it or not.
spent AS (
  SELECT table_name, row_id, sum(latency_ns) AS self_ns
  FROM sys.record_latency
  WHERE query_id = 12 AND table_name IS NOT NULL AND kind = 'computation'
  GROUP BY table_name, row_id
),
-- The five records of the highest impact, and the three of the highest self time.
expensive AS (
  SELECT
    coalesce(critical.table_name, heavy.table_name) AS table_name,
    coalesce(critical.row_id, heavy.row_id) AS row_id, critical.rank,
    coalesce(critical.impact_ns, 0) AS impact_ns, critical.max_total_ns, critical.max_remediated_ns,
    critical.outputs, coalesce(critical.self_ns, heavy.self_ns) AS self_ns
  FROM (
    SELECT table_name, row_id, rank, impact_ns, max_total_ns, max_remediated_ns, outputs, self_ns
    FROM sys.expensive_inputs WHERE query_id = 12
    ORDER BY impact_ns DESC, row_id, table_name LIMIT 5
  ) AS critical
  FULL JOIN (
    SELECT table_name, row_id, self_ns
    FROM spent ORDER BY self_ns DESC, row_id, table_name LIMIT 3
  ) AS heavy
  ON critical.table_name = heavy.table_name AND critical.row_id = heavy.row_id
),
-- How sure the self times of these records are.
certainty AS (
  SELECT
    latencies.table_name, latencies.row_id, sum(latencies.error_ns) AS error_ns,
    sum(CASE WHEN method = 'replayed' THEN latency_ns END) AS replayed_ns,
    sum(CASE WHEN method = 'measured' THEN latency_ns END) AS measured_ns
  FROM sys.record_latency AS latencies
  JOIN expensive
  ON latencies.table_name = expensive.table_name AND latencies.row_id = expensive.row_id
  WHERE latencies.query_id = 12 AND kind = 'computation'
  GROUP BY latencies.table_name, latencies.row_id
),
-- What a record of each table took in the median.
usual AS (
  SELECT table_name, CAST(median(self_ns) AS BIGINT) AS median_ns
  FROM spent GROUP BY table_name
),
-- The rule for impact and self time.
judged AS (
  SELECT
    *,
    CASE
      WHEN impact_ns >= threshold_ns THEN 'critical path'
      WHEN self_ns >= threshold_ns THEN 'self time'
    END AS reason
  FROM (
    SELECT
      expensive.*, usual.median_ns, certainty.error_ns,
      CASE
        WHEN 2 * certainty.replayed_ns > expensive.self_ns THEN 'replayed'
        WHEN 2 * certainty.measured_ns > expensive.self_ns THEN 'measured'
        WHEN certainty.error_ns IS NOT NULL THEN 'apportioned'
      END AS method,
      greatest(
        10 * coalesce(usual.median_ns, query.even_ns, 0), 2 * coalesce(query.even_ns, 0),
        CAST(0.05 * query.query_ns AS BIGINT), 1000000
      ) AS threshold_ns
    FROM expensive
    CROSS JOIN query
    LEFT JOIN usual ON expensive.table_name = usual.table_name
    LEFT JOIN certainty
    ON expensive.table_name = certainty.table_name AND expensive.row_id = certainty.row_id
  ) AS compared
),
-- The plan.
operators AS (
  SELECT operator_id, parent_operator_id, kind, captures, table_name
  FROM sys.operators WHERE query_id = 12
),
-- What each operator did.
work AS (
  SELECT
    operator_id, CAST(sum(rows_out) AS DOUBLE) AS rows_out, CAST(sum(self_ns) AS DOUBLE) AS busy_ns
  FROM sys.operator_stats WHERE query_id = 12
  GROUP BY operator_id
),
-- What the inputs of each operator returned.
inputs AS (
  SELECT
    operators.parent_operator_id AS operator_id, max(work.rows_out) AS largest,
    sum(work.rows_out) AS rows
  FROM operators
  JOIN work ON operators.operator_id = work.operator_id
  GROUP BY operators.parent_operator_id
),
-- The operators of recursive terms. The static term comes first.
terms AS (
  WITH RECURSIVE members AS (
    SELECT query.operator_id AS recursive_id, term.operator_id
    FROM operators AS query
    JOIN operators AS term ON query.operator_id = term.parent_operator_id
    JOIN (
      SELECT parent_operator_id, min(operator_id) AS static_id FROM operators GROUP BY parent_operator_id
    ) AS first ON query.operator_id = first.parent_operator_id AND term.operator_id <> first.static_id
    WHERE query.kind = 'recursive'
    UNION ALL
    SELECT members.recursive_id, below.operator_id
    FROM members
    JOIN operators AS below ON members.operator_id = below.parent_operator_id
  )
  SELECT recursive_id, operator_id FROM members
),
-- What each recursive term did, but for operators that are timed record by record.
recursive_work AS (
  SELECT terms.recursive_id, sum(work.busy_ns) AS busy_ns
  FROM terms
  JOIN operators ON terms.operator_id = operators.operator_id
  JOIN work ON terms.operator_id = work.operator_id
  WHERE operators.kind <> 'evaluation'
  GROUP BY terms.recursive_id
),
-- From an operator to the one above it: which part of that one's rows come from here, and which part of its
-- time is theirs. A row of a join comes from both sides, and its time goes by the rows it takes and returns.
steps AS (
  SELECT
    child.operator_id AS child_id, child.captures, parent.operator_id, parent.kind,
    parent.captures AS captures_above,
    CASE
      WHEN parent.kind = 'recursive' AND terms.operator_id IS NULL THEN below.rows_out
    END AS static_rows,
    CASE
      WHEN parent.kind IN ('join', 'recursive') THEN 1
      ELSE coalesce(below.rows_out / nullif(inputs.rows, 0), 1)
    END AS of_rows,
    CASE
      WHEN parent.kind = 'join' THEN coalesce(
        (below.rows_out + above.rows_out) / nullif(inputs.rows + above.rows_out, 0), 1
      )
      ELSE coalesce(below.rows_out / nullif(inputs.rows, 0), 1)
    END AS of_time
  FROM operators AS child
  JOIN operators AS parent ON child.parent_operator_id = parent.operator_id
  LEFT JOIN work AS below ON child.operator_id = below.operator_id
  LEFT JOIN work AS above ON parent.operator_id = above.operator_id
  LEFT JOIN inputs ON parent.operator_id = inputs.operator_id
  LEFT JOIN terms
    ON parent.operator_id = terms.recursive_id AND child.operator_id = terms.operator_id
),
-- The way up from each scan, and from values that a subquery is asked for, to the first operator that
-- captures lineage, or to the result.
path AS (
  WITH RECURSIVE way AS (
    SELECT
      scans.operator_id AS scan_id, scans.operator_id, scans.kind, scans.captures,
      CAST(0 AS BIGINT) AS height, CAST(NULL AS DOUBLE) AS static_rows,
      CAST(1 AS DOUBLE) AS of_rows, CAST(1 AS DOUBLE) AS of_time
    FROM operators AS scans
    LEFT JOIN operators AS below ON scans.operator_id = below.parent_operator_id
    WHERE below.operator_id IS NULL
      AND (
        scans.table_name IS NOT NULL
        OR scans.kind = 'subquery values'
      )
    UNION ALL
    SELECT
      way.scan_id, steps.operator_id, steps.kind, steps.captures_above, way.height + 1,
      steps.static_rows, way.of_rows * steps.of_rows, way.of_rows * steps.of_time
    FROM way
    JOIN steps ON way.operator_id = steps.child_id
    WHERE NOT steps.captures
  )
  SELECT scan_id, operator_id, kind, captures, height, static_rows, of_rows, of_time FROM way
),
-- Where the rows of a scan are first multiplied: by an unnest, by a join that returns twice as many rows as the
-- larger of its inputs has, or by a recursive query that returns twice as many as its static term.
multiplied AS (
  SELECT path.scan_id, min(path.height) AS height
  FROM path
  JOIN work ON path.operator_id = work.operator_id
  JOIN inputs ON path.operator_id = inputs.operator_id
  WHERE path.kind = 'unnest' OR path.kind = 'join' AND work.rows_out >= 2 * inputs.largest
    OR work.rows_out >= 2 * path.static_rows
  GROUP BY path.scan_id
),
-- What operators took from there on for the rows of a scan, but for those that are timed record by record; the most
-- rows that one of them returned (`rows`); and how many arrive where lineage is captured, or in the result
-- (`arriving`).
rows_made AS (
  SELECT
    path.scan_id, CAST(max(work.rows_out * path.of_rows) AS BIGINT) AS rows,
    CAST(first_value(
      path.of_rows * CASE WHEN path.captures THEN inputs.rows ELSE work.rows_out END
      ORDER BY path.height DESC
    ) AS BIGINT) AS arriving,
    CAST(sum(
      CASE WHEN path.kind <> 'evaluation' THEN work.busy_ns * path.of_time ELSE 0 END
      + CASE WHEN path.static_rows IS NULL THEN 0 ELSE coalesce(recursive_work.busy_ns, 0) END
    ) AS BIGINT) AS busy_ns
  FROM path
  JOIN multiplied ON path.scan_id = multiplied.scan_id AND path.height >= multiplied.height
  JOIN work ON path.operator_id = work.operator_id
  LEFT JOIN inputs ON path.operator_id = inputs.operator_id
  LEFT JOIN recursive_work ON path.operator_id = recursive_work.recursive_id
  GROUP BY path.scan_id
),
-- The scans for whose rows operators took as much as a record has to cost that stands out for its rows, and how
-- many rows took that much (`least_rows`).
scans AS (
  SELECT
    costly.scan_id, operators.table_name AS scanned, coalesce(costly.rows, 0) AS rows,
    coalesce(costly.arriving, 0) AS arriving, costly.busy_ns, costly.threshold_ns, costly.sample_rate,
    greatest(
      CAST(
        CAST(costly.threshold_ns AS DOUBLE) / costly.busy_ns * coalesce(costly.arriving, 0) AS BIGINT
      ), 1
    ) AS least_rows
  FROM (
    SELECT
      rows_made.*, query.sample_rate,
      greatest(query.query_ns / 20, query.busy_ns / 20, 1000000) AS threshold_ns
    FROM rows_made
    CROSS JOIN query
  ) AS costly
  JOIN operators ON costly.scan_id = operators.operator_id
  WHERE costly.busy_ns >= costly.threshold_ns
),
-- How many rows of these scans descend from each traced record, where they arrive: at an operator that captures
-- lineage, or in the result (-1).
descendants AS (
  SELECT scan_id, consumer_id, table_name, row_id, max(least_rows) AS least_rows, count(*) AS edges
  FROM (
    SELECT
      scans.scan_id, lineage.operator_id AS consumer_id, lineage.table_name, lineage.input_id AS row_id,
      scans.least_rows, scans.sample_rate
    FROM sys.lineage AS lineage
    JOIN scans ON lineage.input_operator_id = scans.scan_id
    WHERE lineage.query_id = 12 AND lineage.table_name IS NOT NULL
    UNION ALL
    SELECT
      scans.scan_id, CAST(-1 AS BIGINT) AS consumer_id, outputs.table_name, outputs.record_id,
      scans.least_rows, scans.sample_rate
    FROM sys.output_records AS outputs
    JOIN scans ON outputs.operator_id = scans.scan_id
    WHERE outputs.query_id = 12 AND outputs.table_name IS NOT NULL
      AND outputs.record_id IS NOT NULL
  ) AS edges
  WHERE sample_rate >= 1 OR is_sampled(row_id, sample_rate)
  GROUP BY scan_id, consumer_id, table_name, row_id
),
-- The records from which many rows descend, and all others together (`row_id` is NULL). A scan without any has one
-- row with nothing; it has none where memory did not do to count them.
counted AS (
  SELECT
    scans.scan_id, compared.consumer_id, compared.table_name, compared.row_id, compared.edges,
    compared.records, compared.most
  FROM scans
  LEFT JOIN (
    SELECT
      scan_id, consumer_id, table_name, CASE WHEN edges >= least_rows THEN row_id END AS row_id,
      sum(edges) AS edges, count(*) AS records, max(edges) AS most
    FROM descendants
    GROUP BY scan_id, consumer_id, table_name, CASE WHEN edges >= least_rows THEN row_id END
  ) AS compared ON scans.scan_id = compared.scan_id
),
-- The same in order, with all records that arrive at the same place.
ranked AS (
  SELECT
    scan_id, consumer_id, table_name, row_id, edges,
    sum(edges) OVER place AS all_edges, sum(records) OVER place AS all_records,
    max(most) OVER place AS most,
    row_number() OVER falling AS number, sum(edges) OVER falling AS edges_until
  FROM counted
  WHERE table_name IS NOT NULL
  WINDOW
    place AS (PARTITION BY scan_id, consumer_id, table_name),
    falling AS (
      PARTITION BY scan_id, consumer_id, table_name ORDER BY row_id IS NULL, edges DESC, row_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
),
-- The rule for rows: ten times more descend from the record than from each of those after it in the mean. Where it
-- alone was traced, it is only known that half of the rows are its own.
outstanding AS (
  SELECT
    *,
    row_id IS NOT NULL AND min(CASE WHEN stands_out THEN 1 ELSE 0 END) OVER (
      PARTITION BY scan_id, consumer_id, table_name ORDER BY number
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) = 1 AS is_outstanding
  FROM (
    SELECT
      ranked.*, scans.arriving, scans.busy_ns, scans.threshold_ns, scans.sample_rate,
      CASE
        WHEN ranked.all_records - ranked.number + 1 = 1
          THEN scans.sample_rate < 1 AND ranked.edges < scans.arriving AND 2 * ranked.edges >= scans.arriving
        ELSE
          ranked.edges * (ranked.all_records - ranked.number) >= 10 * (ranked.all_edges - ranked.edges_until)
      END AS stands_out
    FROM ranked
    JOIN scans ON ranked.scan_id = scans.scan_id
  ) AS compared
),
-- How many edges there are to all records if those that were not traced have as many as those that were, but for the
-- outstanding ones; and how many there are to a row, as of frames of a window or sets of ROLLUP. Little is known of
-- that where records were sampled.
likely AS (
  SELECT
    *,
    CASE
      WHEN edges / greatest(arriving, 1) >= CASE WHEN sample_rate < 1 THEN 1.5 ELSE 1 END
        THEN edges / greatest(arriving, 1)
      ELSE 1
    END AS edges_of_row
  FROM (
    SELECT
      scan_id, consumer_id, table_name, arriving, sample_rate,
      CAST(sum(CASE WHEN is_outstanding THEN edges ELSE 0 END) AS DOUBLE)
        + sum(CASE WHEN is_outstanding THEN 0 ELSE edges END) / sample_rate AS edges
    FROM outstanding
    GROUP BY scan_id, consumer_id, table_name, arriving, sample_rate
  ) AS places
),
-- The first three records of each place, if their rows took as much as a record has to cost.
fan_outs AS (
  SELECT *
  FROM (
    SELECT
      outstanding.scan_id, outstanding.consumer_id, outstanding.table_name, outstanding.row_id,
      outstanding.threshold_ns,
      CAST(round(outstanding.edges / likely.edges_of_row) AS BIGINT) AS rows_made,
      CAST(round(outstanding.all_edges / likely.edges_of_row) AS BIGINT) AS table_rows,
      CAST(
        CAST(outstanding.edges AS DOUBLE) / greatest(likely.edges, outstanding.arriving, 1)
          * outstanding.busy_ns AS BIGINT
      ) AS apportioned_ns
    FROM outstanding
    JOIN likely
      ON outstanding.scan_id = likely.scan_id AND outstanding.consumer_id = likely.consumer_id
      AND outstanding.table_name = likely.table_name
    WHERE outstanding.is_outstanding AND outstanding.number <= 3
  ) AS apportioned
  WHERE apportioned_ns >= threshold_ns
),
-- The dearer one of a record that two scans read.
dearest AS (
  SELECT *
  FROM (
    SELECT
      *,
      row_number() OVER (
        PARTITION BY table_name, row_id ORDER BY apportioned_ns DESC, scan_id, consumer_id
      ) AS place
    FROM fan_outs
  ) AS numbered
  WHERE place = 1
),
-- Why it is not known whose the rows of a scan are, if it is not.
unknown_records AS (
  SELECT
    scans.scan_id, scans.scanned, scans.busy_ns, scans.threshold_ns,
    CASE
      WHEN NOT query.has_log THEN 'no log'
      WHEN counted.scan_id IS NULL THEN 'not counted'
      WHEN NOT query.is_whole THEN NULL
      WHEN largest.scan_id IS NULL
        AND scans.arriving < scans.rows / 10 AND (scans.arriving = 0 OR scans.sample_rate < 1)
        THEN 'left out'
      WHEN largest.scan_id IS NULL THEN 'no lineage'
      WHEN scans.arriving < scans.rows / 10 THEN 'left out'
      WHEN scans.sample_rate < 1
        AND 2 * (largest.most + (largest.all_edges - largest.most) / scans.sample_rate) < scans.arriving
        THEN 'sampled'
    END AS unknown
  FROM scans
  CROSS JOIN query
  LEFT JOIN (SELECT DISTINCT scan_id FROM counted) AS counted ON scans.scan_id = counted.scan_id
  LEFT JOIN (
    SELECT scan_id, max(all_edges) AS all_edges, first_value(most ORDER BY all_edges DESC, most) AS most
    FROM ranked GROUP BY scan_id
  ) AS largest ON scans.scan_id = largest.scan_id
  LEFT JOIN (SELECT DISTINCT scan_id FROM fan_outs) AS known ON scans.scan_id = known.scan_id
  WHERE known.scan_id IS NULL
)
SELECT
  12 AS query_id, coalesce(judged.table_name, dearest.table_name) AS table_name,
  coalesce(judged.row_id, dearest.row_id) AS row_id,
  CASE
    WHEN judged.reason IS NOT NULL THEN judged.reason
    WHEN dearest.row_id IS NOT NULL THEN 'fan-out'
  END AS reason,
  CASE
    WHEN judged.reason = 'critical path' THEN judged.impact_ns
    WHEN judged.reason = 'self time' THEN judged.self_ns
    WHEN dearest.row_id IS NOT NULL THEN dearest.apportioned_ns
    ELSE greatest(judged.impact_ns, judged.self_ns)
  END AS cost_ns,
  CASE
    WHEN judged.reason IS NULL AND dearest.row_id IS NOT NULL THEN dearest.threshold_ns
    ELSE judged.threshold_ns
  END AS threshold_ns,
  judged.rank, coalesce(judged.impact_ns, 0) AS impact_ns, judged.max_total_ns, judged.max_remediated_ns,
  judged.outputs, judged.self_ns, judged.method, judged.error_ns, judged.median_ns, query.even_ns,
  query.query_ns, dearest.scan_id AS operator_id, dearest.rows_made, dearest.table_rows,
  dearest.apportioned_ns, NULL AS unknown
FROM judged
FULL JOIN dearest ON judged.table_name = dearest.table_name AND judged.row_id = dearest.row_id
CROSS JOIN query
UNION ALL
SELECT
  12, unknown_records.scanned, NULL, 'fan-out', unknown_records.busy_ns,
  unknown_records.threshold_ns, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, query.even_ns,
  query.query_ns, unknown_records.scan_id, NULL, NULL, NULL, unknown_records.unknown
FROM unknown_records
CROSS JOIN query
WHERE unknown_records.unknown IS NOT NULL;

-- The input records that cost most, and which of them stand out: `reason` says why. Where `row_id` is NULL, it
-- is not known of which records the rows of a scan are that took much time.
SELECT
  table_name, row_id, reason, impact_ns, max_total_ns, max_remediated_ns, outputs, self_ns, method,
  error_ns, median_ns, rows_made, table_rows, apportioned_ns, unknown
FROM sys.anomaly_candidates
WHERE query_id = 12
ORDER BY
  row_id IS NULL, reason IS NULL, reason = 'fan-out', CASE WHEN reason = 'fan-out' THEN cost_ns END DESC,
  impact_ns DESC, self_ns DESC, row_id, table_name, operator_id;

-- What the scans of a table read, and about how many bytes that was.
SELECT operators.operator_id, operators.details, sum(stats.bytes_out) AS bytes
FROM sys.operators AS operators
JOIN sys.operator_stats AS stats
  ON operators.query_id = stats.query_id AND operators.operator_id = stats.operator_id
WHERE operators.query_id = 12 AND operators.table_name = 'main.input'
GROUP BY operators.operator_id, operators.details;

SELECT * FROM input LIMIT 1;

-- About how long the query would have taken without some input records, and without the profiler.
-- Where the sample rate fell while it ran, other records count that the last rate admits: they have
-- been traced from the first to the last.
-- 1. What part of each task's time in each operator was the records' (`shares`): of what was timed record
--    by record, that; of scans, by bytes, where the records' share of them is given; else by tuples.
-- 2. How much shorter that makes the longest task of each fragment (`longest`).
-- 3. The query's time, put together from its longest tasks, with and without it (`parts`).
WITH RECURSIVE
-- The records.
own AS (
  SELECT CAST(2 AS BIGINT) AS id
),
query AS (
  SELECT
    coalesce(planning_ns, 0) AS planning_ns, coalesce(execution_ns, 0) AS execution_ns,
    rows_returned,
    coalesce(least(
      sample_rate,
      (SELECT min(sample_rate) FROM sys.profiler_overhead WHERE query_id = 12)
    ), sample_rate) AS sample_rate
  FROM sys.queries WHERE query_id = 12
),
operators AS (
  SELECT fragment_id, operator_id, parent_operator_id, kind, captures
  FROM sys.operators WHERE query_id = 12
),
-- Operators that take the time of each record. Records that were not traced count as the traced
-- ones do, the records themselves left out.
measured AS (
  SELECT
    operator_id, partition,
    own_ns / nullif(own_ns + others_ns / sample_rate, 0) AS share
  FROM (
    SELECT
      operator_id, partition,
      CAST(sum(CASE WHEN own.id IS NULL THEN latency_ns ELSE 0 END) AS DOUBLE) AS others_ns,
      CAST(sum(CASE WHEN own.id IS NOT NULL THEN latency_ns ELSE 0 END) AS DOUBLE) AS own_ns
    FROM sys.record_latency
    CROSS JOIN query
    LEFT JOIN own ON row_id = own.id
    WHERE query_id = 12 AND table_name = 'main.input' AND kind = 'computation'
      AND (own.id IS NOT NULL OR is_sampled(row_id, sample_rate))
    GROUP BY operator_id, partition
  ) AS latencies
  CROSS JOIN query
),
-- The other operators: tuples that descend from the records among all that descend from their table,
-- where they arrive at an aggregate or in the result.
arrived AS (
  SELECT
    input_operator_id AS scan_id, operator_id AS consumer_id, partition,
    CAST(count(*) AS DOUBLE) AS all_rows,
    CAST(count(own.id) AS DOUBLE) AS own_rows
  FROM sys.lineage
  CROSS JOIN query
  LEFT JOIN own ON input_id = own.id
  WHERE query_id = 12 AND table_name = 'main.input'
    AND (own.id IS NOT NULL OR is_sampled(input_id, sample_rate))
  GROUP BY input_operator_id, operator_id, partition
  UNION ALL
  SELECT
    operator_id, CAST(NULL AS BIGINT) AS consumer_id, CAST(NULL AS BIGINT) AS partition,
    CAST(count(*) AS DOUBLE),
    CAST(count(own.id) AS DOUBLE)
  FROM sys.output_records
  CROSS JOIN query
  LEFT JOIN own ON record_id = own.id
  WHERE query_id = 12 AND table_name = 'main.input'
    AND (own.id IS NOT NULL OR is_sampled(record_id, sample_rate))
  GROUP BY operator_id
),
-- Records that were not traced count as the others that were. `rows_in` is how many rows arrived, of whatever
-- table.
tuples AS (
  SELECT
    arrived.scan_id, consumer.fragment_id, arrived.partition, arrived.own_rows,
    arrived.own_rows + (arrived.all_rows - arrived.own_rows) / query.sample_rate AS all_rows,
    arrived.all_rows / query.sample_rate AS most_rows,
    coalesce(CASE
      WHEN arrived.consumer_id IS NULL THEN CAST(query.rows_returned AS DOUBLE)
      ELSE taken.rows_in
    END, 0) AS rows_in
  FROM arrived
  CROSS JOIN query
  LEFT JOIN operators AS consumer ON arrived.consumer_id = consumer.operator_id
  LEFT JOIN (
    SELECT operator_id, partition, CAST(sum(rows_in) AS DOUBLE) AS rows_in
    FROM sys.operator_stats WHERE query_id = 12
    GROUP BY operator_id, partition
  ) AS taken
    ON arrived.consumer_id = taken.operator_id AND arrived.partition = taken.partition
),
-- Which part of the rows of the operator above comes from an operator: all, but of a union.
branches AS (
  SELECT
    below.operator_id, below.parent_operator_id, below.captures,
    CASE
      WHEN above.kind = 'union' THEN coalesce(
        returned.rows / nullif(sum(returned.rows) OVER (PARTITION BY above.operator_id), 0), 1
      )
      ELSE 1
    END AS of_rows
  FROM operators AS below
  JOIN operators AS above ON below.parent_operator_id = above.operator_id
  LEFT JOIN (
    SELECT operator_id, CAST(sum(rows_out) AS DOUBLE) AS rows
    FROM sys.operator_stats WHERE query_id = 12
    GROUP BY operator_id
  ) AS returned ON below.operator_id = returned.operator_id
),
-- The operators of recursive terms. The static term comes first.
terms AS (
  SELECT query.operator_id AS recursive_id, term.operator_id
  FROM operators AS query
  JOIN operators AS term ON query.operator_id = term.parent_operator_id
  JOIN (
    SELECT parent_operator_id, min(operator_id) AS static_id FROM operators GROUP BY parent_operator_id
  ) AS first ON query.operator_id = first.parent_operator_id AND term.operator_id <> first.static_id
  WHERE query.kind = 'recursive'
  UNION ALL
  SELECT terms.recursive_id, below.operator_id
  FROM terms
  JOIN operators AS below ON terms.operator_id = below.parent_operator_id
),
-- The way of a table's tuples from its scan up to the aggregate, or to the result.
way AS (
  SELECT
    scans.operator_id AS scan_id, scans.operator_id, 0 AS height, CAST(1 AS DOUBLE) AS of_rows
  FROM operators AS scans
  LEFT JOIN operators AS inputs ON scans.operator_id = inputs.parent_operator_id
  WHERE inputs.operator_id IS NULL
  UNION ALL
  SELECT
    way.scan_id, branches.parent_operator_id, way.height + 1, way.of_rows * branches.of_rows
  FROM way
  JOIN branches ON way.operator_id = branches.operator_id
  WHERE NOT branches.captures
),
-- A recursive term works for the tuples that the recursive query returns.
path AS (
  SELECT scan_id, operator_id, height, of_rows FROM way
  UNION ALL
  SELECT way.scan_id, terms.operator_id, way.height, way.of_rows
  FROM way
  JOIN terms ON way.operator_id = terms.recursive_id
  LEFT JOIN terms AS own
    ON way.scan_id = own.operator_id AND way.operator_id = own.recursive_id
  WHERE own.operator_id IS NULL
),
-- How far up a record is one row, where there are joins or recursive queries: below the highest of them, as each may be the one
-- that multiplies it. From an unnest on it is as many rows as arrive, if the joins above have not made more.
single AS (
  SELECT
    path.scan_id,
    max(CASE WHEN operators.kind IN ('join', 'recursive') THEN path.height END) AS highest_join,
    min(CASE WHEN operators.kind = 'unnest' THEN path.height END) AS first_unnest,
    max(CASE WHEN operators.kind = 'union' THEN path.height END) AS highest_union
  FROM path
  JOIN operators ON path.operator_id = operators.operator_id
  GROUP BY path.scan_id
),
-- The time of each task in each operator; what a scan waits for is read for its rows.
work AS (
  SELECT
    stats.fragment_id, stats.operator_id, stats.worker_id, stats.partition,
    CAST(stats.self_ns AS DOUBLE)
      + CASE WHEN inputs.parent_operator_id IS NULL THEN stats.input_wait_ns ELSE 0 END AS busy_ns,
    greatest(CAST(sum(stats.rows_out) OVER (PARTITION BY stats.operator_id) AS DOUBLE), 1)
      AS rows_out
  FROM sys.operator_stats AS stats
  LEFT JOIN (
    SELECT DISTINCT parent_operator_id FROM operators
  ) AS inputs ON stats.operator_id = inputs.parent_operator_id
  WHERE stats.query_id = 12
),
-- Of tuples in each operator: in this task, where it is the task that they arrive in, or in all. A union gives
-- its inputs' partitions other numbers.
passed AS (
  SELECT
    operator_id, worker_id, partition, scan_id, bool_or(is_here) AS is_here,
    sum(CASE WHEN is_here AND is_partition THEN own_rows END) AS own_here,
    sum(CASE WHEN is_here AND is_partition THEN greatest(all_rows, rows_in) END) AS all_here,
    sum(own_rows) AS own_rows,
    greatest(sum(all_rows), least(sum(most_rows), sum(rows_in))) AS all_rows,
    min(CASE WHEN is_below_join THEN least(records / rows_out, 1) END) AS even_share,
    bool_or(is_unnested) AS is_unnested, min(rows_out) AS rows_out, min(of_rows) AS of_rows
  FROM (
    SELECT
      work.operator_id, work.worker_id, work.partition, work.rows_out, path.scan_id, path.of_rows,
      tuples.fragment_id = work.fragment_id AND path.height >= coalesce(single.highest_union, 0)
        AS is_here,
      tuples.partition = work.partition AS is_partition,
      path.height < single.highest_join AS is_below_join,
      path.height >= single.first_unnest AS is_unnested,
      number.records, tuples.own_rows, tuples.all_rows, tuples.most_rows, tuples.rows_in
    FROM work
    CROSS JOIN (SELECT CAST(count(*) AS DOUBLE) AS records FROM own) AS number
    JOIN path ON work.operator_id = path.operator_id
    JOIN tuples ON path.scan_id = tuples.scan_id
    LEFT JOIN single ON path.scan_id = single.scan_id
  ) AS arriving
  GROUP BY operator_id, worker_id, partition, scan_id
),
-- A table that a union reads twice has its parts of both scans; one that is joined with itself, as many as of
-- one of them.
by_tuples AS (
  SELECT
    operator_id, worker_id, partition,
    CASE WHEN sum(of_rows) > 1.001 THEN max(share) ELSE sum(share) END AS share
  FROM (
    SELECT
      operator_id, worker_id, partition, of_rows,
      CASE
        WHEN even_share IS NOT NULL
          AND NOT (coalesce(is_unnested, false) AND all_rows < 2 * rows_out * of_rows)
          THEN even_share
        WHEN is_here THEN coalesce(own_here / nullif(all_here, 0), 0)
        ELSE of_rows * coalesce(own_rows / nullif(all_rows, 0), 0)
      END AS share
    FROM passed
  ) AS of_scans
  GROUP BY operator_id, worker_id, partition
),
-- Scans of the table that read its long values: in the tasks in which the records' tuples arrived, if that
-- is known, or in all.
by_bytes AS (
  SELECT
    operator_id, worker_id, partition,
    least(
      coalesce(
        share_of_bytes * sum(busy_ns) OVER (PARTITION BY operator_id) * is_here / nullif(busy_ns, 0),
        0
      ),
      1
    ) AS share
  FROM (
    SELECT
      work.operator_id, work.worker_id, work.partition, work.busy_ns,
      CAST(NULL AS DOUBLE) AS share_of_bytes,
      CASE
        WHEN passed.is_here AND passed.own_rows > 0
          THEN coalesce(passed.own_here, 0) / passed.own_rows
        ELSE work.busy_ns / nullif(sum(work.busy_ns) OVER (PARTITION BY work.operator_id), 0)
      END AS is_here
    FROM work
    LEFT JOIN passed
      ON work.operator_id = passed.operator_id AND work.worker_id = passed.worker_id
      AND work.partition = passed.partition AND passed.scan_id = work.operator_id
    WHERE work.operator_id IN (NULL)
  ) AS scans
),
shares AS (
  SELECT
    work.fragment_id, work.worker_id, work.partition, work.busy_ns,
    CASE
      WHEN count(measured.operator_id) OVER (PARTITION BY work.operator_id) > 0
        THEN coalesce(measured.share, 0)
      ELSE greatest(coalesce(by_bytes.share, 0), coalesce(by_tuples.share, 0))
    END AS share
  FROM work
  LEFT JOIN measured
    ON work.operator_id = measured.operator_id AND work.partition = measured.partition
  LEFT JOIN by_tuples
    ON work.operator_id = by_tuples.operator_id AND work.worker_id = by_tuples.worker_id
    AND work.partition = by_tuples.partition
  LEFT JOIN by_bytes
    ON work.operator_id = by_bytes.operator_id AND work.worker_id = by_bytes.worker_id
    AND work.partition = by_bytes.partition
),
tasks AS (
  SELECT fragment_id, sum(busy_ns) AS busy_ns, sum(busy_ns * (1 - share)) AS rest_ns
  FROM shares
  GROUP BY fragment_id, worker_id, partition
),
longest AS (
  SELECT
    max(busy_ns) AS busy_ns, max(rest_ns) AS rest_ns,
    sum(busy_ns) AS busy_all, sum(rest_ns) AS rest_all
  FROM tasks
  GROUP BY fragment_id
),
-- The longest tasks end to end, the longest of all, and what the other tasks did.
totals AS (
  SELECT
    chain.busy_sum, chain.busy_max, chain.rest_sum, chain.rest_max,
    chain.busy_all - chain.busy_sum AS busy_others, chain.rest_all - chain.rest_sum AS rest_others,
    query.planning_ns, query.execution_ns,
    least(coalesce(overhead.time_ns / nullif(chain.busy_all, 0), 0), 0.9) AS overhead
  FROM (
    SELECT
      coalesce(sum(busy_ns), 0) AS busy_sum, coalesce(max(busy_ns), 0) AS busy_max,
      coalesce(sum(rest_ns), 0) AS rest_sum, coalesce(max(rest_ns), 0) AS rest_max,
      coalesce(sum(busy_all), 0) AS busy_all, coalesce(sum(rest_all), 0) AS rest_all
    FROM longest
  ) AS chain
  CROSS JOIN query
  CROSS JOIN (
    SELECT CAST(coalesce(sum(time_ns), 0) AS DOUBLE) AS time_ns
    FROM sys.profiler_overhead WHERE query_id = 12
  ) AS overhead
),
-- How long the uppermost operator waited for who takes the result, and which part of the result rows descends
-- from the records.
consumer AS (
  SELECT
    (
      SELECT coalesce(max(stats.output_wait_ns), 0)
      FROM sys.operator_stats AS stats
      JOIN operators ON stats.operator_id = operators.operator_id
      WHERE stats.query_id = 12 AND operators.parent_operator_id IS NULL
    ) AS wait_ns,
    least(coalesce(
      (
        SELECT CAST(count(DISTINCT output_row) AS DOUBLE)
        FROM sys.output_records
        JOIN own ON record_id = own.id
        WHERE query_id = 12 AND table_name = 'main.input'
      ) / nullif((SELECT rows_returned FROM query), 0), 0
    ), 1) AS share
),
-- How far the longest tasks ran one after the other (1) or at the same time (0), and how long
-- they had to wait for processors that other tasks kept busy.
order_of_tasks AS (
  SELECT
    *,
    CASE
      WHEN busy_sum > busy_max
        THEN least(greatest((execution_ns - busy_max) / (busy_sum - busy_max), 0), 1)
      ELSE 1
    END AS in_turn,
    least(greatest(execution_ns - busy_sum, 0), busy_others) AS held_up_ns
  FROM totals
),
parts AS (
  SELECT
    *,
    busy_max + in_turn * (busy_sum - busy_max) AS chain_ns,
    rest_max + in_turn * (rest_sum - rest_max) AS chain_without_ns,
    coalesce(held_up_ns * rest_others / nullif(busy_others, 0), 0) AS held_up_without_ns,
    greatest(execution_ns - busy_max - in_turn * (busy_sum - busy_max) - held_up_ns, 0) AS outside_ns
  FROM order_of_tasks
),
-- What is in no operator stays: planning, and execution that no task accounts for; but of what the result's
-- consumer took, the records' part.
estimated AS (
  SELECT
    planning_ns + execution_ns AS query_ns,
    CAST(round(
      planning_ns
      + outside_ns - least(outside_ns, consumer.wait_ns) * consumer.share
      + (1 - overhead) * (
        chain_without_ns * least(execution_ns / nullif(chain_ns, 0), 1) + held_up_without_ns
      )
    ) AS BIGINT) AS without_ns
  FROM parts
  CROSS JOIN consumer
)
-- Whether it is worth telling: that saves 5 % of the query's time, and a millisecond.
SELECT
  without_ns, query_ns - without_ns >= greatest(0.05 * query_ns, 1000000) AS saves_much
FROM estimated;

SELECT * FROM input WHERE _row_id = 2;

-- # What tells them apart
-- The tables of whose records time was measured: how many records, how much time, and whether that is 5 % of all
-- operators' self time (`is_much`), so that a report looks for predicates.
SELECT
  spent.table_name, count(*) AS records, CAST(sum(spent.self_ns) AS BIGINT) AS total_ns,
  coalesce(sum(spent.self_ns) >= 0.05 * max(work.busy_ns), true) AS is_much
FROM (
  SELECT table_name, row_id, sum(latency_ns) AS self_ns
  FROM sys.record_latency
  WHERE query_id = 12 AND table_name IS NOT NULL AND kind = 'computation'
  GROUP BY table_name, row_id
) AS spent
CROSS JOIN (
  SELECT CAST(sum(self_ns) AS BIGINT) AS busy_ns FROM sys.operator_stats WHERE query_id = 12
) AS work
GROUP BY spent.table_name
HAVING sum(spent.self_ns) > 0
ORDER BY total_ns DESC, table_name;

SELECT * FROM input LIMIT 1;

-- The 500 dearest records of a table, and every 1 th of the others by a hash of its row
-- id: what each took, and what can be said of it.
WITH spent AS (
  SELECT row_id, sum(latency_ns) AS self_ns
  FROM sys.record_latency
  WHERE query_id = 12 AND table_name = 'main.input' AND kind = 'computation'
  GROUP BY row_id
),
dearest AS (
  SELECT row_id FROM spent ORDER BY self_ns DESC, row_id LIMIT 500
),
chosen AS (
  SELECT spent.row_id, spent.self_ns, dearest.row_id IS NOT NULL AS is_dear
  FROM spent
  LEFT JOIN dearest ON spent.row_id = dearest.row_id
  WHERE dearest.row_id IS NOT NULL OR spent.row_id * 48271 % 2147483647 % 1 = 0
)
SELECT chosen.self_ns, chosen.is_dear,
  length(t.name) AS f0,
  CASE WHEN octet_length(t.name) <= 60 THEN t.name END AS f1,
  length(t.line) AS f2,
  CASE WHEN octet_length(t.line) <= 60 THEN t.line END AS f3
FROM input AS t
JOIN chosen ON t._row_id = chosen.row_id;

-- The predicates that separate expensive records: exactly, how many rows of the table each holds for, how many of
-- them were measured as records (`records`), and their time. It separates them if its rows took a tenth of the time
-- of the table's records, and four times the time of the others each.
WITH spent AS (
  SELECT row_id, sum(latency_ns) AS self_ns
  FROM sys.record_latency
  WHERE query_id = 12 AND table_name = 'main.input' AND kind = 'computation'
  GROUP BY row_id
),
counted AS (
  SELECT
    count(*) AS table_rows,
    count(*) FILTER (WHERE t.name = 'h2') AS rows_0,
    count(spent.row_id) FILTER (WHERE t.name = 'h2') AS records_0,
    CAST(sum(spent.self_ns) FILTER (WHERE t.name = 'h2') AS BIGINT) AS ns_0,
    count(*) FILTER (WHERE length(t.line) > 10000) AS rows_1,
    count(spent.row_id) FILTER (WHERE length(t.line) > 10000) AS records_1,
    CAST(sum(spent.self_ns) FILTER (WHERE length(t.line) > 10000) AS BIGINT) AS ns_1
  FROM input AS t
  LEFT JOIN spent ON t._row_id = spent.row_id
),
predicates AS (
  SELECT
    unnest(make_array(0, 1)) AS number, unnest(make_array(rows_0, rows_1)) AS matched_rows,
    unnest(make_array(records_0, records_1)) AS records, unnest(make_array(ns_0, ns_1)) AS ns, table_rows,
    CAST(5 AS BIGINT) AS all_records, CAST(30369000000 AS BIGINT) AS all_ns
  FROM counted
)
SELECT number, matched_rows, ns, table_rows
FROM predicates
WHERE records > 0 AND all_records > records AND ns >= 0.1 * all_ns
  AND CAST(ns AS DOUBLE) / nullif(records, 0)
    >= 4.0 * (all_ns - ns) / nullif(all_records - records, 0)
ORDER BY number;

-- The table that each scan reads.
SELECT operator_id, table_name
FROM sys.operators
WHERE query_id = 12 AND table_name IS NOT NULL
ORDER BY operator_id;

-- What the scans of a table read, and about how many bytes that was.
SELECT operators.operator_id, operators.details, sum(stats.bytes_out) AS bytes
FROM sys.operators AS operators
JOIN sys.operator_stats AS stats
  ON operators.query_id = stats.query_id AND operators.operator_id = stats.operator_id
WHERE operators.query_id = 12 AND operators.table_name = 'main.input'
GROUP BY operators.operator_id, operators.details;

SELECT * FROM input LIMIT 1;

-- About how long the query would have taken without some input records, and without the profiler.
-- Where the sample rate fell while it ran, other records count that the last rate admits: they have
-- been traced from the first to the last.
-- 1. What part of each task's time in each operator was the records' (`shares`): of what was timed record
--    by record, that; of scans, by bytes, where the records' share of them is given; else by tuples.
-- 2. How much shorter that makes the longest task of each fragment (`longest`).
-- 3. The query's time, put together from its longest tasks, with and without it (`parts`).
WITH RECURSIVE
-- The records.
own AS (
  SELECT _row_id AS id FROM input WHERE length(line) > 10000
),
query AS (
  SELECT
    coalesce(planning_ns, 0) AS planning_ns, coalesce(execution_ns, 0) AS execution_ns,
    rows_returned,
    coalesce(least(
      sample_rate,
      (SELECT min(sample_rate) FROM sys.profiler_overhead WHERE query_id = 12)
    ), sample_rate) AS sample_rate
  FROM sys.queries WHERE query_id = 12
),
operators AS (
  SELECT fragment_id, operator_id, parent_operator_id, kind, captures
  FROM sys.operators WHERE query_id = 12
),
-- Operators that take the time of each record. Records that were not traced count as the traced
-- ones do, the records themselves left out.
measured AS (
  SELECT
    operator_id, partition,
    own_ns / nullif(own_ns + others_ns / sample_rate, 0) AS share
  FROM (
    SELECT
      operator_id, partition,
      CAST(sum(CASE WHEN own.id IS NULL THEN latency_ns ELSE 0 END) AS DOUBLE) AS others_ns,
      CAST(sum(CASE WHEN own.id IS NOT NULL THEN latency_ns ELSE 0 END) AS DOUBLE) AS own_ns
    FROM sys.record_latency
    CROSS JOIN query
    LEFT JOIN own ON row_id = own.id
    WHERE query_id = 12 AND table_name = 'main.input' AND kind = 'computation'
      AND (own.id IS NOT NULL OR is_sampled(row_id, sample_rate))
    GROUP BY operator_id, partition
  ) AS latencies
  CROSS JOIN query
),
-- The other operators: tuples that descend from the records among all that descend from their table,
-- where they arrive at an aggregate or in the result.
arrived AS (
  SELECT
    input_operator_id AS scan_id, operator_id AS consumer_id, partition,
    CAST(count(*) AS DOUBLE) AS all_rows,
    CAST(count(own.id) AS DOUBLE) AS own_rows
  FROM sys.lineage
  CROSS JOIN query
  LEFT JOIN own ON input_id = own.id
  WHERE query_id = 12 AND table_name = 'main.input'
    AND (own.id IS NOT NULL OR is_sampled(input_id, sample_rate))
  GROUP BY input_operator_id, operator_id, partition
  UNION ALL
  SELECT
    operator_id, CAST(NULL AS BIGINT) AS consumer_id, CAST(NULL AS BIGINT) AS partition,
    CAST(count(*) AS DOUBLE),
    CAST(count(own.id) AS DOUBLE)
  FROM sys.output_records
  CROSS JOIN query
  LEFT JOIN own ON record_id = own.id
  WHERE query_id = 12 AND table_name = 'main.input'
    AND (own.id IS NOT NULL OR is_sampled(record_id, sample_rate))
  GROUP BY operator_id
),
-- Records that were not traced count as the others that were. `rows_in` is how many rows arrived, of whatever
-- table.
tuples AS (
  SELECT
    arrived.scan_id, consumer.fragment_id, arrived.partition, arrived.own_rows,
    arrived.own_rows + (arrived.all_rows - arrived.own_rows) / query.sample_rate AS all_rows,
    arrived.all_rows / query.sample_rate AS most_rows,
    coalesce(CASE
      WHEN arrived.consumer_id IS NULL THEN CAST(query.rows_returned AS DOUBLE)
      ELSE taken.rows_in
    END, 0) AS rows_in
  FROM arrived
  CROSS JOIN query
  LEFT JOIN operators AS consumer ON arrived.consumer_id = consumer.operator_id
  LEFT JOIN (
    SELECT operator_id, partition, CAST(sum(rows_in) AS DOUBLE) AS rows_in
    FROM sys.operator_stats WHERE query_id = 12
    GROUP BY operator_id, partition
  ) AS taken
    ON arrived.consumer_id = taken.operator_id AND arrived.partition = taken.partition
),
-- Which part of the rows of the operator above comes from an operator: all, but of a union.
branches AS (
  SELECT
    below.operator_id, below.parent_operator_id, below.captures,
    CASE
      WHEN above.kind = 'union' THEN coalesce(
        returned.rows / nullif(sum(returned.rows) OVER (PARTITION BY above.operator_id), 0), 1
      )
      ELSE 1
    END AS of_rows
  FROM operators AS below
  JOIN operators AS above ON below.parent_operator_id = above.operator_id
  LEFT JOIN (
    SELECT operator_id, CAST(sum(rows_out) AS DOUBLE) AS rows
    FROM sys.operator_stats WHERE query_id = 12
    GROUP BY operator_id
  ) AS returned ON below.operator_id = returned.operator_id
),
-- The operators of recursive terms. The static term comes first.
terms AS (
  SELECT query.operator_id AS recursive_id, term.operator_id
  FROM operators AS query
  JOIN operators AS term ON query.operator_id = term.parent_operator_id
  JOIN (
    SELECT parent_operator_id, min(operator_id) AS static_id FROM operators GROUP BY parent_operator_id
  ) AS first ON query.operator_id = first.parent_operator_id AND term.operator_id <> first.static_id
  WHERE query.kind = 'recursive'
  UNION ALL
  SELECT terms.recursive_id, below.operator_id
  FROM terms
  JOIN operators AS below ON terms.operator_id = below.parent_operator_id
),
-- The way of a table's tuples from its scan up to the aggregate, or to the result.
way AS (
  SELECT
    scans.operator_id AS scan_id, scans.operator_id, 0 AS height, CAST(1 AS DOUBLE) AS of_rows
  FROM operators AS scans
  LEFT JOIN operators AS inputs ON scans.operator_id = inputs.parent_operator_id
  WHERE inputs.operator_id IS NULL
  UNION ALL
  SELECT
    way.scan_id, branches.parent_operator_id, way.height + 1, way.of_rows * branches.of_rows
  FROM way
  JOIN branches ON way.operator_id = branches.operator_id
  WHERE NOT branches.captures
),
-- A recursive term works for the tuples that the recursive query returns.
path AS (
  SELECT scan_id, operator_id, height, of_rows FROM way
  UNION ALL
  SELECT way.scan_id, terms.operator_id, way.height, way.of_rows
  FROM way
  JOIN terms ON way.operator_id = terms.recursive_id
  LEFT JOIN terms AS own
    ON way.scan_id = own.operator_id AND way.operator_id = own.recursive_id
  WHERE own.operator_id IS NULL
),
-- How far up a record is one row, where there are joins or recursive queries: below the highest of them, as each may be the one
-- that multiplies it. From an unnest on it is as many rows as arrive, if the joins above have not made more.
single AS (
  SELECT
    path.scan_id,
    max(CASE WHEN operators.kind IN ('join', 'recursive') THEN path.height END) AS highest_join,
    min(CASE WHEN operators.kind = 'unnest' THEN path.height END) AS first_unnest,
    max(CASE WHEN operators.kind = 'union' THEN path.height END) AS highest_union
  FROM path
  JOIN operators ON path.operator_id = operators.operator_id
  GROUP BY path.scan_id
),
-- The time of each task in each operator; what a scan waits for is read for its rows.
work AS (
  SELECT
    stats.fragment_id, stats.operator_id, stats.worker_id, stats.partition,
    CAST(stats.self_ns AS DOUBLE)
      + CASE WHEN inputs.parent_operator_id IS NULL THEN stats.input_wait_ns ELSE 0 END AS busy_ns,
    greatest(CAST(sum(stats.rows_out) OVER (PARTITION BY stats.operator_id) AS DOUBLE), 1)
      AS rows_out
  FROM sys.operator_stats AS stats
  LEFT JOIN (
    SELECT DISTINCT parent_operator_id FROM operators
  ) AS inputs ON stats.operator_id = inputs.parent_operator_id
  WHERE stats.query_id = 12
),
-- Of tuples in each operator: in this task, where it is the task that they arrive in, or in all. A union gives
-- its inputs' partitions other numbers.
passed AS (
  SELECT
    operator_id, worker_id, partition, scan_id, bool_or(is_here) AS is_here,
    sum(CASE WHEN is_here AND is_partition THEN own_rows END) AS own_here,
    sum(CASE WHEN is_here AND is_partition THEN greatest(all_rows, rows_in) END) AS all_here,
    sum(own_rows) AS own_rows,
    greatest(sum(all_rows), least(sum(most_rows), sum(rows_in))) AS all_rows,
    min(CASE WHEN is_below_join THEN least(records / rows_out, 1) END) AS even_share,
    bool_or(is_unnested) AS is_unnested, min(rows_out) AS rows_out, min(of_rows) AS of_rows
  FROM (
    SELECT
      work.operator_id, work.worker_id, work.partition, work.rows_out, path.scan_id, path.of_rows,
      tuples.fragment_id = work.fragment_id AND path.height >= coalesce(single.highest_union, 0)
        AS is_here,
      tuples.partition = work.partition AS is_partition,
      path.height < single.highest_join AS is_below_join,
      path.height >= single.first_unnest AS is_unnested,
      number.records, tuples.own_rows, tuples.all_rows, tuples.most_rows, tuples.rows_in
    FROM work
    CROSS JOIN (SELECT CAST(count(*) AS DOUBLE) AS records FROM own) AS number
    JOIN path ON work.operator_id = path.operator_id
    JOIN tuples ON path.scan_id = tuples.scan_id
    LEFT JOIN single ON path.scan_id = single.scan_id
  ) AS arriving
  GROUP BY operator_id, worker_id, partition, scan_id
),
-- A table that a union reads twice has its parts of both scans; one that is joined with itself, as many as of
-- one of them.
by_tuples AS (
  SELECT
    operator_id, worker_id, partition,
    CASE WHEN sum(of_rows) > 1.001 THEN max(share) ELSE sum(share) END AS share
  FROM (
    SELECT
      operator_id, worker_id, partition, of_rows,
      CASE
        WHEN even_share IS NOT NULL
          AND NOT (coalesce(is_unnested, false) AND all_rows < 2 * rows_out * of_rows)
          THEN even_share
        WHEN is_here THEN coalesce(own_here / nullif(all_here, 0), 0)
        ELSE of_rows * coalesce(own_rows / nullif(all_rows, 0), 0)
      END AS share
    FROM passed
  ) AS of_scans
  GROUP BY operator_id, worker_id, partition
),
-- Scans of the table that read its long values: in the tasks in which the records' tuples arrived, if that
-- is known, or in all.
by_bytes AS (
  SELECT
    operator_id, worker_id, partition,
    least(
      coalesce(
        share_of_bytes * sum(busy_ns) OVER (PARTITION BY operator_id) * is_here / nullif(busy_ns, 0),
        0
      ),
      1
    ) AS share
  FROM (
    SELECT
      work.operator_id, work.worker_id, work.partition, work.busy_ns,
      CAST(NULL AS DOUBLE) AS share_of_bytes,
      CASE
        WHEN passed.is_here AND passed.own_rows > 0
          THEN coalesce(passed.own_here, 0) / passed.own_rows
        ELSE work.busy_ns / nullif(sum(work.busy_ns) OVER (PARTITION BY work.operator_id), 0)
      END AS is_here
    FROM work
    LEFT JOIN passed
      ON work.operator_id = passed.operator_id AND work.worker_id = passed.worker_id
      AND work.partition = passed.partition AND passed.scan_id = work.operator_id
    WHERE work.operator_id IN (NULL)
  ) AS scans
),
shares AS (
  SELECT
    work.fragment_id, work.worker_id, work.partition, work.busy_ns,
    CASE
      WHEN count(measured.operator_id) OVER (PARTITION BY work.operator_id) > 0
        THEN coalesce(measured.share, 0)
      ELSE greatest(coalesce(by_bytes.share, 0), coalesce(by_tuples.share, 0))
    END AS share
  FROM work
  LEFT JOIN measured
    ON work.operator_id = measured.operator_id AND work.partition = measured.partition
  LEFT JOIN by_tuples
    ON work.operator_id = by_tuples.operator_id AND work.worker_id = by_tuples.worker_id
    AND work.partition = by_tuples.partition
  LEFT JOIN by_bytes
    ON work.operator_id = by_bytes.operator_id AND work.worker_id = by_bytes.worker_id
    AND work.partition = by_bytes.partition
),
tasks AS (
  SELECT fragment_id, sum(busy_ns) AS busy_ns, sum(busy_ns * (1 - share)) AS rest_ns
  FROM shares
  GROUP BY fragment_id, worker_id, partition
),
longest AS (
  SELECT
    max(busy_ns) AS busy_ns, max(rest_ns) AS rest_ns,
    sum(busy_ns) AS busy_all, sum(rest_ns) AS rest_all
  FROM tasks
  GROUP BY fragment_id
),
-- The longest tasks end to end, the longest of all, and what the other tasks did.
totals AS (
  SELECT
    chain.busy_sum, chain.busy_max, chain.rest_sum, chain.rest_max,
    chain.busy_all - chain.busy_sum AS busy_others, chain.rest_all - chain.rest_sum AS rest_others,
    query.planning_ns, query.execution_ns,
    least(coalesce(overhead.time_ns / nullif(chain.busy_all, 0), 0), 0.9) AS overhead
  FROM (
    SELECT
      coalesce(sum(busy_ns), 0) AS busy_sum, coalesce(max(busy_ns), 0) AS busy_max,
      coalesce(sum(rest_ns), 0) AS rest_sum, coalesce(max(rest_ns), 0) AS rest_max,
      coalesce(sum(busy_all), 0) AS busy_all, coalesce(sum(rest_all), 0) AS rest_all
    FROM longest
  ) AS chain
  CROSS JOIN query
  CROSS JOIN (
    SELECT CAST(coalesce(sum(time_ns), 0) AS DOUBLE) AS time_ns
    FROM sys.profiler_overhead WHERE query_id = 12
  ) AS overhead
),
-- How long the uppermost operator waited for who takes the result, and which part of the result rows descends
-- from the records.
consumer AS (
  SELECT
    (
      SELECT coalesce(max(stats.output_wait_ns), 0)
      FROM sys.operator_stats AS stats
      JOIN operators ON stats.operator_id = operators.operator_id
      WHERE stats.query_id = 12 AND operators.parent_operator_id IS NULL
    ) AS wait_ns,
    least(coalesce(
      (
        SELECT CAST(count(DISTINCT output_row) AS DOUBLE)
        FROM sys.output_records
        JOIN own ON record_id = own.id
        WHERE query_id = 12 AND table_name = 'main.input'
      ) / nullif((SELECT rows_returned FROM query), 0), 0
    ), 1) AS share
),
-- How far the longest tasks ran one after the other (1) or at the same time (0), and how long
-- they had to wait for processors that other tasks kept busy.
order_of_tasks AS (
  SELECT
    *,
    CASE
      WHEN busy_sum > busy_max
        THEN least(greatest((execution_ns - busy_max) / (busy_sum - busy_max), 0), 1)
      ELSE 1
    END AS in_turn,
    least(greatest(execution_ns - busy_sum, 0), busy_others) AS held_up_ns
  FROM totals
),
parts AS (
  SELECT
    *,
    busy_max + in_turn * (busy_sum - busy_max) AS chain_ns,
    rest_max + in_turn * (rest_sum - rest_max) AS chain_without_ns,
    coalesce(held_up_ns * rest_others / nullif(busy_others, 0), 0) AS held_up_without_ns,
    greatest(execution_ns - busy_max - in_turn * (busy_sum - busy_max) - held_up_ns, 0) AS outside_ns
  FROM order_of_tasks
),
-- What is in no operator stays: planning, and execution that no task accounts for; but of what the result's
-- consumer took, the records' part.
estimated AS (
  SELECT
    planning_ns + execution_ns AS query_ns,
    CAST(round(
      planning_ns
      + outside_ns - least(outside_ns, consumer.wait_ns) * consumer.share
      + (1 - overhead) * (
        chain_without_ns * least(execution_ns / nullif(chain_ns, 0), 1) + held_up_without_ns
      )
    ) AS BIGINT) AS without_ns
  FROM parts
  CROSS JOIN consumer
)
-- Whether it is worth telling: that saves 5 % of the query's time, and a millisecond.
SELECT
  without_ns, query_ns - without_ns >= greatest(0.05 * query_ns, 1000000) AS saves_much
FROM estimated;

-- What the scans of a table read, and about how many bytes that was.
SELECT operators.operator_id, operators.details, sum(stats.bytes_out) AS bytes
FROM sys.operators AS operators
JOIN sys.operator_stats AS stats
  ON operators.query_id = stats.query_id AND operators.operator_id = stats.operator_id
WHERE operators.query_id = 12 AND operators.table_name = 'main.input'
GROUP BY operators.operator_id, operators.details;

SELECT * FROM input LIMIT 1;

-- About how long the query would have taken without some input records, and without the profiler.
-- Where the sample rate fell while it ran, other records count that the last rate admits: they have
-- been traced from the first to the last.
-- 1. What part of each task's time in each operator was the records' (`shares`): of what was timed record
--    by record, that; of scans, by bytes, where the records' share of them is given; else by tuples.
-- 2. How much shorter that makes the longest task of each fragment (`longest`).
-- 3. The query's time, put together from its longest tasks, with and without it (`parts`).
WITH RECURSIVE
-- The records.
own AS (
  SELECT _row_id AS id FROM input WHERE name = 'h2'
),
query AS (
  SELECT
    coalesce(planning_ns, 0) AS planning_ns, coalesce(execution_ns, 0) AS execution_ns,
    rows_returned,
    coalesce(least(
      sample_rate,
      (SELECT min(sample_rate) FROM sys.profiler_overhead WHERE query_id = 12)
    ), sample_rate) AS sample_rate
  FROM sys.queries WHERE query_id = 12
),
operators AS (
  SELECT fragment_id, operator_id, parent_operator_id, kind, captures
  FROM sys.operators WHERE query_id = 12
),
-- Operators that take the time of each record. Records that were not traced count as the traced
-- ones do, the records themselves left out.
measured AS (
  SELECT
    operator_id, partition,
    own_ns / nullif(own_ns + others_ns / sample_rate, 0) AS share
  FROM (
    SELECT
      operator_id, partition,
      CAST(sum(CASE WHEN own.id IS NULL THEN latency_ns ELSE 0 END) AS DOUBLE) AS others_ns,
      CAST(sum(CASE WHEN own.id IS NOT NULL THEN latency_ns ELSE 0 END) AS DOUBLE) AS own_ns
    FROM sys.record_latency
    CROSS JOIN query
    LEFT JOIN own ON row_id = own.id
    WHERE query_id = 12 AND table_name = 'main.input' AND kind = 'computation'
      AND (own.id IS NOT NULL OR is_sampled(row_id, sample_rate))
    GROUP BY operator_id, partition
  ) AS latencies
  CROSS JOIN query
),
-- The other operators: tuples that descend from the records among all that descend from their table,
-- where they arrive at an aggregate or in the result.
arrived AS (
  SELECT
    input_operator_id AS scan_id, operator_id AS consumer_id, partition,
    CAST(count(*) AS DOUBLE) AS all_rows,
    CAST(count(own.id) AS DOUBLE) AS own_rows
  FROM sys.lineage
  CROSS JOIN query
  LEFT JOIN own ON input_id = own.id
  WHERE query_id = 12 AND table_name = 'main.input'
    AND (own.id IS NOT NULL OR is_sampled(input_id, sample_rate))
  GROUP BY input_operator_id, operator_id, partition
  UNION ALL
  SELECT
    operator_id, CAST(NULL AS BIGINT) AS consumer_id, CAST(NULL AS BIGINT) AS partition,
    CAST(count(*) AS DOUBLE),
    CAST(count(own.id) AS DOUBLE)
  FROM sys.output_records
  CROSS JOIN query
  LEFT JOIN own ON record_id = own.id
  WHERE query_id = 12 AND table_name = 'main.input'
    AND (own.id IS NOT NULL OR is_sampled(record_id, sample_rate))
  GROUP BY operator_id
),
-- Records that were not traced count as the others that were. `rows_in` is how many rows arrived, of whatever
-- table.
tuples AS (
  SELECT
    arrived.scan_id, consumer.fragment_id, arrived.partition, arrived.own_rows,
    arrived.own_rows + (arrived.all_rows - arrived.own_rows) / query.sample_rate AS all_rows,
    arrived.all_rows / query.sample_rate AS most_rows,
    coalesce(CASE
      WHEN arrived.consumer_id IS NULL THEN CAST(query.rows_returned AS DOUBLE)
      ELSE taken.rows_in
    END, 0) AS rows_in
  FROM arrived
  CROSS JOIN query
  LEFT JOIN operators AS consumer ON arrived.consumer_id = consumer.operator_id
  LEFT JOIN (
    SELECT operator_id, partition, CAST(sum(rows_in) AS DOUBLE) AS rows_in
    FROM sys.operator_stats WHERE query_id = 12
    GROUP BY operator_id, partition
  ) AS taken
    ON arrived.consumer_id = taken.operator_id AND arrived.partition = taken.partition
),
-- Which part of the rows of the operator above comes from an operator: all, but of a union.
branches AS (
  SELECT
    below.operator_id, below.parent_operator_id, below.captures,
    CASE
      WHEN above.kind = 'union' THEN coalesce(
        returned.rows / nullif(sum(returned.rows) OVER (PARTITION BY above.operator_id), 0), 1
      )
      ELSE 1
    END AS of_rows
  FROM operators AS below
  JOIN operators AS above ON below.parent_operator_id = above.operator_id
  LEFT JOIN (
    SELECT operator_id, CAST(sum(rows_out) AS DOUBLE) AS rows
    FROM sys.operator_stats WHERE query_id = 12
    GROUP BY operator_id
  ) AS returned ON below.operator_id = returned.operator_id
),
-- The operators of recursive terms. The static term comes first.
terms AS (
  SELECT query.operator_id AS recursive_id, term.operator_id
  FROM operators AS query
  JOIN operators AS term ON query.operator_id = term.parent_operator_id
  JOIN (
    SELECT parent_operator_id, min(operator_id) AS static_id FROM operators GROUP BY parent_operator_id
  ) AS first ON query.operator_id = first.parent_operator_id AND term.operator_id <> first.static_id
  WHERE query.kind = 'recursive'
  UNION ALL
  SELECT terms.recursive_id, below.operator_id
  FROM terms
  JOIN operators AS below ON terms.operator_id = below.parent_operator_id
),
-- The way of a table's tuples from its scan up to the aggregate, or to the result.
way AS (
  SELECT
    scans.operator_id AS scan_id, scans.operator_id, 0 AS height, CAST(1 AS DOUBLE) AS of_rows
  FROM operators AS scans
  LEFT JOIN operators AS inputs ON scans.operator_id = inputs.parent_operator_id
  WHERE inputs.operator_id IS NULL
  UNION ALL
  SELECT
    way.scan_id, branches.parent_operator_id, way.height + 1, way.of_rows * branches.of_rows
  FROM way
  JOIN branches ON way.operator_id = branches.operator_id
  WHERE NOT branches.captures
),
-- A recursive term works for the tuples that the recursive query returns.
path AS (
  SELECT scan_id, operator_id, height, of_rows FROM way
  UNION ALL
  SELECT way.scan_id, terms.operator_id, way.height, way.of_rows
  FROM way
  JOIN terms ON way.operator_id = terms.recursive_id
  LEFT JOIN terms AS own
    ON way.scan_id = own.operator_id AND way.operator_id = own.recursive_id
  WHERE own.operator_id IS NULL
),
-- How far up a record is one row, where there are joins or recursive queries: below the highest of them, as each may be the one
-- that multiplies it. From an unnest on it is as many rows as arrive, if the joins above have not made more.
single AS (
  SELECT
    path.scan_id,
    max(CASE WHEN operators.kind IN ('join', 'recursive') THEN path.height END) AS highest_join,
    min(CASE WHEN operators.kind = 'unnest' THEN path.height END) AS first_unnest,
    max(CASE WHEN operators.kind = 'union' THEN path.height END) AS highest_union
  FROM path
  JOIN operators ON path.operator_id = operators.operator_id
  GROUP BY path.scan_id
),
-- The time of each task in each operator; what a scan waits for is read for its rows.
work AS (
  SELECT
    stats.fragment_id, stats.operator_id, stats.worker_id, stats.partition,
    CAST(stats.self_ns AS DOUBLE)
      + CASE WHEN inputs.parent_operator_id IS NULL THEN stats.input_wait_ns ELSE 0 END AS busy_ns,
    greatest(CAST(sum(stats.rows_out) OVER (PARTITION BY stats.operator_id) AS DOUBLE), 1)
      AS rows_out
  FROM sys.operator_stats AS stats
  LEFT JOIN (
    SELECT DISTINCT parent_operator_id FROM operators
  ) AS inputs ON stats.operator_id = inputs.parent_operator_id
  WHERE stats.query_id = 12
),
-- Of tuples in each operator: in this task, where it is the task that they arrive in, or in all. A union gives
-- its inputs' partitions other numbers.
passed AS (
  SELECT
    operator_id, worker_id, partition, scan_id, bool_or(is_here) AS is_here,
    sum(CASE WHEN is_here AND is_partition THEN own_rows END) AS own_here,
    sum(CASE WHEN is_here AND is_partition THEN greatest(all_rows, rows_in) END) AS all_here,
    sum(own_rows) AS own_rows,
    greatest(sum(all_rows), least(sum(most_rows), sum(rows_in))) AS all_rows,
    min(CASE WHEN is_below_join THEN least(records / rows_out, 1) END) AS even_share,
    bool_or(is_unnested) AS is_unnested, min(rows_out) AS rows_out, min(of_rows) AS of_rows
  FROM (
    SELECT
      work.operator_id, work.worker_id, work.partition, work.rows_out, path.scan_id, path.of_rows,
      tuples.fragment_id = work.fragment_id AND path.height >= coalesce(single.highest_union, 0)
        AS is_here,
      tuples.partition = work.partition AS is_partition,
      path.height < single.highest_join AS is_below_join,
      path.height >= single.first_unnest AS is_unnested,
      number.records, tuples.own_rows, tuples.all_rows, tuples.most_rows, tuples.rows_in
    FROM work
    CROSS JOIN (SELECT CAST(count(*) AS DOUBLE) AS records FROM own) AS number
    JOIN path ON work.operator_id = path.operator_id
    JOIN tuples ON path.scan_id = tuples.scan_id
    LEFT JOIN single ON path.scan_id = single.scan_id
  ) AS arriving
  GROUP BY operator_id, worker_id, partition, scan_id
),
-- A table that a union reads twice has its parts of both scans; one that is joined with itself, as many as of
-- one of them.
by_tuples AS (
  SELECT
    operator_id, worker_id, partition,
    CASE WHEN sum(of_rows) > 1.001 THEN max(share) ELSE sum(share) END AS share
  FROM (
    SELECT
      operator_id, worker_id, partition, of_rows,
      CASE
        WHEN even_share IS NOT NULL
          AND NOT (coalesce(is_unnested, false) AND all_rows < 2 * rows_out * of_rows)
          THEN even_share
        WHEN is_here THEN coalesce(own_here / nullif(all_here, 0), 0)
        ELSE of_rows * coalesce(own_rows / nullif(all_rows, 0), 0)
      END AS share
    FROM passed
  ) AS of_scans
  GROUP BY operator_id, worker_id, partition
),
-- Scans of the table that read its long values: in the tasks in which the records' tuples arrived, if that
-- is known, or in all.
by_bytes AS (
  SELECT
    operator_id, worker_id, partition,
    least(
      coalesce(
        share_of_bytes * sum(busy_ns) OVER (PARTITION BY operator_id) * is_here / nullif(busy_ns, 0),
        0
      ),
      1
    ) AS share
  FROM (
    SELECT
      work.operator_id, work.worker_id, work.partition, work.busy_ns,
      CAST(NULL AS DOUBLE) AS share_of_bytes,
      CASE
        WHEN passed.is_here AND passed.own_rows > 0
          THEN coalesce(passed.own_here, 0) / passed.own_rows
        ELSE work.busy_ns / nullif(sum(work.busy_ns) OVER (PARTITION BY work.operator_id), 0)
      END AS is_here
    FROM work
    LEFT JOIN passed
      ON work.operator_id = passed.operator_id AND work.worker_id = passed.worker_id
      AND work.partition = passed.partition AND passed.scan_id = work.operator_id
    WHERE work.operator_id IN (NULL)
  ) AS scans
),
shares AS (
  SELECT
    work.fragment_id, work.worker_id, work.partition, work.busy_ns,
    CASE
      WHEN count(measured.operator_id) OVER (PARTITION BY work.operator_id) > 0
        THEN coalesce(measured.share, 0)
      ELSE greatest(coalesce(by_bytes.share, 0), coalesce(by_tuples.share, 0))
    END AS share
  FROM work
  LEFT JOIN measured
    ON work.operator_id = measured.operator_id AND work.partition = measured.partition
  LEFT JOIN by_tuples
    ON work.operator_id = by_tuples.operator_id AND work.worker_id = by_tuples.worker_id
    AND work.partition = by_tuples.partition
  LEFT JOIN by_bytes
    ON work.operator_id = by_bytes.operator_id AND work.worker_id = by_bytes.worker_id
    AND work.partition = by_bytes.partition
),
tasks AS (
  SELECT fragment_id, sum(busy_ns) AS busy_ns, sum(busy_ns * (1 - share)) AS rest_ns
  FROM shares
  GROUP BY fragment_id, worker_id, partition
),
longest AS (
  SELECT
    max(busy_ns) AS busy_ns, max(rest_ns) AS rest_ns,
    sum(busy_ns) AS busy_all, sum(rest_ns) AS rest_all
  FROM tasks
  GROUP BY fragment_id
),
-- The longest tasks end to end, the longest of all, and what the other tasks did.
totals AS (
  SELECT
    chain.busy_sum, chain.busy_max, chain.rest_sum, chain.rest_max,
    chain.busy_all - chain.busy_sum AS busy_others, chain.rest_all - chain.rest_sum AS rest_others,
    query.planning_ns, query.execution_ns,
    least(coalesce(overhead.time_ns / nullif(chain.busy_all, 0), 0), 0.9) AS overhead
  FROM (
    SELECT
      coalesce(sum(busy_ns), 0) AS busy_sum, coalesce(max(busy_ns), 0) AS busy_max,
      coalesce(sum(rest_ns), 0) AS rest_sum, coalesce(max(rest_ns), 0) AS rest_max,
      coalesce(sum(busy_all), 0) AS busy_all, coalesce(sum(rest_all), 0) AS rest_all
    FROM longest
  ) AS chain
  CROSS JOIN query
  CROSS JOIN (
    SELECT CAST(coalesce(sum(time_ns), 0) AS DOUBLE) AS time_ns
    FROM sys.profiler_overhead WHERE query_id = 12
  ) AS overhead
),
-- How long the uppermost operator waited for who takes the result, and which part of the result rows descends
-- from the records.
consumer AS (
  SELECT
    (
      SELECT coalesce(max(stats.output_wait_ns), 0)
      FROM sys.operator_stats AS stats
      JOIN operators ON stats.operator_id = operators.operator_id
      WHERE stats.query_id = 12 AND operators.parent_operator_id IS NULL
    ) AS wait_ns,
    least(coalesce(
      (
        SELECT CAST(count(DISTINCT output_row) AS DOUBLE)
        FROM sys.output_records
        JOIN own ON record_id = own.id
        WHERE query_id = 12 AND table_name = 'main.input'
      ) / nullif((SELECT rows_returned FROM query), 0), 0
    ), 1) AS share
),
-- How far the longest tasks ran one after the other (1) or at the same time (0), and how long
-- they had to wait for processors that other tasks kept busy.
order_of_tasks AS (
  SELECT
    *,
    CASE
      WHEN busy_sum > busy_max
        THEN least(greatest((execution_ns - busy_max) / (busy_sum - busy_max), 0), 1)
      ELSE 1
    END AS in_turn,
    least(greatest(execution_ns - busy_sum, 0), busy_others) AS held_up_ns
  FROM totals
),
parts AS (
  SELECT
    *,
    busy_max + in_turn * (busy_sum - busy_max) AS chain_ns,
    rest_max + in_turn * (rest_sum - rest_max) AS chain_without_ns,
    coalesce(held_up_ns * rest_others / nullif(busy_others, 0), 0) AS held_up_without_ns,
    greatest(execution_ns - busy_max - in_turn * (busy_sum - busy_max) - held_up_ns, 0) AS outside_ns
  FROM order_of_tasks
),
-- What is in no operator stays: planning, and execution that no task accounts for; but of what the result's
-- consumer took, the records' part.
estimated AS (
  SELECT
    planning_ns + execution_ns AS query_ns,
    CAST(round(
      planning_ns
      + outside_ns - least(outside_ns, consumer.wait_ns) * consumer.share
      + (1 - overhead) * (
        chain_without_ns * least(execution_ns / nullif(chain_ns, 0), 1) + held_up_without_ns
      )
    ) AS BIGINT) AS without_ns
  FROM parts
  CROSS JOIN consumer
)
-- Whether it is worth telling: that saves 5 % of the query's time, and a millisecond.
SELECT
  without_ns, query_ns - without_ns >= greatest(0.05 * query_ns, 1000000) AS saves_much
FROM estimated;
