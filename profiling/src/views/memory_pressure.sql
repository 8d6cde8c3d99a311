-- Queries whose tasks waited by themselves while memory was short: at least 100 page faults a second read from disk, or
-- 10 if threads of the machine waited for memory 5 % of the time (PSI). The cost is at most the time in which some
-- thread of the machine waited for memory; it is at least 10 ms and 5 % of the query's time.
SELECT * FROM sys.worker_findings WHERE detector = 'memory pressure'
