-- Findings about workers and their machines: the rows of sys.straggler_nodes, sys.throttled_workers,
-- sys.processor_contention, sys.memory_pressure and sys.disk_wait together, which one pass over sys.worker_accounts
-- makes. A wait is of one worker if that worker's wait alone makes the query longer, and its share of the worker's time
-- is twice that of the other workers. Else `worker_id` is NULL: all workers waited alike. Level `counters` and above.
SELECT
  query_id, detector,
  CASE
    WHEN is_alone THEN concat('worker ', worker_id) WHEN workers = 1 THEN 'the query' ELSE 'all workers'
  END AS subject,
  CASE detector
    WHEN 'slow worker' THEN concat(
      'Its tasks worked ', CAST(wall_ns AS BIGINT) / 1000000, ' ms, where the other workers would have taken ',
      CAST(usual_ns AS BIGINT) / 1000000, ' ms for the same rows: ', account_ns / 1000000, account)
    WHEN 'throttled worker' THEN concat(
      'Its cgroup had used up its quota of processor time for ', CAST(wait_ns AS BIGINT) / 1000000,
      ' ms of its tasks'' time, ',
      'and the query took ', CAST(cost_ns AS BIGINT) / 1000000, ' ms longer. It may use ', round(effective_cores, 2),
      ' cores.')
    WHEN 'waited for a processor' THEN concat(
      'Tasks waited ', CAST(wait_ns AS BIGINT) / 1000000, ' ms for a processor, and the query took ',
      CAST(cost_ns AS BIGINT) / 1000000, ' ms longer: ',
      CASE reason
        WHEN 'hypervisor' THEN concat('the hypervisor took ', round(steal_share, 1), ' cores from the machine.')
        WHEN 'cluster' THEN concat(
          'other processes of the cluster on the machine used ', round(cluster_share, 1), ' of its ',
          round(machine_cores), ' cores.')
        WHEN 'foreign' THEN concat(
          'other programs used ', round(foreign_share, 1), ' of the machine''s ', round(machine_cores), ' cores.')
        WHEN 'own' THEN concat(
          'its own threads wanted ', round(demand, 1), ' cores and had ', round(effective_cores, 2), '.')
        ELSE 'it is not known who had the processors.'
      END)
    WHEN 'memory pressure' THEN concat(
      'Tasks waited ', CAST(wait_ns AS BIGINT) / 1000000, ' ms while memory was short, and the query took ',
      CAST(cost_ns AS BIGINT) / 1000000,
      ' ms longer. Threads waited for memory ', round(100 * psi_memory_share), ' % of the time; ',
      round(major_faults_per_second), ' page faults a second read from disk.')
    ELSE concat(
      'Tasks waited ', CAST(wait_ns AS BIGINT) / 1000000, ' ms while the disk was busy, and the query took ',
      CAST(cost_ns AS BIGINT) / 1000000,
      ' ms longer. The process read ', round(read_bytes_per_second / 1000000.0, 1), ' MB a second.')
  END AS cause,
  CASE detector
    WHEN 'slow worker' THEN concat(
      'Look at its machine: SELECT * FROM sys.outlier_metrics WHERE query_id = ', query_id,
      '. Give the worker fewer rows, or replace it.')
    WHEN 'throttled worker' THEN
      'Raise the processor quota of its cgroup, or give it fewer threads than the quota allows.'
    WHEN 'waited for a processor' THEN CASE reason
      WHEN 'hypervisor' THEN 'Move the virtual machine to a host with free processors.'
      WHEN 'cluster' THEN 'Run fewer processes of the cluster on the machine, or give each fewer threads.'
      WHEN 'own' THEN 'Run fewer queries at once, or give the process more cores.'
      ELSE 'Stop the other programs or move them to another machine, and run the query again.'
    END
    WHEN 'memory pressure' THEN
      'Raise the memory limit of the process, or lower --memory-limit so that queries spill earlier.'
    ELSE 'Use a faster disk, or leave the system more memory for files. A second run may read from memory.'
  END AS advice,
  CAST(NULL AS BIGINT) AS fragment_id, CAST(NULL AS BIGINT) AS operator_id,
  CASE WHEN is_alone THEN worker_id END AS worker_id, CAST(NULL AS BIGINT) AS partition,
  CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id,
  CAST(cost_ns AS BIGINT) AS cost_ns,
  CASE WHEN detector = 'slow worker' THEN score ELSE cost_ns / greatest(0.05 * elapsed_ns, 10000000) END AS score,
  CASE WHEN detector = 'slow worker' THEN 3.0 ELSE 1.0 END AS threshold,
  CAST(NULL AS DOUBLE) AS confidence, false AS innocent,
  concat('SELECT * FROM sys.worker_accounts WHERE query_id = ', query_id, ' ORDER BY wall_ns DESC') AS evidence_sql
