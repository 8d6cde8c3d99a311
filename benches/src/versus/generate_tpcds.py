"""Writes the tables and queries of TPC-DS for the experiment `versus`, by DuckDB's extension `tpcds`.

Arguments: the scale factor, the directory of Parquet files, the directory of queries.
"""

import glob
import os
import sys

import duckdb
import duckdb_extension_tpcds

scale, tables, queries = sys.argv[1:]
package = os.path.dirname(duckdb_extension_tpcds.__file__)
[extension] = glob.glob(f"{package}/extensions/*/tpcds.duckdb_extension")
connection = duckdb.connect()
connection.execute(f"LOAD '{extension}'")
connection.execute(f"CALL dsdgen(sf = {scale})")
for (name,) in connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall():
    file = f"{tables}/{name}.parquet"
    connection.execute(
        f"COPY {name} TO '{file}' (FORMAT parquet, COMPRESSION lz4_raw, ROW_GROUP_SIZE 122880)"
    )
texts = connection.execute("SELECT query_nr, query FROM tpcds_queries() ORDER BY 1").fetchall()
for number, text in texts:
    with open(f"{queries}/{number:02}.sql", "w", encoding="utf-8") as file:
        file.write(text.strip().rstrip(";"))
