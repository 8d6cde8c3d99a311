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
-- The input records that cost most, on the critical path (impact) or in sum (self time).
-- A record is anomalous if what it costs is at least
--   10 times the median self time of its table's records (or, if none was measured, 10 times an
--   even share of all operators' time per scanned record), and twice that even share, and
--   5 % of the query's time, and a millisecond.
WITH
query AS (
  SELECT coalesce(planning_ns, 0) + coalesce(execution_ns, 0) AS query_ns
  FROM sys.queries WHERE query_id = 12
),
work AS (
  SELECT
    CAST(sum(self_ns) / nullif(sum(CASE WHEN rows_in = 0 THEN rows_out END), 0) AS BIGINT) AS even_ns
  FROM sys.operator_stats WHERE query_id = 12
),
-- All time that was measured in expressions over a record, whether the result waited for it or not.
spent AS (
  SELECT table_name, row_id, sum(latency_ns) AS self_ns
  FROM sys.record_latency
  WHERE query_id = 12 AND table_name IS NOT NULL AND kind = 'computation'
  GROUP BY table_name, row_id
),
usual AS (
  SELECT table_name, CAST(median(self_ns) AS BIGINT) AS median_ns
  FROM spent GROUP BY table_name
),
candidates AS (
  SELECT
    coalesce(critical.table_name, heavy.table_name) AS table_name,
    coalesce(critical.row_id, heavy.row_id) AS row_id,
    coalesce(critical.impact_ns, 0) AS impact_ns, critical.max_total_ns, critical.max_remediated_ns,
    critical.outputs, coalesce(critical.self_ns, heavy.self_ns) AS self_ns
  FROM (
    SELECT table_name, row_id, impact_ns, max_total_ns, max_remediated_ns, outputs, self_ns
    FROM sys.expensive_inputs WHERE query_id = 12
    ORDER BY impact_ns DESC, row_id, table_name LIMIT 5
  ) AS critical
  FULL JOIN (
    SELECT table_name, row_id, self_ns
    FROM spent ORDER BY self_ns DESC, row_id, table_name LIMIT 3
  ) AS heavy
  ON critical.table_name = heavy.table_name AND critical.row_id = heavy.row_id
),
-- How sure the self times of the candidates are.
found AS (
  SELECT
    latencies.table_name, latencies.row_id, sum(latencies.error_ns) AS error_ns,
    sum(CASE WHEN method = 'replayed' THEN latency_ns END) AS replayed_ns,
    sum(CASE WHEN method = 'measured' THEN latency_ns END) AS measured_ns
  FROM sys.record_latency AS latencies
  JOIN candidates
  ON latencies.table_name = candidates.table_name AND latencies.row_id = candidates.row_id
  WHERE latencies.query_id = 12 AND kind = 'computation'
  GROUP BY latencies.table_name, latencies.row_id
),
judged AS (
  SELECT
    candidates.table_name, candidates.row_id, candidates.impact_ns, candidates.max_total_ns,
    candidates.max_remediated_ns, candidates.outputs, candidates.self_ns, usual.median_ns,
    query.query_ns, found.error_ns,
    CASE
      WHEN 2 * found.replayed_ns > candidates.self_ns THEN 'replayed'
      WHEN 2 * found.measured_ns > candidates.self_ns THEN 'measured'
      WHEN found.error_ns IS NOT NULL THEN 'apportioned'
    END AS method,
    greatest(
      10 * coalesce(usual.median_ns, work.even_ns, 0), 2 * coalesce(work.even_ns, 0),
      CAST(0.05 * query.query_ns AS BIGINT), 1000000
    ) AS threshold_ns
  FROM candidates
  CROSS JOIN query
  CROSS JOIN work
  LEFT JOIN usual ON candidates.table_name = usual.table_name
  LEFT JOIN found
  ON candidates.table_name = found.table_name AND candidates.row_id = found.row_id
)
SELECT
  table_name, row_id, impact_ns, max_total_ns, max_remediated_ns, outputs, self_ns,
  method, error_ns, median_ns, query_ns, threshold_ns,
  CASE
    WHEN impact_ns >= threshold_ns THEN 'critical path'
    WHEN self_ns >= threshold_ns THEN 'self time'
  END AS anomaly
FROM judged
ORDER BY anomaly IS NULL, impact_ns DESC, self_ns DESC, row_id, table_name;