FROM (
  SELECT
    *,
    CASE
      WHEN detector <> 'waited for a processor' THEN NULL
      WHEN steal_share >= 0.05 AND steal_share >= greatest(cluster_share, foreign_share, surplus) THEN 'hypervisor'
      WHEN cluster_share >= 0.05 AND cluster_share >= greatest(foreign_share, surplus) THEN 'cluster'
      WHEN foreign_share >= 0.05 AND foreign_share >= coalesce(surplus, 0) THEN 'foreign'
      WHEN surplus > 0 THEN 'own'
    END AS reason,
    CASE
      WHEN 2 * more_throttled_ns >= excess_ns THEN ' ms throttled by its cgroup.'
      WHEN 2 * more_queued_ns >= excess_ns THEN ' ms waiting for a processor.'
      WHEN 2 * more_blocked_ns >= excess_ns THEN ' ms waiting for disk, memory or locks.'
      WHEN 2 * slower_rows_ns >= excess_ns THEN ' ms more processor time for the same rows.'
      ELSE ' ms for several causes.'
    END AS account,
    CAST(
      CASE
        WHEN 2 * more_throttled_ns >= excess_ns THEN more_throttled_ns
        WHEN 2 * more_queued_ns >= excess_ns THEN more_queued_ns
        WHEN 2 * more_blocked_ns >= excess_ns THEN more_blocked_ns
        WHEN 2 * slower_rows_ns >= excess_ns THEN slower_rows_ns
        ELSE excess_ns
      END AS BIGINT) AS account_ns
  FROM (
    SELECT
      *, row_number() OVER (PARTITION BY query_id, detector, is_alone ORDER BY wait_ns DESC, worker_id) AS place
    FROM (
      SELECT
        *,
        CASE
          WHEN detector = 'slow worker' THEN CASE
            WHEN score >= 3 AND 3 * slow_share >= 2 AND excess_ns >= 0.5 * usual_ns THEN slow_gates_ns
          END
          WHEN is_alone THEN
            least(alone_ns, execution_ns * CAST(wait_ns AS DOUBLE) / greatest(wall_ns, 1), stalled_ns)
          ELSE least(every_ns, execution_ns * CAST(every_wait_ns AS DOUBLE) / greatest(every_wall_ns, 1), stalled_ns)
        END AS cost_ns
      FROM (
        SELECT
          *,
          -- The worker's share of waiting is twice that of the others, and it alone makes half of the delay.
          detector = 'slow worker' OR coalesce(
            2 * alone_ns >= every_ns AND every_wall_ns > wall_ns
              AND wait_ns * CAST(every_wall_ns - wall_ns AS DOUBLE) >= 2.0 * wall_ns * (every_wait_ns - wait_ns),
            false) AS is_alone
        FROM (
          SELECT
            *,
            CASE detector
              WHEN 'slow worker' THEN excess_ns WHEN 'throttled worker' THEN throttled_ns
              WHEN 'waited for a processor' THEN queued_ns + stolen * blocked_ns ELSE (1 - stolen) * blocked_ns
            END AS wait_ns,
            CASE detector
              WHEN 'throttled worker' THEN every_throttled_ns WHEN 'waited for a processor' THEN every_queued_ns
              ELSE every_blocked_ns
            END AS every_wait_ns,
            CASE detector
              WHEN 'slow worker' THEN slow_gates_ns WHEN 'throttled worker' THEN throttled_gates_ns
              WHEN 'waited for a processor' THEN queued_gates_ns + stolen * blocked_gates_ns
              ELSE (1 - stolen) * blocked_gates_ns
            END AS alone_ns,
            CASE detector
              WHEN 'throttled worker' THEN every_throttled_gates_ns
              WHEN 'waited for a processor' THEN every_queued_gates_ns
              ELSE every_blocked_gates_ns
            END AS every_ns,
            -- Tasks cannot have waited for memory or a disk longer than any thread of the machine did.
            CASE detector
              WHEN 'memory pressure' THEN psi_memory_share * execution_ns
              WHEN 'disk wait' THEN psi_io_share * execution_ns
            END AS stalled_ns
          FROM (
            SELECT
              accounts.*,
              -- The share of the time blocked in which the hypervisor had taken the processor.
              coalesce(
                least(
                  accounts.steal_share * accounts.cpu_ns
                    / ((accounts.cpu_share + accounts.foreign_cpu_share) * accounts.blocked_ns),
                  1.0),
                0.0) AS stolen,
              sum(accounts.wall_ns) OVER query AS every_wall_ns,
              sum(accounts.throttled_ns) OVER query AS every_throttled_ns,
              sum(accounts.queued_ns) OVER query AS every_queued_ns,
              sum(accounts.blocked_ns) OVER query AS every_blocked_ns,
              sum(accounts.all_throttled_ns) OVER query AS every_throttled_gates_ns,
              sum(accounts.all_queued_ns) OVER query AS every_queued_gates_ns,
              sum(accounts.all_blocked_ns) OVER query AS every_blocked_gates_ns,
              sum(accounts.cpu_share) OVER host - accounts.cpu_share AS cluster_share,
              greatest(
                accounts.foreign_cpu_share - sum(accounts.cpu_share) OVER host + accounts.cpu_share, 0.0)
                AS foreign_share,
              accounts.cpu_share + CAST(accounts.queued_ns AS DOUBLE) / greatest(accounts.execution_ns, 1) AS demand,
              accounts.cpu_share + CAST(accounts.queued_ns AS DOUBLE) / greatest(accounts.execution_ns, 1)
                - accounts.effective_cores AS surplus
            FROM sys.worker_accounts AS accounts
            LEFT JOIN sys.workers AS workers
              ON accounts.query_id = workers.query_id AND accounts.worker_id = workers.worker_id
            WINDOW
              query AS (PARTITION BY accounts.query_id),
              -- Addresses of one machine; the master has none.
              host AS (
                PARTITION BY accounts.query_id, CASE
                  WHEN workers.address LIKE '127.%' OR workers.address = 'in process' THEN 'here'
                  ELSE split_part(workers.address, ':', 1)
                END)
          ) AS counted
          CROSS JOIN (
            VALUES ('slow worker'), ('throttled worker'), ('waited for a processor'), ('memory pressure'), ('disk wait')
          ) AS kinds (detector)
        ) AS waits
      ) AS rated
    ) AS priced
  ) AS placed
  WHERE cost_ns >= 10000000 AND cost_ns >= 0.05 * elapsed_ns AND (is_alone OR place = 1)
    AND CASE detector
      WHEN 'memory pressure' THEN major_faults_per_second >= CASE WHEN psi_memory_share >= 0.05 THEN 10 ELSE 100 END
      WHEN 'disk wait' THEN read_bytes_per_second >= 1000000
        AND coalesce(psi_memory_share, 0) < 0.05 AND coalesce(major_faults_per_second, 0) < 100
      ELSE true
    END
) AS explained
