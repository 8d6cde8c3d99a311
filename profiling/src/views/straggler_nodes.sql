-- Workers whose tasks take at least one and a half times as long as other workers' tasks for the same rows, whatever
-- they are given: in fragments that make two thirds of the worker's time. The excess is three standard deviations and
-- costs at least 10 ms and 5 % of the query's time. `cause` says where the excess went. It replaces HybridTune's rule,
-- which sys.hybridtune_straggler_nodes keeps.
SELECT * FROM sys.worker_findings WHERE detector = 'slow worker'
