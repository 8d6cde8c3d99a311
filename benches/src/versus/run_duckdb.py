"""Runs DuckDB for the experiment `versus`.

Each line of standard input is a request as JSON, each line of standard output its answer. Times are
seconds; those of the processor are of all threads of this process.
"""

import json
import os
import sys
import time
import warnings

import duckdb

warnings.filterwarnings("ignore")
connection = None
# DuckDB prints the progress of long statements to standard output: only answers go there.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def timed(work):
    """Calls `work` and says what it took."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = work()
    return result, {
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
    }


def open_database(request):
    """Opens a database in a file, or one in memory with views of Parquet files."""
    global connection
    connection = duckdb.connect(request.get("path") or ":memory:")
    connection.execute(f"SET threads = {request['threads']}")
    # As PostgreSQL, Skewer and DataFusion order NULL.
    connection.execute("SET default_null_order = 'nulls_last_on_asc_first_on_desc'")
    if request.get("memory_limit"):
        connection.execute(f"SET memory_limit = '{request['memory_limit']}B'")
    for name, file in request.get("views", []):
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM '{file}'")
    return {"version": duckdb.__version__}


def load(request):
    """Fills tables from Parquet files; when it returns, they are in the database's file."""

    def work():
        for name, file in request["tables"]:
            if request["by"] == "copy":
                connection.execute(f"CREATE TABLE {name} AS SELECT * FROM '{file}' LIMIT 0")
                connection.execute(f"COPY {name} FROM '{file}'")
            else:
                connection.execute(f"CREATE TABLE {name} AS SELECT * FROM '{file}'")
        connection.execute("CHECKPOINT")

    return timed(work)[1]


def query(request):
    """Runs a query to its last row, and writes the rows to a file if asked to."""
    rows, took = timed(lambda: connection.execute(request["sql"]).to_arrow_table())
    if request.get("answer"):
        from pyarrow import ipc

        with ipc.new_file(request["answer"], rows.schema) as file:
            file.write_table(rows)
    return {**took, "rows": rows.num_rows}


def close(_):
    """Writes what is only in the log."""
    connection.close()
    return {}


ACTIONS = {"open": open_database, "load": load, "query": query, "close": close}

# Arrow is loaded with the first result; that is not to be part of a query's time.
duckdb.connect().execute("SELECT 1").to_arrow_table()

for line in sys.stdin:
    request = json.loads(line)
    try:
        answer = ACTIONS[request["do"]](request)
    except Exception as error:  # whatever it is, the experiment reports it
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), file=answers, flush=True)
