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
    FROM sys.operator_stats WHERE query_id = $query_id
  ) AS work
  CROSS JOIN (
    SELECT min(sample_rate) AS sample_rate, sum(events_dropped) AS events_dropped
    FROM sys.profiler_overhead WHERE query_id = $query_id
  ) AS overhead
  CROSS JOIN (
    SELECT count(*) AS workers
    FROM sys.workers AS workers
    LEFT JOIN (
      SELECT worker_id, state FROM sys.workers WHERE query_id IS NULL
    ) AS now ON workers.worker_id = now.worker_id
    WHERE workers.query_id = $query_id AND (workers.state = 'lost' OR now.state = 'lost')
  ) AS lost
  WHERE queries.query_id = $query_id
),
-- All time that was measured in expressions over a record, whether the result waited for it or not.
spent AS (
  SELECT table_name, row_id, sum(latency_ns) AS self_ns
  FROM sys.record_latency
  WHERE query_id = $query_id AND table_name IS NOT NULL AND kind = 'computation'
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
    FROM sys.expensive_inputs WHERE query_id = $query_id
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
  WHERE latencies.query_id = $query_id AND kind = 'computation'
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
  FROM sys.operators WHERE query_id = $query_id
),
-- What each operator did.
work AS (
  SELECT
    operator_id, CAST(sum(rows_out) AS DOUBLE) AS rows_out, CAST(sum(self_ns) AS DOUBLE) AS busy_ns
  FROM sys.operator_stats WHERE query_id = $query_id
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
    WHERE lineage.query_id = $query_id AND lineage.table_name IS NOT NULL
    UNION ALL
    SELECT
      scans.scan_id, CAST(-1 AS BIGINT) AS consumer_id, outputs.table_name, outputs.record_id,
      scans.least_rows, scans.sample_rate
    FROM sys.output_records AS outputs
    JOIN scans ON outputs.operator_id = scans.scan_id
    WHERE outputs.query_id = $query_id AND outputs.table_name IS NOT NULL
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
  $query_id AS query_id, coalesce(judged.table_name, dearest.table_name) AS table_name,
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
  $query_id, unknown_records.scanned, NULL, 'fan-out', unknown_records.busy_ns,
  unknown_records.threshold_ns, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, query.even_ns,
  query.query_ns, unknown_records.scan_id, NULL, NULL, NULL, unknown_records.unknown
FROM unknown_records
CROSS JOIN query
WHERE unknown_records.unknown IS NOT NULL
