"""What a Python program does with a server, through psycopg 3.

Run as `python3 psycopg_client.py PORT`. Ends with status 1 at the first thing that is not so.
"""

import datetime
import decimal
import sys
import threading

import psycopg
from psycopg import errors, sql

ADDRESS = {"host": "127.0.0.1", "port": int(sys.argv[1]), "user": "ada", "dbname": "skewer"}
ENDLESS = "SELECT count(*) FROM generate_series(1, 1000000000000)"


def connect(**more):
    return psycopg.connect(**ADDRESS, autocommit=True, **more)


def values_go_there_and_back():
    columns = {
        "b": ("BOOLEAN", True),
        "s": ("SMALLINT", -2),
        "i": ("INT", 2**31 - 1),
        "l": ("BIGINT", -(2**63)),
        "r": ("REAL", 0.5),
        "d": ("DOUBLE PRECISION", -1e300),
        "n": ("NUMERIC(12, 3)", decimal.Decimal("-123456789.125")),
        "v": ("TEXT", "it's ä %s \\ \"quoted\""),
        "y": ("BYTEA", b"\x00\xff'"),
        "dt": ("DATE", datetime.date(1969, 12, 31)),
        "ts": ("TIMESTAMP", datetime.datetime(2024, 2, 29, 23, 59, 59, 999999)),
        "a": ("BIGINT[]", [1, None, -3]),
        "t": ("TEXT[]", ["a,b", None, 'say "x"', "{}"]),
    }
    with connect() as connection:
        definition = ", ".join(f"{name} {kind}" for name, (kind, _) in columns.items())
        connection.execute(f"CREATE TABLE everything ({definition})")
        insert = f"INSERT INTO everything VALUES ({', '.join(['%s'] * len(columns))})"
        row = tuple(value for _, value in columns.values())
        for binary in (False, True):
            with connection.cursor(binary=binary) as cursor:
                cursor.execute(insert.replace("%s", "%b" if binary else "%t"), row)
                assert cursor.rowcount == 1, cursor.rowcount
                cursor.execute(insert, (None,) * len(columns))
                cursor.execute("SELECT * FROM everything WHERE i IS NOT NULL")
                for found in cursor.fetchall():
                    assert found == row, (binary, found)
                cursor.execute("SELECT * FROM everything WHERE i IS NULL LIMIT 1")
                assert cursor.fetchone() == (None,) * len(columns)
        assert connection.execute("SELECT count(*) FROM everything").fetchone() == (4,)


def statements_are_prepared_and_run_again():
    with connect(prepare_threshold=1) as connection:
        connection.execute("CREATE TABLE numbers (id BIGINT, name TEXT)")
        with connection.cursor() as cursor:
            rows = [(n, f"number {n}") for n in range(100)]
            cursor.executemany("INSERT INTO numbers VALUES (%s, %s)", rows)
            assert cursor.rowcount == 100, cursor.rowcount
        for n in range(10):
            found = connection.execute("SELECT name FROM numbers WHERE id = %s", (n,))
            assert found.fetchall() == [(f"number {n}",)]
        many = connection.execute("SELECT sum(id) FROM numbers WHERE id = ANY(%s)", ([1, 2, 3],))
        assert many.fetchone() == (6,)


def pipelines_answer_in_order():
    with connect() as connection, connection.pipeline():
        cursors = [connection.execute("SELECT %s::bigint * 2", (n,)) for n in range(20)]
        assert [cursor.fetchone()[0] for cursor in cursors] == list(range(0, 40, 2))


