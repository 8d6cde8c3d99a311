-- Workers whose tasks take at least one and a half times as long as other workers' tasks for the same rows, in
-- fragments that make two thirds of the worker's time. The excess is three standard deviations and costs at least 10 ms
-- and 5 % of the query's time. Or a worker's tasks all waited by themselves, neither memory nor disk nor hypervisor
-- made them wait, and other workers did not wait. `cause` says where the excess went. A worker that mostly waited for a
-- processor is in sys.processor_contention or sys.throttled_workers instead. It replaces HybridTune's rule, which
-- sys.hybridtune_straggler_nodes keeps.
SELECT * FROM sys.worker_findings WHERE detector = 'slow worker'
