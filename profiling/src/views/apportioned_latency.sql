-- What scans, filters, joins, sorts, unnests, aggregates and other operators that are not timed
-- record by record spent on each base record in the lineage of a query. Below joins and unnests a
-- record is one row: the operator's time ÷ its rows. From the lowest of them on: its time ÷ the tuples
-- that descend from the record's table × those that descend from the record, counted where they
-- arrive at the first operator that captures lineage, or in the result. That operator's time is
-- `shuffle`, apportioned in each partition by itself; what comes before is `computation`. Level
-- `records` with a log; beside `sys.record_latency`, which has the time of expressions.
WITH RECURSIVE path AS (
  SELECT scans.query_id, scans.operator_id AS scan_id, scans.operator_id, 0 AS height
  FROM sys.operators AS scans
  LEFT JOIN sys.operators AS inputs
    ON scans.query_id = inputs.query_id AND scans.operator_id = inputs.parent_operator_id
  WHERE inputs.operator_id IS NULL
  UNION ALL
  SELECT path.query_id, path.scan_id, below.parent_operator_id, path.height + 1
  FROM path
  JOIN sys.operators AS below
    ON path.query_id = below.query_id AND path.operator_id = below.operator_id
  WHERE below.parent_operator_id IS NOT NULL AND NOT below.captures
),
-- How far up a record is one row at most.
single AS (
  SELECT path.query_id, path.scan_id, min(path.height) AS height
  FROM path
  JOIN sys.operators AS operators
    ON path.query_id = operators.query_id AND path.operator_id = operators.operator_id
  WHERE operators.kind IN ('join', 'unnest', 'recursive')
  GROUP BY path.query_id, path.scan_id
),
edges AS (
  SELECT
    query_id, input_operator_id AS scan_id, operator_id AS consumer_id, partition, table_name,
    input_id AS row_id
  FROM sys.lineage WHERE table_name IS NOT NULL
  UNION ALL
  SELECT
    query_id, operator_id, CAST(NULL AS BIGINT) AS consumer_id, CAST(NULL AS BIGINT) AS partition,
    table_name, record_id
  FROM sys.output_records WHERE table_name IS NOT NULL AND record_id IS NOT NULL
),
-- The time of operators that do not time records; what a scan waits for is read for its rows. Of
-- those that capture lineage, by partition.
work AS (
  SELECT
    stats.query_id, stats.operator_id,
    CASE WHEN operators.captures THEN stats.partition END AS partition,
    min(operators.fragment_id) AS fragment_id, bool_or(operators.captures) AS captures,
    CAST(sum(stats.rows_out) AS DOUBLE) AS rows_out,
    CAST(sum(stats.self_ns
      + CASE WHEN inputs.parent_operator_id IS NULL THEN stats.input_wait_ns ELSE 0 END
    ) AS DOUBLE) AS busy_ns
  FROM sys.operator_stats AS stats
  JOIN sys.operators AS operators
    ON stats.query_id = operators.query_id AND stats.operator_id = operators.operator_id
  LEFT JOIN (SELECT DISTINCT query_id, parent_operator_id FROM sys.operators) AS inputs
    ON stats.query_id = inputs.query_id AND stats.operator_id = inputs.parent_operator_id
  WHERE operators.kind <> 'evaluation'
  GROUP BY
    stats.query_id, stats.operator_id, CASE WHEN operators.captures THEN stats.partition END
),
-- What one row, or one tuple, costs in each operator that it comes through.
costs AS (
  SELECT
    work.query_id, work.fragment_id, work.operator_id, work.captures, work.partition,
    path.scan_id, arrived.table_name,
    CASE
      WHEN NOT work.captures AND path.height < coalesce(single.height, path.height + 1)
        THEN work.busy_ns / nullif(work.rows_out, 0)
    END AS ns_of_row,
    work.busy_ns, work.rows_out, queries.sample_rate, sum(arrived.tuples) AS tuples,
    sum(CASE
      WHEN arrived.consumer_id IS NULL THEN queries.rows_returned ELSE arrived.rows_in
    END) AS rows_in
  FROM work
  JOIN sys.queries AS queries ON work.query_id = queries.query_id
  JOIN path ON work.query_id = path.query_id AND work.operator_id = path.operator_id
  LEFT JOIN single ON work.query_id = single.query_id AND path.scan_id = single.scan_id
  JOIN (
    SELECT
      counted.query_id, counted.scan_id, counted.consumer_id, counted.partition,
      counted.table_name, counted.tuples, consumers.rows_in
    FROM (
      SELECT query_id, scan_id, consumer_id, partition, table_name, count(*) AS tuples
      FROM edges GROUP BY query_id, scan_id, consumer_id, partition, table_name
    ) AS counted
    LEFT JOIN (
      SELECT query_id, operator_id, partition, sum(rows_in) AS rows_in
      FROM sys.operator_stats GROUP BY query_id, operator_id, partition
    ) AS consumers
      ON counted.query_id = consumers.query_id AND counted.consumer_id = consumers.operator_id
      AND counted.partition = consumers.partition
  ) AS arrived
    ON work.query_id = arrived.query_id AND path.scan_id = arrived.scan_id
    AND (NOT work.captures
      OR work.operator_id = arrived.consumer_id AND work.partition = arrived.partition)
  GROUP BY
    work.query_id, work.fragment_id, work.operator_id, work.captures, work.partition,
    work.busy_ns, work.rows_out, path.scan_id, path.height, single.height, arrived.table_name,
    queries.sample_rate
),
tuples AS (
  SELECT query_id, scan_id, consumer_id, partition, table_name, row_id, count(*) AS tuples
  FROM edges GROUP BY query_id, scan_id, consumer_id, partition, table_name, row_id
)
-- Of a table that is scanned twice each operator has a record's tuples from both scans: as many as descend
-- from one of them. Where records are sampled, those that are not traced count as the others that are, and
-- there are no fewer tuples than rows that arrived. Those of the operator that captures lineage may be of
-- other tables, too. Where nine of ten rows are left out on the way, as by LIMIT, what an operator spent on
-- them is on no record.
SELECT
  query_id, fragment_id, operator_id, table_name, row_id,
  CAST(round(max(latency_ns)) AS BIGINT) AS latency_ns,
  CASE WHEN captures THEN 'shuffle' ELSE 'computation' END AS kind,
  'apportioned' AS method
