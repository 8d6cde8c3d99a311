-- Queries whose tasks waited by themselves while the disk was busy and memory was not short: threads waited for it 5 %
-- of the time (PSI), or the process read a megabyte a second. The cost is at least 10 ms and 5 % of the query's time.
SELECT * FROM sys.worker_findings WHERE detector = 'disk wait'
