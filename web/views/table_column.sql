-- The columns of a table as it is now.
-- $table_name VARCHAR: the table, as in sys.record_latency
SELECT column_name, data_type
FROM information_schema.columns
WHERE table_schema || '.' || table_name = $table_name
ORDER BY ordinal_position
