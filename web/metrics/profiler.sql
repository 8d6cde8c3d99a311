-- What the profiler keeps of the queries in schema sys, by the worker that recorded it.
-- gauge skewer_profiler_stored_bytes: Bytes in files of schema sys.
-- gauge skewer_profiler_dropped_events: Events that recorders dropped, of the queries in schema sys.
SELECT
  worker_id AS worker, sum(bytes_written) AS skewer_profiler_stored_bytes,
  sum(events_dropped) AS skewer_profiler_dropped_events
FROM sys.profiler_overhead
GROUP BY worker_id
ORDER BY worker_id
