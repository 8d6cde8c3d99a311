-- Keys that say nothing, with many rows: `NULL keys`. At least 5 % of the rows of an exchange have the key NULL, or one
-- that stands for a missing value: empty text, 0, -1, unknown. They all go to one partition, and a join finds no
-- partner for NULL. Its cost is what the task with these rows would work less without them, until another task is
-- the longest: time of processors, where the system tells it. A key 0 with more than 1/n of the rows of n partitions
-- is a `heavy key` instead, since 0 may be a value like any other.
SELECT * FROM sys.key_findings WHERE detector = 'NULL keys'
