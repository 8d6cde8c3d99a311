-- The query was not slow, the client was: `slow client`. The result's last task waited for its rows to be taken, for at
-- least a tenth of the query's time. Its cost is that time. Statements that write rows have no reader.
SELECT * FROM sys.operator_findings WHERE detector = 'slow client'