def copy_goes_both_ways():
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE copied (id BIGINT, note TEXT, amount NUMERIC(9, 2))")
        rows = [(n, None if n % 7 == 0 else f"tab\there, \\ {n}", decimal.Decimal(n) / 4)
                for n in range(5000)]
        with cursor.copy("COPY copied (id, note, amount) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        assert cursor.rowcount == 5000, cursor.rowcount
        with cursor.copy("COPY (SELECT * FROM copied ORDER BY id) TO STDOUT") as copy:
            copy.set_types(["int8", "text", "numeric"])
            assert list(copy.rows()) == rows
        try:
            with cursor.copy("COPY copied FROM STDIN") as copy:
                copy.write_row((1, "x", 1))
                raise KeyError("the program changes its mind")
        except KeyError:
            pass
        assert cursor.execute("SELECT count(*) FROM copied").fetchone() == (5000,)


def rows_are_streamed():
    with connect() as connection, connection.cursor() as cursor:
        rows = cursor.stream("SELECT value FROM generate_series(1, 50000)")
        assert sum(value for (value,) in rows) == 50000 * 50001 // 2


def cursors_of_the_server_are_fetched_from():
    with psycopg.connect(**ADDRESS) as connection:
        for binary in (False, True):
            with connection.cursor(name="numbers from", binary=binary) as cursor:
                cursor.itersize = 100
                query = "SELECT value, value::text AS t FROM generate_series(-9, 10000) WHERE value >= %s ORDER BY value"
                cursor.execute(query, (1,))
                assert [column.name for column in cursor.description][0] == "value"
                assert cursor.fetchmany(2) == [(1, "1"), (2, "2")]
                cursor.scroll(10)
                assert cursor.fetchone() == (13, "13")
                assert sum(value for value, _ in cursor) == sum(range(14, 10001))
                assert cursor.fetchone() is None
        with connection.cursor(name="kept", withhold=True) as cursor:
            cursor.execute("SELECT value FROM generate_series(1, 3)")
            connection.commit()
            assert cursor.fetchall() == [(1,), (2,), (3,)]


def errors_are_of_their_class():
    cases = [
        ("SELECT * FORM numbers", errors.SyntaxError),
        ("SELECT * FROM nothing", errors.UndefinedTable),
        ("SELECT nothing FROM numbers", errors.UndefinedColumn),
        ("SELECT nothing(1)", errors.UndefinedFunction),
        ("EXPLAIN PROFILE SELECT 1 / (id - 5) FROM numbers", errors.DivisionByZero),
        ("SELECT CAST(name AS INT) FROM numbers", errors.InvalidTextRepresentation),
        ("CREATE TABLE numbers (a INT)", errors.DuplicateTable),
        ("SELECT * FROM '/nowhere/to/be/found.csv'", errors.UndefinedFile),
    ]
    with connect() as connection:
        for statement, expected in cases:
            try:
                connection.execute(statement)
            except expected:
                continue
            except psycopg.Error as error:
                raise AssertionError(f"{statement}: {error.sqlstate} {error}") from error
            raise AssertionError(f"{statement} succeeds")


def a_statement_can_be_cancelled():
    with connect() as connection:
        timer = threading.Timer(0.5, connection.cancel)
        timer.start()
        try:
            connection.execute(ENDLESS)
        except errors.QueryCanceled:
            pass
        timer.join()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def a_block_commits_each_statement():
    with psycopg.connect(**ADDRESS) as connection:
        connection.execute("CREATE TABLE block (a INT)")
        connection.execute("INSERT INTO block VALUES (1)")
        connection.commit()
        connection.execute("INSERT INTO block VALUES (2)")
        try:
            connection.rollback()
        except errors.FeatureNotSupported as error:
            assert "INSERT INTO block VALUES (2)" in str(error), error
        else:
            raise AssertionError("a change was undone")


def the_profiler_is_there():
    with connect() as connection:
        report = connection.execute("EXPLAIN PROFILE SELECT name, count(*) FROM numbers GROUP BY name")
        lines = [line for (line,) in report]
        assert any("Scan numbers" in line for line in lines), lines
        query = connection.execute(
            "SELECT sql, rows_returned, started_at FROM sys.queries WHERE query_id = last_query_id()"
        ).fetchone()
        assert query[1] == 100 and query[2].tzinfo is not None, query


def names_are_quoted():
    with connect() as connection:
        name = sql.Identifier('A "strange" name')
        connection.execute(sql.SQL("CREATE TABLE {} (a INT)").format(name))
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'main'")
        assert ('A "strange" name',) in tables.fetchall()


for check in [
    values_go_there_and_back,
    statements_are_prepared_and_run_again,
    pipelines_answer_in_order,
    copy_goes_both_ways,
    rows_are_streamed,
    cursors_of_the_server_are_fetched_from,
    errors_are_of_their_class,
    a_statement_can_be_cancelled,
    a_block_commits_each_statement,
    the_profiler_is_there,
    names_are_quoted,
]:
    check()
    print(f"{check.__name__} ok", flush=True)
