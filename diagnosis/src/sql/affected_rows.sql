-- How many result rows were made from the record.
SELECT count(*) AS result_rows FROM forward_trace($query_id, $table_name, $row_id)
