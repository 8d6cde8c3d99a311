-- Queries whose tasks waited by themselves while memory was short: threads waited for memory 5 % of the time (PSI), or
-- at least 100 page faults a second read from disk. The cost is at least 10 ms and 5 % of the query's time.
SELECT * FROM sys.worker_findings WHERE detector = 'memory pressure'
