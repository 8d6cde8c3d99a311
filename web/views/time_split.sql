-- How the elapsed time splits along the critical path: from the end of the result down to the task of each input
-- fragment that ended last; from a task without input to what had ended when it began. Each has the time from the end
-- of the next on, split by its operators' self time; while it is idle, others of the path work. The parts add up.
-- Work is the time on a processor; what a task waited within its calls is a part of its own, if sys.task_stats has it.
-- $query_id BIGINT: the query
WITH RECURSIVE
-- The task of each fragment that ended last.
last_tasks AS (
  SELECT * FROM (
    SELECT
      tasks.*, fragments.parent_fragment_id, inputs.parent_fragment_id IS NULL AS is_leaf,
      row_number() OVER (PARTITION BY tasks.fragment_id ORDER BY ended DESC, worker_id, partition) AS place
    FROM (
      SELECT
        fragment_id, worker_id, partition, min(CAST(first_call_at AS BIGINT)) AS began,
        max(CAST(last_call_at AS BIGINT)) AS ended
      FROM sys.operator_stats WHERE query_id = $query_id
      GROUP BY fragment_id, worker_id, partition
    ) AS tasks
    JOIN sys.fragments AS fragments ON fragments.fragment_id = tasks.fragment_id
    LEFT JOIN (
      SELECT DISTINCT parent_fragment_id FROM sys.fragments WHERE query_id = $query_id
    ) AS inputs ON inputs.parent_fragment_id = tasks.fragment_id
    WHERE fragments.query_id = $query_id
  ) AS ordered
  WHERE place = 1
),
-- What comes after each on the path: the input that ended last, or what ended last before it began.
next_tasks AS (
  SELECT
    below.*, task.fragment_id AS after,
    row_number() OVER (PARTITION BY task.fragment_id ORDER BY below.ended DESC, below.fragment_id) AS rank
  FROM last_tasks AS task
  JOIN last_tasks AS below
    ON below.parent_fragment_id = task.fragment_id OR task.is_leaf AND below.ended <= task.began
),
path AS (
  SELECT CAST(0 AS BIGINT) AS step, fragment_id, worker_id, partition, is_leaf, ended
  FROM last_tasks WHERE parent_fragment_id IS NULL
  UNION ALL
  SELECT
    path.step + 1, below.fragment_id, below.worker_id, below.partition, below.is_leaf,
    least(below.ended, path.ended)
  FROM path
  JOIN next_tasks AS below ON below.after = path.fragment_id AND below.rank = 1
  WHERE NOT path.is_leaf OR below.ended < path.ended
),
-- The operators of these tasks, with times of the task beside their own.
work AS (
  SELECT
    *, least(busy_ns, window_ns) AS worked_ns, window_ns - least(busy_ns, window_ns) AS idle_ns
  FROM (
    SELECT
      *,
      CAST(until_ns - coalesce(
        max(until_ns) OVER (ORDER BY step RANGE BETWEEN 1 FOLLOWING AND 1 FOLLOWING),
        least(greatest(began_ns, planning_ns), until_ns)
      ) AS DOUBLE) AS window_ns
    FROM (
      SELECT
        query.*, path.step, path.fragment_id, path.worker_id, path.partition, path.is_leaf,
        stats.operator_id, stats.self_ns,
        CASE WHEN tasks.cpu_ns IS NOT NULL THEN least(CAST(tasks.cpu_ns AS DOUBLE) / nullif(tasks.wall_ns, 0), 1) END
          AS cpu_part,
        CASE WHEN tasks.cpu_ns IS NOT NULL THEN CAST(tasks.runqueue_ns AS DOUBLE) / nullif(tasks.wall_ns, 0) END
          AS runqueue_part,
        CAST(tasks.throttled_ns AS DOUBLE) / nullif(tasks.wall_ns, 0) AS throttled_part,
        CASE WHEN stats.spilled_bytes > 0 THEN 'spilling' ELSE operators.kind END AS category,
        CASE
          WHEN path.step IS NOT NULL
            THEN least(greatest(path.ended - query.started, query.planning_ns), query.elapsed_ns)
        END AS until_ns,
        min(CAST(stats.first_call_at AS BIGINT)) OVER task - query.started AS began_ns,
        CAST(sum(stats.self_ns) OVER task AS DOUBLE) AS busy_ns,
        max(stats.input_wait_ns) OVER task AS input_wait_ns,
        max(CASE WHEN operators.parent_operator_id IS NULL THEN stats.output_wait_ns ELSE 0 END) OVER task
          AS output_wait_ns,
        row_number() OVER (PARTITION BY path.step ORDER BY stats.self_ns DESC, stats.operator_id) = 1 AS is_first,
        row_number() OVER (ORDER BY path.step, stats.self_ns DESC, stats.operator_id) = 1 AS is_top,
        max(path.step) OVER () AS last_step
      FROM (
        SELECT
          CAST(started_at AS BIGINT) + coalesce(queued_ns, 0) AS started, coalesce(planning_ns, 0) AS planning_ns,
          coalesce(planning_ns, 0) + coalesce(execution_ns, 0) AS elapsed_ns, status
        FROM sys.queries WHERE query_id = $query_id
      ) AS query
      LEFT JOIN path ON true
      LEFT JOIN (
        SELECT * FROM sys.operator_stats WHERE query_id = $query_id
      ) AS stats
        ON stats.fragment_id = path.fragment_id AND stats.worker_id = path.worker_id
          AND stats.partition = path.partition
      LEFT JOIN (
        SELECT operator_id, parent_operator_id, kind FROM sys.operators WHERE query_id = $query_id
      ) AS operators ON operators.operator_id = stats.operator_id
      LEFT JOIN (
        SELECT * FROM sys.task_stats WHERE query_id = $query_id
      ) AS tasks
        ON tasks.fragment_id = path.fragment_id AND tasks.worker_id = path.worker_id
          AND tasks.partition = path.partition
      WINDOW task AS (PARTITION BY path.step)
    ) AS tasks
  ) AS windows
),
-- As much of the work that does not fit into a task's own time fills the gaps of others as there is.
gaps AS (
  SELECT
    *, CASE WHEN runqueue_part IS NOT NULL THEN least(runqueue_part, 1 - cpu_part) END AS waited_part,
    CASE WHEN runqueue_part IS NOT NULL THEN least(coalesce(throttled_part, 0), runqueue_part, 1 - cpu_part) END
      AS quota_part,
    coalesce(least(1, gaps_ns / nullif(more_ns, 0)), 0) AS of_work,
    idle_ns * (1 - coalesce(least(1, more_ns / nullif(gaps_ns, 0)), 0)) AS left_ns
  FROM (
    SELECT
      *, sum(CASE WHEN is_first THEN idle_ns ELSE 0 END) OVER () AS gaps_ns,
      sum(CASE WHEN is_first THEN busy_ns - worked_ns ELSE 0 END) OVER () AS more_ns,
      min(until_ns - window_ns) OVER () AS from_ns
    FROM work
  ) AS totals
),
parts AS (
  SELECT
    CASE part WHEN 'planning' THEN -2 WHEN 'starting' THEN -1 WHEN 'last' THEN last_step + 1 ELSE step END AS step,
    CASE part
      WHEN 'work' THEN category
      WHEN 'starting' THEN CASE WHEN from_ns IS NULL THEN 'not recorded' ELSE 'starting' END
      WHEN 'last' THEN CASE WHEN status = 'finished' THEN 'returning rows' ELSE 'stopping' END
      WHEN 'exchange wait' THEN CASE WHEN is_leaf THEN 'reading' ELSE 'exchange wait' END
      ELSE part
    END AS category,
    CASE WHEN part = 'work' THEN operator_id END AS operator_id,
    CASE WHEN part NOT IN ('planning', 'starting', 'last') THEN fragment_id END AS fragment_id,
    CASE WHEN part NOT IN ('planning', 'starting', 'last') THEN worker_id END AS worker_id,
    CASE WHEN part NOT IN ('planning', 'starting', 'last') THEN partition END AS partition,
    CAST(round(CASE part
      WHEN 'planning' THEN CAST(planning_ns AS DOUBLE)
      WHEN 'starting' THEN coalesce(from_ns, elapsed_ns) - planning_ns
      WHEN 'work' THEN self_ns / nullif(busy_ns, 0) * (worked_ns + (busy_ns - worked_ns) * of_work)
        * coalesce(cpu_part, 1)
      WHEN 'processor wait' THEN (worked_ns + (busy_ns - worked_ns) * of_work) * (waited_part - quota_part)
      WHEN 'throttled' THEN (worked_ns + (busy_ns - worked_ns) * of_work) * quota_part
      WHEN 'blocked' THEN (worked_ns + (busy_ns - worked_ns) * of_work) * (1 - cpu_part - waited_part)
      WHEN 'off processor'
        THEN (worked_ns + (busy_ns - worked_ns) * of_work)
          * CASE WHEN waited_part IS NULL THEN 1 - cpu_part END
      WHEN 'returning rows' THEN least(left_ns, output_wait_ns)
      WHEN 'exchange wait' THEN least(greatest(left_ns - output_wait_ns, 0), input_wait_ns)
      WHEN 'between calls' THEN greatest(left_ns - output_wait_ns - input_wait_ns, 0)
      ELSE elapsed_ns - CASE WHEN step = 0 THEN until_ns END
    END) AS BIGINT) AS ns
  FROM gaps
  CROSS JOIN (
    VALUES
      ('planning'), ('starting'), ('last'), ('work'), ('processor wait'), ('throttled'), ('blocked'), ('off processor'),
      ('returning rows'), ('exchange wait'), ('between calls')
  ) AS names (part)
  WHERE
    part = 'work'
    OR CASE WHEN part IN ('planning', 'starting', 'last') THEN is_top ELSE is_first END
)
SELECT step, category, operator_id, fragment_id, worker_id, partition, ns
FROM parts WHERE ns > 0
UNION ALL
SELECT -3, 'queue', NULL, NULL, NULL, NULL, queued_ns
FROM sys.queries WHERE query_id = $query_id AND queued_ns > 0
ORDER BY step, ns DESC
