-- Joins that return far more rows than they take: at least 100,000, and 1.5 times the rows of the larger input. If
-- one key makes at least a fifth of the result, since many rows of both inputs have it, the finding is `hot join
-- key`, else `join multiplies rows`. The rows of a key in the result are the product of its rows in both inputs,
-- estimated from samples. Its cost is the longest task's time in the join and in the operators of the same fragment
-- above it, by the share of the rows beyond the larger input.
SELECT * FROM sys.operator_findings WHERE detector IN ('hot join key', 'join multiplies rows')
