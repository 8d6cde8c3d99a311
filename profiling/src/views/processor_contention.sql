-- Queries whose tasks waited for a processor, not throttled, for at least 10 ms and 5 % of the query's time on the way
-- to its result. `cause` says who had the processors: the process's own threads, other processes of the cluster on the
-- machine, other programs, or the hypervisor. `worker_id` is NULL if all workers waited alike.
SELECT * FROM sys.worker_findings WHERE detector = 'waited for a processor'
