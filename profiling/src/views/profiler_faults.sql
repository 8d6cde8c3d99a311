-- What the profiler itself does to a query. `incomplete profile`: it dropped events for lack of memory, so that every
-- number is a lower bound; place is the worker that dropped most. `costly profiling`: recording took at least a tenth
-- of the operators' time, and that part of the execution is its cost. At level `records` that is what the user asked
-- for, and no reason to act.
SELECT * FROM sys.query_findings WHERE detector IN ('incomplete profile', 'costly profiling')
