-- Tasks that worked at least one and a half times as long as their peers, the other tasks of the fragment, and six
-- robust standard deviations longer than their rows let one expect. Tasks that merely have more rows are in
-- sys.data_size_skew. The cost is what the fragment would end earlier had the task been like its peers: at most what it
-- ended after them, unless it was busy all the time, and what it worked beyond the longest of them. It is at least 10
-- ms and 5 % of the query's time. `cause` gives the account of sys.task_accounts. Of fewer than four tasks only a gross
-- difference tells something: a task whose rows, and no wait for a processor, took four times as long as its peers.
-- Others are `innocent`, and so are tasks that mostly waited for a processor: what is wrong is then the machine, and
-- sys.processor_contention says so. It replaces HybridTune's rule, which sys.hybridtune_straggler_tasks keeps.
SELECT
  found.query_id, 'straggler task' AS detector,
  concat('fragment ', fragment_id, ', partition ', partition, ' on worker ', worker_id) AS subject,
  concat(
    'It worked ', wall_ns / 1000000, ' ms, its peers ', CAST(usual_ns AS BIGINT) / 1000000, ' ms',
    CASE WHEN NOT is_judged THEN ': too few tasks to tell why' END,
    CASE WHEN is_judged AND more_rows_ns >= 0.1 * excess_ns
      THEN concat(', ', CAST(more_rows_ns AS BIGINT) / 1000000, ' ms for more rows') END,
    CASE WHEN is_judged AND slower_rows_ns >= 0.1 * excess_ns
      THEN concat(', ', CAST(slower_rows_ns AS BIGINT) / 1000000, ' ms more processor time for the same rows') END,
    CASE WHEN is_judged AND more_throttled_ns >= 0.1 * excess_ns
      THEN concat(', ', CAST(more_throttled_ns AS BIGINT) / 1000000, ' ms throttled by its cgroup') END,
    CASE WHEN is_judged AND more_queued_ns >= 0.1 * excess_ns
      THEN concat(', ', CAST(more_queued_ns AS BIGINT) / 1000000, ' ms waiting for a processor') END,
    CASE WHEN is_judged AND more_stolen_ns >= 0.1 * excess_ns
      THEN concat(', ', CAST(more_stolen_ns AS BIGINT) / 1000000, ' ms taken by the hypervisor') END,
    CASE WHEN is_judged AND more_blocked_ns >= 0.1 * excess_ns
      THEN concat(', ', CAST(more_blocked_ns AS BIGINT) / 1000000, ' ms waiting for disk, memory or locks') END,
    CASE WHEN is_judged AND unexplained_ns >= 0.1 * excess_ns
      THEN concat(', ', CAST(unexplained_ns AS BIGINT) / 1000000, ' ms not explained') END, '.') AS cause,
  CASE main_cause
    WHEN 'more rows' THEN concat(
      'Spread its rows over more tasks: SELECT * FROM sys.data_size_skew WHERE query_id = ', found.query_id)
    WHEN 'slower rows' THEN
      'A few records may be expensive. Run the query at level records, then ask sys.expensive_inputs.'
    WHEN 'throttled' THEN 'Raise the processor quota of the worker''s cgroup.'
    WHEN 'queued' THEN 'Stop other programs on the worker''s machine, or give the worker fewer threads.'
    WHEN 'stolen' THEN 'Move the worker''s virtual machine to a host with free processors.'
    WHEN 'blocked' THEN concat(
      'A few records may wait for something: run the query at level records. Or the worker has a slow disk or little ',
      'memory: SELECT * FROM sys.worker_accounts WHERE query_id = ', found.query_id)
    ELSE 'Run the query again: what does not repeat was an accident.'
  END AS advice,
  fragment_id, CAST(NULL AS BIGINT) AS operator_id, worker_id, partition, CAST(NULL AS BIGINT) AS exchange_id,
  CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id, CAST(cost_ns AS BIGINT) AS cost_ns,
  score, 6.0 AS threshold, CAST(NULL AS DOUBLE) AS confidence,
  NOT is_judged OR main_cause IN ('queued', 'stolen') AS innocent,
  concat('SELECT * FROM sys.task_accounts WHERE query_id = ', found.query_id, ' AND fragment_id = ', fragment_id,
    ' ORDER BY excess_ns DESC') AS evidence_sql
FROM (
  SELECT
    *, tasks >= 4 OR main_cause IN ('slower rows', 'blocked') AND wall_ns >= 4 * usual_ns AS is_judged,
    CASE
      WHEN ended < last_peer - 0.05 * (ended - started) THEN 0
      WHEN wall_ns >= 0.8 * (ended - started) THEN least(excess_ns, wall_ns - longest_peer_ns)
      ELSE least(excess_ns, wall_ns - longest_peer_ns, ended - last_peer)
    END AS cost_ns
  FROM (
    SELECT
      *, CAST(started_at AS BIGINT) AS started, CAST(ended_at AS BIGINT) AS ended,
      max(CASE WHEN NOT is_off THEN wall_ns END) OVER fragment AS longest_peer_ns,
      max(CASE WHEN NOT is_off THEN CAST(ended_at AS BIGINT) END) OVER fragment AS last_peer
    FROM (
      SELECT
        *, wall_ns >= 1.5 * usual_ns AND (score >= 6 OR tasks < 4) AS is_off
      FROM sys.task_accounts
      WHERE tasks > 1
    ) AS accounts
    WINDOW fragment AS (PARTITION BY query_id, fragment_id)
  ) AS candidates
  WHERE is_off
) AS found
JOIN sys.queries AS queries ON found.query_id = queries.query_id
WHERE cost_ns >= 10000000
  AND cost_ns >= 0.05 * (coalesce(queries.queued_ns, 0) + queries.planning_ns + queries.execution_ns)
