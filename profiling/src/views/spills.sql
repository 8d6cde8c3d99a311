-- Operators that wrote to temporary files: `spilling`. An operator handles a spilled row twice, once when it writes
-- the row and once when it reads it back. So its cost is, in the partition where that is most, the operator's own
-- time by the share of spilled rows in all that it handled. Where no rows are counted, the cost is unknown. An
-- operator that worked less than 10 ms is `innocent`.
SELECT * FROM sys.operator_findings WHERE detector = 'spilling'
