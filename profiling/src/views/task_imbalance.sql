-- How evenly the tasks of each fragment (its partitions) worked: the longest over the mean, what
-- would be saved if all worked equally long, and which task it is that works longest.
SELECT
  query_id, fragment_id, count(*) AS tasks, max(busy_ns) AS max_ns,
  CAST(round(avg(busy_ns)) AS BIGINT) AS mean_ns,
  max(busy_ns) / nullif(avg(busy_ns), 0) AS imbalance,
  max(busy_ns) - CAST(round(avg(busy_ns)) AS BIGINT) AS wasted_ns,
  CAST(median(busy_ns) AS BIGINT) AS median_ns,
  first_value(worker_id ORDER BY busy_ns DESC, worker_id, partition) AS longest_worker,
  first_value(partition ORDER BY busy_ns DESC, worker_id, partition) AS longest_partition
FROM (
  SELECT query_id, fragment_id, worker_id, partition, sum(self_ns) AS busy_ns
  FROM sys.operator_stats
  GROUP BY query_id, fragment_id, worker_id, partition
) AS tasks
GROUP BY query_id, fragment_id
