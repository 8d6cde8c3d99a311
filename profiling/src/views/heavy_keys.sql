-- Keys that make one partition of an exchange work for all: `heavy key`. The key has more than 1/n of the rows that
-- the exchange sends to n partitions, so that no distribution of whole keys is even, or more than a tenth; and it is
-- most of what its partition has beyond the mean. Its cost is the time that the task with the key worked beyond the
-- mean of all tasks of the fragment: time of processors, where the system tells it. Of several exchanges into a
-- fragment, as below a join, the one with the most rows of its key counts. `sys.key_frequencies` estimates the key's
-- rows. Source: Gedik, Partitioning functions for stateful data parallelism in stream processing, VLDB Journal 2014.
SELECT * FROM sys.key_findings WHERE detector = 'heavy key'
