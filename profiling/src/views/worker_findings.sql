-- Findings about workers and their machines: the rows of sys.straggler_nodes, sys.throttled_workers,
-- sys.processor_contention, sys.memory_pressure and sys.disk_wait together, which one pass over sys.worker_waits makes.
-- A wait is of one worker if that worker's wait alone makes half of what the query would be faster without all of them,
-- and its share of the worker's time is twice that of the other workers. Else `worker_id` is NULL: all workers waited
-- alike. Level `counters` and above.
SELECT
  query_id, detector,
  CASE
    WHEN worker_id IS NOT NULL THEN concat('worker ', worker_id) WHEN others > 0 THEN 'all workers' ELSE 'the query'
  END AS subject,
  concat(what_before, CAST(time_ns AS BIGINT) / 1000000, what_after, CAST(cost_ns AS BIGINT) / 1000000, ' ms longer',
    why, '.') AS cause,
  CASE detector
    WHEN 'throttled worker' THEN
      'Raise the processor quota of its cgroup, or give it fewer threads than the quota allows.'
    WHEN 'slow worker' THEN concat('Give the worker fewer rows, or replace its machine. What is conspicuous about it: ',
      'SELECT * FROM sys.outlier_metrics WHERE query_id = ', query_id)
    WHEN 'memory pressure' THEN
      'Raise the memory limit of the process, or lower --memory-limit so that queries spill earlier.'
    WHEN 'disk wait' THEN
      'Use a faster disk, or leave the system more memory for files. A second run may read from memory.'
    ELSE 'Stop other programs or move them to another machine; run fewer queries at once, or with fewer threads.'
  END AS advice,
  CAST(NULL AS BIGINT) AS fragment_id, CAST(NULL AS BIGINT) AS operator_id, worker_id,
  CAST(NULL AS BIGINT) AS partition, CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name,
  CAST(NULL AS BIGINT) AS row_id, CAST(cost_ns AS BIGINT) AS cost_ns,
  coalesce(score, cost_ns / least_ns) AS score, threshold,
  CAST(NULL AS DOUBLE) AS confidence, false AS innocent,
  concat('SELECT * FROM sys.worker_waits WHERE query_id = ', query_id, ' ORDER BY kind, time_ns DESC') AS evidence_sql
