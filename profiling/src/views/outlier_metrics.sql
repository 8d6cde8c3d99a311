-- Readings of a worker that are off those of the other workers while a query ran: evidence for other findings, no
-- diagnosis. The mean, and the highest reading, is more than 6 robust standard deviations (at least 5 % of the median)
-- off the median of all workers, and off by more than a reading that matters. It needs three workers; the master, whose
-- work is another, is not compared. Rows whose `query_id` is NULL are about nodes in the last 64 seconds: energy of a
-- metric's oscillation in three bands of frequency (periods from 16 to 64, 5 to 16 and 2 to 5 seconds). It replaces
-- HybridTune's rule, which sys.hybridtune_outlier_metrics keeps.
SELECT
  query_id, 'outlier metric' AS detector, concat('worker ', worker_id, ', ', metric) AS subject,
  concat('Its ', feature, ' of ', metric, ' is ', round(reading, 3), ', the workers'' median ', round(usual, 3), '.')
    AS cause,
  'This is evidence: see what else is said about the worker.' AS advice,
  CAST(NULL AS BIGINT) AS fragment_id, CAST(NULL AS BIGINT) AS operator_id, worker_id,
  CAST(NULL AS BIGINT) AS partition,
  CAST(NULL AS BIGINT) AS exchange_id, CAST(NULL AS VARCHAR) AS table_name, CAST(NULL AS BIGINT) AS row_id,
  CAST(NULL AS BIGINT) AS cost_ns, off AS score, 6.0 AS threshold, CAST(NULL AS DOUBLE) AS confidence,
  true AS innocent,
  CASE
    WHEN query_id IS NULL THEN concat('SELECT * FROM sys.node_metrics WHERE metric = ''', metric, ''' ORDER BY at DESC')
    ELSE concat('SELECT * FROM sys.worker_metrics WHERE query_id = ', query_id, ' AND metric = ''', metric, '''')
  END AS evidence_sql
FROM (
  SELECT
    *, deviation / greatest(
      1.4826 * median(deviation) OVER (PARTITION BY query_id, metric, feature), 0.05 * abs(usual), least_off) AS off
  FROM (
    SELECT
      *, abs(reading - usual) AS deviation,
      CASE
        WHEN metric LIKE '%_share' OR metric LIKE '%_cores' THEN 0.02
        WHEN metric LIKE '%bytes%' THEN 2000000.0
        ELSE 2.0
      END AS least_off
    FROM (
      SELECT
        *, median(reading) OVER (PARTITION BY query_id, metric, feature) AS usual,
        count(*) OVER (PARTITION BY query_id, metric, feature) AS workers
      FROM (
        SELECT query_id, worker_id, metric, 'mean' AS feature, avg(value) AS reading
        FROM sys.worker_metrics
        WHERE worker_id > 0 AND metric NOT IN ('machine_cores', 'memory_limit_bytes')
        GROUP BY query_id, worker_id, metric
        UNION ALL
        SELECT query_id, worker_id, metric, 'highest reading', max(value)
        FROM sys.worker_metrics
        WHERE worker_id > 0 AND metric NOT IN ('machine_cores', 'memory_limit_bytes')
        GROUP BY query_id, worker_id, metric
        UNION ALL
        SELECT
          CAST(NULL AS BIGINT), worker_id, metric,
          CASE WHEN cycles <= 4 THEN 'slow' WHEN cycles <= 12 THEN 'middle' ELSE 'fast' END || ' oscillation',
          sqrt(sum(real_part * real_part + imaginary_part * imaginary_part))
        FROM (
          SELECT
            worker_id, metric, cycles, sum(reading * cos(2 * pi() * cycles * second / 64)) / 32 AS real_part,
            sum(reading * sin(2 * pi() * cycles * second / 64)) / 32 AS imaginary_part
          FROM (
            SELECT worker_id, metric, second, avg(value) AS reading
            FROM (
              SELECT
                worker_id, metric, value,
                (CAST(max(at) OVER () AS BIGINT) - CAST(at AS BIGINT)) / 1000000000 AS second
              FROM sys.node_metrics
              WHERE seconds < 30 AND worker_id > 0
            ) AS recent
            WHERE second < 64
            GROUP BY worker_id, metric, second
          ) AS seconds
          CROSS JOIN generate_series(1, 31) AS frequencies (cycles)
          GROUP BY worker_id, metric, cycles
          HAVING count(*) = 64
        ) AS spectrum
        GROUP BY worker_id, metric, CASE WHEN cycles <= 4 THEN 'slow' WHEN cycles <= 12 THEN 'middle' ELSE 'fast' END
      ) AS features
    ) AS compared
  ) AS deviations
) AS scored
WHERE workers >= 3 AND off > 6
