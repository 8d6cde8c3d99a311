-- Exchanges whose rows would stay on their worker if a table were partitioned by hash of a column: rows were sent
-- between workers by a hash of one column, and the column comes from the scan of that table in the fragment that sends.
-- `bytes` crossed between workers. A join needs both tables partitioned alike. Level `counters` and above.
WITH exchanges AS (
  SELECT
    query_id, exchange_id, sum(CASE WHEN source_worker <> destination_worker THEN bytes END) AS bytes,
    sum(CASE WHEN source_worker <> destination_worker THEN tuples END) AS tuples
  FROM sys.tuples_sent
  GROUP BY query_id, exchange_id
),
operators AS (
  SELECT
    operators.query_id, operators.operator_id, operators.fragment_id, operators.name,
    regexp_match(operators.details, 'Hash\(\[([A-Za-z_][A-Za-z_0-9]*)@\d+\]')[1] AS key, operators.routing,
    -- The operator below the exchange is the top of the fragment that sends.
    lead(operators.fragment_id) OVER (PARTITION BY operators.query_id ORDER BY operators.operator_id) AS source_id,
    operators.table_name, operators.kind, operators.details
  FROM sys.operators AS operators
),
scans AS (
  SELECT query_id, fragment_id, details, table_name
  FROM (
    SELECT *, count(*) OVER (PARTITION BY query_id, fragment_id) AS scans FROM operators WHERE kind = 'scan'
  ) AS of_fragments
  WHERE scans = 1 AND table_name IS NOT NULL
)
SELECT
  operators.query_id, operators.operator_id AS exchange_id, operators.fragment_id, operators.name,
  scans.table_name, operators.key AS column_name, exchanges.tuples, exchanges.bytes
FROM operators
JOIN exchanges ON operators.query_id = exchanges.query_id AND operators.operator_id = exchanges.exchange_id
JOIN scans ON operators.query_id = scans.query_id AND operators.source_id = scans.fragment_id
WHERE operators.routing = 'hash' AND operators.key IS NOT NULL AND exchanges.bytes > 0
  AND regexp_like(scans.details, 'projection=\[([^\]]*, )?' || operators.key || '(,|\])')