FROM (
  SELECT
    query_id, fragment_id, operator_id, captures, table_name, row_id,
    sum(coalesce(
      ns_of_row,
      busy_ns * own_tuples / greatest(
        own_tuples + (tuples - own_tuples) / sample_rate,
        CASE
          WHEN captures THEN rows_in
          WHEN rows_in < rows_out / 10 THEN rows_out
          ELSE least(tuples / sample_rate, rows_in)
        END
      )
    )) AS latency_ns
  FROM (
    SELECT
      tuples.query_id, costs.fragment_id, costs.operator_id, costs.captures, costs.partition,
      tuples.scan_id, tuples.table_name, tuples.row_id, max(costs.ns_of_row) AS ns_of_row,
      max(costs.busy_ns) AS busy_ns, max(costs.sample_rate) AS sample_rate,
      max(costs.tuples) AS tuples, max(costs.rows_in) AS rows_in, max(costs.rows_out) AS rows_out,
      sum(tuples.tuples) AS own_tuples
    FROM tuples
    JOIN costs
      ON tuples.query_id = costs.query_id AND tuples.scan_id = costs.scan_id
      AND tuples.table_name = costs.table_name
      AND (NOT costs.captures
        OR tuples.consumer_id = costs.operator_id AND tuples.partition = costs.partition)
    GROUP BY
      tuples.query_id, costs.fragment_id, costs.operator_id, costs.captures, costs.partition,
      tuples.scan_id, tuples.table_name, tuples.row_id
  ) AS of_tasks
  GROUP BY query_id, fragment_id, operator_id, captures, scan_id, table_name, row_id
) AS of_scans
GROUP BY query_id, fragment_id, operator_id, captures, table_name, row_id
