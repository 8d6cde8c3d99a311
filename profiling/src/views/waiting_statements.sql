-- Time before a statement ran. `queued statement`: it waited for admission, at least 10 ms and 5 % of its time.
-- `slow planning`: planning took at least 20 ms, and a fifth of the query's time. The cost is that time. All levels.
SELECT * FROM sys.query_findings WHERE detector IN ('queued statement', 'slow planning')
