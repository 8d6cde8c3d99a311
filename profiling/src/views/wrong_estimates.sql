-- Joins of which the planner expected something else: `wrong estimate`. Either the rows that the join returned are
-- off tenfold, at 100,000 rows or more: then its cost is unknown, and nothing shows that it did harm (`innocent`). Or
-- the join built its hash table of the input that turned out at least twice as large as the other, and ten times as
-- large as expected: its cost is the longest task's time to build, less the part that the smaller input would have
-- taken. In a broadcast join each worker builds all rows. Queries that finished.
SELECT * FROM sys.operator_findings WHERE detector = 'wrong estimate'
