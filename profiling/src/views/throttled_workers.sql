-- Workers that were throttled since their cgroup had used up its quota of processor time: exact, from the kernel's
-- counters. The cost is what the query would be faster without; it is at least 10 ms and 5 % of the query's time.
SELECT * FROM sys.worker_findings WHERE detector = 'throttled worker'