FROM (
  SELECT
    waits.query_id, CASE WHEN waits.is_alone THEN waits.worker_id END AS worker_id, waits.others, waits.least_ns,
    -- Tasks cannot have waited for memory or a disk longer than any thread of the machine did.
    CASE
      WHEN waits.kind <> 'blocked' THEN waits.cost_ns
      WHEN hosts.faults >= 100 OR hosts.memory >= 0.05 AND hosts.faults >= 10
        THEN least(waits.cost_ns, hosts.memory * waits.execution_ns)
      WHEN hosts.bytes >= 1000000 THEN least(waits.cost_ns, hosts.disk * waits.execution_ns)
      ELSE waits.cost_ns
    END AS cost_ns,
    CASE
      WHEN waits.kind = 'throttled' THEN 'throttled worker'
      WHEN waits.kind = 'queued' THEN 'waited for a processor'
      WHEN waits.kind = 'all' AND 2 * waits.more_used_ns >= waits.excess_ns THEN 'slow worker'
      -- A worker that waited for memory, a disk or the hypervisor gets a finding for the wait.
      WHEN waits.kind = 'all' AND (hosts.faults >= 100 OR hosts.memory >= 0.05 AND hosts.faults >= 10
        OR hosts.bytes >= 1000000 OR hosts.steal >= 0.05) THEN NULL
      WHEN hosts.faults >= 100 OR hosts.memory >= 0.05 AND hosts.faults >= 10 THEN 'memory pressure'
      WHEN hosts.bytes >= 1000000 THEN 'disk wait'
      -- The time that the hypervisor takes from a running thread looks as if the thread waited by itself.
      WHEN hosts.steal >= 0.05 THEN 'waited for a processor'
      WHEN waits.kind = 'all' OR waits.is_alone AND waits.even_share >= 0.4 THEN 'slow worker'
    END AS detector,
    CASE WHEN waits.kind = 'all' THEN waits.excess_ns WHEN waits.is_alone THEN waits.time_ns ELSE waits.every_ns END
      AS time_ns,
    CASE WHEN waits.kind = 'all' THEN 'For the same rows its tasks took ' ELSE 'Tasks waited ' END AS what_before,
    CASE waits.kind
      WHEN 'throttled' THEN ' ms together since the cgroup had used up its quota of processor time, and the query took '
      WHEN 'queued' THEN ' ms together for a processor, and the query took '
      WHEN 'all' THEN ' ms more than those of other workers, and the query took '
      ELSE ' ms together by themselves, and the query took '
    END AS what_after,
    CASE
      WHEN waits.kind = 'throttled' THEN concat(': the quota is ', round(hosts.cores, 2), ' cores')
      WHEN waits.kind = 'all' THEN CASE
        WHEN 2 * waits.more_used_ns >= waits.excess_ns THEN ': a processor worked longer on each row'
        ELSE ': most of it waiting for disk, memory or locks, or the process did not run'
      END
      WHEN waits.kind = 'blocked' AND hosts.steal < 0.05 AND hosts.faults < 10 AND hosts.bytes < 1000000
        THEN ': the process did not run or waited for locks; memory, disk and hypervisor did not make it wait'
      WHEN waits.kind = 'blocked' AND (hosts.faults >= 10 OR hosts.bytes >= 1000000) THEN concat(
        ': threads waited for memory ', round(100 * hosts.memory), ' % of the time and for the disk ',
        round(100 * hosts.disk), ' %, ', round(hosts.faults), ' page faults a second read from it')
      WHEN hosts.steal >= 0.05 AND hosts.steal >= hosts.foreign / 2
        THEN concat(': the hypervisor took ', round(hosts.steal, 1), ' of the machine''s ', hosts.machine, ' cores')
      WHEN hosts.foreign >= 0.1 * hosts.machine AND hosts.foreign >= waits.demand + hosts.used - hosts.cores
        THEN concat(': other programs used ', round(hosts.foreign, 1), ' of the machine''s ', hosts.machine, ' cores',
          CASE WHEN waits.others > 0 THEN ', among them other processes of the cluster if they run there' END)
      WHEN waits.demand + hosts.used > hosts.cores
        THEN concat(': its own threads wanted ', round(waits.demand + hosts.used, 1), ' cores and had ',
          round(hosts.cores, 2))
      ELSE ': who had the processors is not known'
    END AS why,
    CASE WHEN waits.kind = 'all' THEN waits.score END AS score,
    CASE WHEN waits.kind = 'all' THEN 3.0 ELSE 1.0 END AS threshold
  FROM (
    SELECT
      rated.query_id, worker_id, kind, time_ns, excess_ns, more_used_ns, every_ns, others, score,
      even_share, execution_ns, least_ns, time_ns / execution_ns AS demand, is_alone,
      CASE
        WHEN kind = 'all' THEN CASE
          WHEN score >= 3 AND 3 * slow_share >= 2 AND coalesce(even_share, 1) >= 0.4 AND 3 * excess_ns >= time_ns
            AND 2 * more_waited_ns < excess_ns THEN gates_ns
        END
        WHEN is_alone THEN least(gates_ns, execution_ns * time_ns / wall_ns)
        WHEN time_ns = longest_ns THEN least(every_gates_ns, execution_ns * every_ns / every_wall_ns)
      END AS cost_ns
    FROM (
      SELECT
        *, kind = 'all' OR every_wall_ns > wall_ns AND 2 * gates_ns >= every_gates_ns
          AND time_ns * (every_wall_ns - wall_ns) >= 2 * wall_ns * (every_ns - time_ns) AS is_alone
      FROM (
        SELECT
          query_id, kind, others, every_wall_ns, every_ns, longest_ns, every_gates_ns, worker['worker_id'] AS worker_id,
          worker['wall_ns'] AS wall_ns, worker['time_ns'] AS time_ns, worker['gates_ns'] AS gates_ns,
          worker['excess_ns'] AS excess_ns, worker['more_used_ns'] AS more_used_ns,
          worker['more_waited_ns'] AS more_waited_ns, worker['slow_share'] AS slow_share,
          worker['even_share'] AS even_share, worker['score'] AS score
        FROM (
          -- Grouped and taken apart again: windows, whose order planning follows, would take longer to plan.
          SELECT
            query_id, kind, count(*) - 1 AS others, sum(wall_ns) AS every_wall_ns,
            sum(time_ns) AS every_ns, max(time_ns) AS longest_ns, sum(every_gates_ns) AS every_gates_ns,
            unnest(array_agg(named_struct(
              'worker_id', worker_id, 'wall_ns', wall_ns, 'time_ns', time_ns, 'gates_ns', gates_ns,
              'excess_ns', excess_ns, 'more_used_ns', more_used_ns, 'more_waited_ns', more_waited_ns,
              'slow_share', slow_share, 'even_share', even_share, 'score', score))) AS worker
          FROM sys.worker_waits
          GROUP BY query_id, kind
        ) AS kinds
      ) AS summed
    ) AS rated
    JOIN (
      SELECT
        query_id, CAST(execution_ns AS DOUBLE) AS execution_ns,
        greatest(0.05 * (coalesce(queued_ns, 0) + planning_ns + execution_ns), 10000000) AS least_ns
      FROM sys.queries
    ) AS queries ON rated.query_id = queries.query_id
  ) AS waits
  LEFT JOIN (
    SELECT
      query_id, worker_id, avg(CASE WHEN metric = 'cpu_share' THEN value END) AS used,
      avg(CASE WHEN metric = 'effective_cores' THEN value END) AS cores,
      avg(CASE WHEN metric = 'machine_cores' THEN value END) AS machine,
      avg(CASE WHEN metric = 'foreign_cpu_share' THEN value END) AS foreign,
      avg(CASE WHEN metric = 'steal_share' THEN value END) AS steal,
      avg(CASE WHEN metric = 'psi_memory_share' THEN value END) AS memory,
      avg(CASE WHEN metric = 'psi_io_share' THEN value END) AS disk,
      avg(CASE WHEN metric = 'major_faults_per_second' THEN value END) AS faults,
      avg(CASE WHEN metric = 'read_bytes_per_second' THEN value END) AS bytes
    FROM sys.worker_metrics
    GROUP BY query_id, worker_id
  ) AS hosts ON waits.query_id = hosts.query_id AND waits.worker_id = hosts.worker_id
) AS found
WHERE detector IS NOT NULL AND cost_ns >= least_ns
