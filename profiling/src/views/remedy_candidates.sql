-- What would have made a query faster whose exchanges loaded partitions unevenly: at most one remedy for each exchange
-- that hashes keys. `sys.operators.remedies` says which do not change the result. NULL keys with at least 5 % of the
-- rows come first, then a key with more rows than a partition has on average, which is split, or else heavy keys get
-- partitions by a map. A unit is a worker, if several took part, else a task. The prediction scales the work of the
-- unit with the most rows to the rows that it would have, with an equal part of the keys that are not heavy. Where
-- rows carry lists, as partial groups of median do, the values in them count, and units have them by their bytes. It
-- counts from 10 ms and from 5 % of the execution. Level `counters` and above.
WITH exchanges AS (
  SELECT
    query_id, operator_id, remedies,
    CAST(row_number() OVER (PARTITION BY query_id ORDER BY operator_id) AS BIGINT) - 1 AS exchange_number
  FROM sys.operators
  WHERE remedies IS NOT NULL
),
heavy AS (
  SELECT
    query_id, exchange_id,
    max(CASE WHEN has_null THEN 0 ELSE weight END) AS heaviest,
    first_value(key ORDER BY has_null, weight DESC, key) AS heaviest_key,
    sum(CASE WHEN has_null THEN weight ELSE 0 END) AS nulls,
    sum(weight) AS all_heavy
  FROM (
    SELECT query_id, exchange_id, key, key_has_null AS has_null, sum(coalesce(list_values, tuples)) AS weight
    FROM sys.key_frequencies
    WHERE input IS NULL AND key_hash IS NOT NULL
    GROUP BY query_id, exchange_id, key, key_has_null
  ) AS all_workers
  GROUP BY query_id, exchange_id
),
lists AS (
  SELECT query_id, exchange_id, CAST(sum(list_values) AS BIGINT) AS list_values
  FROM (
    SELECT query_id, exchange_id, worker_id, max(list_values / list_share) AS list_values
    FROM sys.key_frequencies
    WHERE input IS NULL AND list_share > 0
    GROUP BY query_id, exchange_id, worker_id
  ) AS of_workers
  GROUP BY query_id, exchange_id
),
tasks AS (
  SELECT
    stats.query_id, stats.operator_id, stats.worker_id, stats.partition, stats.rows_out, stats.bytes_out,
    sum(stats.bytes_out) OVER exchange AS all_bytes, tasks.wall_ns,
    min(stats.worker_id) OVER exchange <> max(stats.worker_id) OVER exchange AS has_workers,
    count(*) OVER exchange AS partitions
  FROM sys.operator_stats AS stats
  JOIN sys.task_stats AS tasks
    ON stats.query_id = tasks.query_id AND stats.fragment_id = tasks.fragment_id
      AND stats.worker_id = tasks.worker_id AND stats.partition = tasks.partition
  WINDOW exchange AS (PARTITION BY stats.query_id, stats.operator_id)
),
units AS (
  SELECT
    tasks.query_id, tasks.operator_id, tasks.partitions, lists.list_values IS NOT NULL AS has_lists,
    CAST(sum(
      CASE
        WHEN lists.list_values IS NULL THEN rows_out
        ELSE CAST(lists.list_values AS DOUBLE) * bytes_out / greatest(all_bytes, 1)
      END
    ) AS BIGINT) AS unit_rows,
    max(wall_ns) AS work_ns
  FROM tasks
  LEFT JOIN lists ON tasks.query_id = lists.query_id AND tasks.operator_id = lists.exchange_id
  GROUP BY
    tasks.query_id, tasks.operator_id, tasks.partitions, lists.list_values IS NOT NULL,
    CASE WHEN has_workers THEN worker_id ELSE partition END
),
ranked AS (
  SELECT
    query_id, operator_id, partitions, has_lists, unit_rows, work_ns,
    sum(unit_rows) OVER exchange AS total, count(*) OVER exchange AS units,
    lead(unit_rows) OVER (PARTITION BY query_id, operator_id ORDER BY unit_rows DESC) AS second_rows,
    row_number() OVER (PARTITION BY query_id, operator_id ORDER BY unit_rows DESC) AS place
  FROM units
  WINDOW exchange AS (PARTITION BY query_id, operator_id)
),
loads AS (
  SELECT
    ranked.*, exchanges.exchange_number, heavy.heaviest, heavy.heaviest_key, heavy.nulls,
    greatest(total - heavy.all_heavy, 0) / units AS rest,
    CASE
      WHEN nulls >= 0.05 * total AND strpos(remedies, 'drop NULL') > 0 THEN 'drop NULL'
      WHEN nulls >= 0.05 * total AND strpos(remedies, 'deal NULL') > 0 THEN 'deal NULL'
      WHEN heaviest > total / partitions AND strpos(remedies, 'split') > 0 THEN 'split'
      WHEN strpos(remedies, 'map') > 0 THEN 'map'
    END AS remedy
  FROM ranked
  JOIN exchanges ON ranked.query_id = exchanges.query_id AND ranked.operator_id = exchanges.operator_id
  JOIN heavy ON ranked.query_id = heavy.query_id AND ranked.operator_id = heavy.exchange_id
  WHERE ranked.place = 1 AND ranked.units > 1 AND ranked.unit_rows > 0
),
predictions AS (
  SELECT
    loads.*, CASE WHEN has_lists THEN ' values in lists' ELSE ' rows' END AS counted,
    CASE remedy
      WHEN 'drop NULL' THEN greatest(second_rows, unit_rows - nulls)
      WHEN 'deal NULL' THEN greatest(second_rows, unit_rows - nulls) + nulls / units
      WHEN 'split' THEN greatest(second_rows, unit_rows - heaviest) + heaviest / units
      WHEN 'map' THEN greatest(total / units, heaviest + rest, nulls + rest)
    END AS rows_after
  FROM loads
  WHERE remedy IS NOT NULL
)
SELECT
  predictions.query_id, operator_id AS exchange_id, exchange_number, remedy,
  CASE
    WHEN remedy LIKE '%NULL' THEN 'NULL keys'
    WHEN remedy = 'split' THEN concat('key ', heaviest_key)
    ELSE 'heavy keys'
  END AS subject,
  CASE
    WHEN remedy LIKE '%NULL' THEN
      concat(
        CAST(round(100.0 * nulls / total) AS BIGINT), ' % of ', total, counted, ' of exchange ', operator_id,
        ' have a NULL key and go to one of ', partitions, ' partitions')
    ELSE
      concat(
        CAST(round(100.0 * heaviest / total) AS BIGINT), ' % of ', total, counted, ' of exchange ', operator_id,
        ' have the key ', CASE WHEN heaviest_key = '' THEN 'of empty text' ELSE heaviest_key END, '; one of ', units,
        ' units gets ', unit_rows, ', and would get ', rows_after)
  END AS because,
  total AS rows, CAST(work_ns * (1.0 - CAST(rows_after AS DOUBLE) / unit_rows) AS BIGINT) AS predicted_ns
FROM predictions
JOIN sys.queries AS queries ON predictions.query_id = queries.query_id
WHERE rows_after < unit_rows
  AND work_ns * (1.0 - CAST(rows_after AS DOUBLE) / unit_rows) >= greatest(10000000, 0.05 * queries.execution_ns)
