-- Rows of a table by their row ids, with all columns as they are now.
-- $table IDENTIFIER: the table
-- $row_ids VARCHAR: row ids, separated by commas
SELECT rows._row_id, rows.*
FROM $table AS rows
JOIN (SELECT CAST(unnest(string_to_array($row_ids, ',')) AS BIGINT) AS row_id) AS wanted
  ON rows._row_id = wanted.row_id
ORDER BY rows._row_id
