-- Fragments in which one task has more rows than the others: what the rows beyond the median cost, priced at the
-- fragment's usual time for a row. The cost is at most what the task ended after the other tasks, unless it was busy
-- all the time; it is at least 10 ms and 5 % of the query's time. `exchange_id` is the exchange that dealt the rows
-- out, and `cause` names the key that has more of its rows than a task should get, or says that few keys have many
-- rows. Where the rows of a scan differ by no more than a row group of 131,072 rows, row groups are coarse and nobody
-- is to blame: the finding is `innocent`. So it is where an exchange deals out whole batches in turn and has too few
-- rows for a batch of 8,192 rows each. It replaces HybridTune's rule, which sys.hybridtune_data_skew keeps.
SELECT
  found.query_id, 'uneven rows' AS detector,
  concat('fragment ', found.fragment_id, ', partition ', found.partition, ' on worker ', found.worker_id) AS subject,
  concat(
    'Its tasks'' operators had ', rows, ' rows, those of the median task ', CAST(usual_rows AS BIGINT),
    ': the rows beyond cost ', CAST(round(cost_ns / 1000000.0) AS BIGINT), ' ms. ',
    CASE
      WHEN leaf_kind = 'scan' AND is_coarse THEN 'Row groups are coarse: a task reads whole ones.'
      WHEN is_coarse THEN concat(
        'The exchange deals out whole batches in turn, and has only ', all_leaf_rows, ' rows.')
      WHEN leaf_kind = 'scan' THEN concat('It read ', leaf_rows, ' of ', all_leaf_rows, ' rows of ',
        coalesce(table_name, 'its input'), '.')
      WHEN keys.share > 1.0 / tasks THEN concat('About ', CAST(round(100 * keys.share) AS BIGINT),
        ' % of all rows have the key ', keys.key, '.')
      WHEN leaf_skew < 1.5 THEN 'Rows came evenly: an operator made more of them here, as a join does.'
      ELSE 'Few keys have many of the rows.'
    END) AS cause,
  CASE
    WHEN is_coarse THEN 'Nothing is to be done. Larger tables spread more evenly.'
    WHEN leaf_kind = 'scan' THEN 'Spread the table''s rows evenly over workers: REBALANCE.'
    WHEN keys.share > 1.0 / tasks THEN
      'Treat that key by itself or, where rows are grouped, aggregate before the exchange.'
    ELSE 'Choose a key with more values, or aggregate before the exchange.'
  END AS advice,
  found.fragment_id, found.operator_id, found.worker_id, found.partition,
  CASE WHEN leaf_kind = 'exchange' THEN found.operator_id END AS exchange_id,
  table_name, CAST(NULL AS BIGINT) AS row_id, CAST(cost_ns AS BIGINT) AS cost_ns,
  CAST(rows AS DOUBLE) / greatest(usual_rows, 1) AS score, 1.5 AS threshold, CAST(NULL AS DOUBLE) AS confidence,
  coalesce(is_coarse, false) AS innocent,
  concat('SELECT * FROM sys.operator_stats WHERE query_id = ', found.query_id, ' AND fragment_id = ',
    found.fragment_id, ' ORDER BY rows_out DESC') AS evidence_sql
FROM (
  SELECT
    tasks.query_id, tasks.fragment_id, tasks.worker_id, tasks.partition, tasks.rows, tasks.usual_rows, tasks.tasks,
    CASE
      WHEN busy >= 0.8 THEN least(wall_ns * (1 - tasks.usual_rows / tasks.rows), wall_ns - next_wall_ns)
      ELSE least(wall_ns * (1 - tasks.usual_rows / tasks.rows), wall_ns - next_wall_ns, ended - last_other)
    END AS cost_ns,
    leaves.operator_id, leaves.kind AS leaf_kind, leaves.table_name, leaves.rows AS leaf_rows,
    leaves.all_rows AS all_leaf_rows, leaves.skew AS leaf_skew, leaves.is_coarse
  FROM (
    SELECT
      query_id, fragment_id, worker_id, partition, rows, tasks, wall_ns, CAST(ended_at AS BIGINT) AS ended,
      CASE WHEN tasks = 2 THEN CAST(lead(rows) OVER most_rows AS DOUBLE) ELSE usual_rows END AS usual_rows,
      CAST(wall_ns AS DOUBLE) / greatest(CAST(ended_at AS BIGINT) - CAST(started_at AS BIGINT), 1) AS busy,
      lead(wall_ns, 1, 0) OVER most_rows AS next_wall_ns,
      max(CAST(ended_at AS BIGINT)) OVER (
        PARTITION BY query_id, fragment_id ORDER BY rows DESC, worker_id, partition
        ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS last_other,
      row_number() OVER most_rows AS place
    FROM sys.task_accounts
    WINDOW most_rows AS (PARTITION BY query_id, fragment_id ORDER BY rows DESC, worker_id, partition)
  ) AS tasks
  LEFT JOIN (
    -- The input of each fragment whose rows are dealt out most unevenly.
    SELECT
      query_id, fragment_id, operator_id, kind, table_name, rows, all_rows, skew, is_coarse,
      row_number() OVER (PARTITION BY query_id, fragment_id ORDER BY beyond DESC, operator_id) AS place
    FROM (
      SELECT
        operators.query_id, operators.fragment_id, operators.operator_id, operators.kind, operators.table_name,
        max(stats.rows_out) AS rows, sum(stats.rows_out) AS all_rows,
        max(stats.rows_out) - avg(stats.rows_out) AS beyond,
        max(stats.rows_out) / greatest(avg(stats.rows_out), 1) AS skew,
        CASE
          WHEN operators.kind = 'scan' THEN max(stats.rows_out) - median(stats.rows_out) <= 131072
          ELSE operators.routing = 'round robin' AND sum(stats.rows_out) <= 8192 * count(*)
        END AS is_coarse
      FROM sys.operators AS operators
      JOIN sys.operator_stats AS stats
        ON operators.query_id = stats.query_id AND operators.operator_id = stats.operator_id
      WHERE operators.kind IN ('scan', 'exchange')
      GROUP BY
        operators.query_id, operators.fragment_id, operators.operator_id, operators.kind, operators.routing,
        operators.table_name
    ) AS inputs
  ) AS leaves ON tasks.query_id = leaves.query_id AND tasks.fragment_id = leaves.fragment_id AND leaves.place = 1
  WHERE tasks.place = 1 AND tasks.rows >= 1.5 * tasks.usual_rows AND tasks.tasks > 1
) AS found
JOIN sys.queries AS queries ON found.query_id = queries.query_id
LEFT JOIN (
  SELECT
    query_id, exchange_id, max(share) AS share, first_value(key ORDER BY share DESC, key) AS key
  FROM sys.key_frequencies
  WHERE input IS NULL
  GROUP BY query_id, exchange_id
) AS keys ON found.query_id = keys.query_id AND found.operator_id = keys.exchange_id
WHERE cost_ns >= 10000000
  AND cost_ns >= 0.05 * (coalesce(queries.queued_ns, 0) + queries.planning_ns + queries.execution_ns)
