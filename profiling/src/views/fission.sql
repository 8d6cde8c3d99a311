-- Expressions that wait for each other while processors idle: `operator fission`. A task evaluated expressions for at
-- least half of the query's execution and 100 ms. Either it was alone in its fragment: its cost is what as many tasks
-- as the widest fragment has would save. Or several operators evaluated them, and all but the dearest took a tenth of
-- that time or more: as stages on two processors they take as long as the dearest. Both need processors that were
-- free: all operators worked less than the tasks of the widest fragment could. Source: Hirzel et al., A catalog of
-- stream processing optimizations, ACM Computing Surveys 2014.
SELECT * FROM sys.operator_findings WHERE detector = 'operator fission'