-- The scans, and values that subqueries are asked for, whose rows an unnest, a join or a recursive query multiplies,
-- and what operators that are not timed record by record took for them from the first such one on, up to the first
-- that captures lineage, or to the result. A join multiplies rows if it returns twice as many as the larger of its
-- inputs has, a recursive query if it returns twice as many as its static term: its recursive term worked for
-- these. `rows` is the most that any of them returned, `arriving` how many arrive where lineage is captured, or in
-- the result.
WITH RECURSIVE operators AS (
  SELECT operator_id, parent_operator_id, kind, captures, table_name
  FROM sys.operators WHERE query_id = 12
),
work AS (
  SELECT
    operator_id, CAST(sum(rows_out) AS DOUBLE) AS rows_out, CAST(sum(self_ns) AS DOUBLE) AS busy_ns
  FROM sys.operator_stats WHERE query_id = 12
  GROUP BY operator_id
),
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
path AS (
  SELECT
    scans.operator_id AS scan_id, scans.operator_id, scans.kind, scans.captures, 0 AS height,
    CAST(NULL AS DOUBLE) AS static_rows, CAST(1 AS DOUBLE) AS of_rows, CAST(1 AS DOUBLE) AS of_time
  FROM operators AS scans
  LEFT JOIN operators AS below ON scans.operator_id = below.parent_operator_id
  WHERE below.operator_id IS NULL
    AND (scans.table_name IS NOT NULL OR scans.kind = 'subquery values')
  UNION ALL
  SELECT
    path.scan_id, steps.operator_id, steps.kind, steps.captures_above, path.height + 1,
    steps.static_rows, path.of_rows * steps.of_rows, path.of_rows * steps.of_time
  FROM path
  JOIN steps ON path.operator_id = steps.child_id
  WHERE NOT steps.captures
),
multiplied AS (
  SELECT path.scan_id, min(path.height) AS height
  FROM path
  JOIN work ON path.operator_id = work.operator_id
  JOIN inputs ON path.operator_id = inputs.operator_id
  WHERE path.kind = 'unnest' OR path.kind = 'join' AND work.rows_out >= 2 * inputs.largest
    OR work.rows_out >= 2 * path.static_rows
  GROUP BY path.scan_id
)
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
ORDER BY path.scan_id;

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
)
SELECT
  -- What is in no operator stays: planning, and execution that no task accounts for; but of what the result's
  -- consumer took, the records' part.
  CAST(round(
    planning_ns
    + outside_ns - least(outside_ns, consumer.wait_ns) * consumer.share
    + (1 - overhead) * (
      chain_without_ns * least(execution_ns / nullif(chain_ns, 0), 1) + held_up_without_ns
    )
  ) AS BIGINT) AS without_ns
FROM parts
CROSS JOIN consumer;

SELECT * FROM input WHERE _row_id = 2;

-- # What tells them apart
-- The tables of whose records time was measured: how many records, and how much time.
SELECT table_name, count(*) AS records, CAST(sum(self_ns) AS BIGINT) AS total_ns
FROM (
  SELECT table_name, row_id, sum(latency_ns) AS self_ns
  FROM sys.record_latency
  WHERE query_id = 12 AND table_name IS NOT NULL AND kind = 'computation'
  GROUP BY table_name, row_id
) AS spent
GROUP BY table_name
HAVING sum(self_ns) > 0
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

-- Exactly: rows of the table; of the rows of each predicate how many there are, how many of them were
-- measured as records, and their time.
WITH spent AS (
  SELECT row_id, sum(latency_ns) AS self_ns
  FROM sys.record_latency
  WHERE query_id = 12 AND table_name = 'main.input' AND kind = 'computation'
  GROUP BY row_id
)
SELECT
  count(*) AS rows,
  count(*) FILTER (WHERE t.name = 'h2') AS rows_0,
  count(spent.row_id) FILTER (WHERE t.name = 'h2') AS records_0,
  sum(spent.self_ns) FILTER (WHERE t.name = 'h2') AS ns_0,
  count(*) FILTER (WHERE length(t.line) > 10000) AS rows_1,
  count(spent.row_id) FILTER (WHERE length(t.line) > 10000) AS records_1,
  sum(spent.self_ns) FILTER (WHERE length(t.line) > 10000) AS ns_1
FROM input AS t
LEFT JOIN spent ON t._row_id = spent.row_id;

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
)
SELECT
  -- What is in no operator stays: planning, and execution that no task accounts for; but of what the result's
  -- consumer took, the records' part.
  CAST(round(
    planning_ns
    + outside_ns - least(outside_ns, consumer.wait_ns) * consumer.share
    + (1 - overhead) * (
      chain_without_ns * least(execution_ns / nullif(chain_ns, 0), 1) + held_up_without_ns
    )
  ) AS BIGINT) AS without_ns
FROM parts
CROSS JOIN consumer;

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
)
SELECT
  -- What is in no operator stays: planning, and execution that no task accounts for; but of what the result's
  -- consumer took, the records' part.
  CAST(round(
    planning_ns
    + outside_ns - least(outside_ns, consumer.wait_ns) * consumer.share
    + (1 - overhead) * (
      chain_without_ns * least(execution_ns / nullif(chain_ns, 0), 1) + held_up_without_ns
    )
  ) AS BIGINT) AS without_ns
FROM parts
CROSS JOIN consumer;
