-- Queries whose tasks waited by themselves while the process read at least a megabyte a second from disk and memory was
-- not short. The cost is at most the time in which some thread of the machine waited for a disk (PSI); it is at least
-- 10 ms and 5 % of the query's time.
SELECT * FROM sys.worker_findings WHERE detector = 'disk wait'
