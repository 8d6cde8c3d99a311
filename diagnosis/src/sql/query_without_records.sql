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
  $own
),
query AS (
  SELECT
    coalesce(planning_ns, 0) AS planning_ns, coalesce(execution_ns, 0) AS execution_ns,
    rows_returned,
    coalesce(least(
      sample_rate,
      (SELECT min(sample_rate) FROM sys.profiler_overhead WHERE query_id = $query_id)
    ), sample_rate) AS sample_rate
  FROM sys.queries WHERE query_id = $query_id
),
operators AS (
  SELECT fragment_id, operator_id, parent_operator_id, kind, captures
  FROM sys.operators WHERE query_id = $query_id
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
    WHERE query_id = $query_id AND table_name = $table_name AND kind = 'computation'
      AND (own.id IS NOT NULL OR is_sampled(row_id, sample_rate))
    GROUP BY operator_id, partition
  ) AS latencies
  CROSS JOIN query
),
-- The other operators: tuples that descend from the records among all that descend from their table,
-- where they arrive at an aggregate or in the result.
arrived AS (
  SELECT
    scan_id, consumer_id, partition,
    CAST(sum(edges) AS DOUBLE) AS all_rows,
    CAST(sum(CASE WHEN own.id IS NOT NULL THEN edges ELSE 0 END) AS DOUBLE) AS own_rows
  FROM (
    -- There may be many edges for each record. Workers count them, and only the counts are joined.
    SELECT input_operator_id AS scan_id, operator_id AS consumer_id, partition, input_id, count(*) AS edges
    FROM sys.lineage
    WHERE query_id = $query_id AND table_name = $table_name
    GROUP BY input_operator_id, operator_id, partition, input_id
  ) AS counted
  CROSS JOIN query
  LEFT JOIN own ON input_id = own.id
  WHERE own.id IS NOT NULL OR is_sampled(input_id, sample_rate)
  GROUP BY scan_id, consumer_id, partition
  UNION ALL
  SELECT
    operator_id, CAST(NULL AS BIGINT) AS consumer_id, CAST(NULL AS BIGINT) AS partition,
    CAST(count(*) AS DOUBLE),
    CAST(count(own.id) AS DOUBLE)
  FROM sys.output_records
  CROSS JOIN query
  LEFT JOIN own ON record_id = own.id
  WHERE query_id = $query_id AND table_name = $table_name
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
    FROM sys.operator_stats WHERE query_id = $query_id
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
    FROM sys.operator_stats WHERE query_id = $query_id
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
  WHERE stats.query_id = $query_id
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
      $share_of_bytes AS share_of_bytes,
      CASE
        WHEN passed.is_here AND passed.own_rows > 0
          THEN coalesce(passed.own_here, 0) / passed.own_rows
        ELSE work.busy_ns / nullif(sum(work.busy_ns) OVER (PARTITION BY work.operator_id), 0)
      END AS is_here
    FROM work
    LEFT JOIN passed
      ON work.operator_id = passed.operator_id AND work.worker_id = passed.worker_id
      AND work.partition = passed.partition AND passed.scan_id = work.operator_id
    WHERE work.operator_id IN ($scans_by_bytes)
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
    FROM sys.profiler_overhead WHERE query_id = $query_id
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
      WHERE stats.query_id = $query_id AND operators.parent_operator_id IS NULL
    ) AS wait_ns,
    least(coalesce(
      (
        SELECT CAST(count(DISTINCT output_row) AS DOUBLE)
        FROM sys.output_records
        JOIN own ON record_id = own.id
        WHERE query_id = $query_id AND table_name = $table_name
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
FROM estimated
