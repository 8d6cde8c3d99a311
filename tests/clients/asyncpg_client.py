"""What a Python program does with a server, through asyncpg: all parameters in binary, all types inferred.

Run as `python3 asyncpg_client.py PORT`. Ends with status 1 at the first thing that is not so.
"""

import asyncio
import datetime
import decimal
import os
import sys

import asyncpg

UTC = datetime.timezone.utc
NEW_YORK = datetime.timezone(datetime.timedelta(hours=-4))
ROWS = [
    (1, "fig", datetime.date(2024, 2, 29), decimal.Decimal("1.50")),
    (2, "a_b", None, decimal.Decimal("20.00")),
    (3, None, datetime.date(2024, 3, 1), None),
]


async def connect(**settings):
    encrypted = os.environ.get("PGSSLMODE", "disable")
    return await asyncpg.connect(
        host="127.0.0.1",
        port=int(sys.argv[1]),
        user="ada",
        database="skewer",
        password=os.environ.get("PGPASSWORD"),
        ssl=None if encrypted == "disable" else encrypted,
        server_settings=settings or None,
    )


async def parameters_stand_in_any_statement():
    client = await connect()
    await client.execute("CREATE TABLE crate (id BIGINT, name TEXT, due DATE, cost NUMERIC(8, 2))")
    await client.executemany("INSERT INTO crate VALUES ($1, $2, $3, $4)", ROWS)
    for query, values, expected in [
        ("SELECT id FROM crate WHERE name = ANY($1::text[])", [["fig", "x"]], [1]),
        ("SELECT id FROM crate WHERE id = ANY($1) ORDER BY id", [[3, 2]], [2, 3]),
        ("SELECT id FROM crate WHERE name = ANY($1)", [["fig"]], [1]),
        ("SELECT id FROM crate WHERE name <> ALL($1)", [["fig"]], [2]),
        ("SELECT id FROM crate WHERE id > ALL($1) ORDER BY id", [[1]], [2, 3]),
        ("SELECT id FROM crate ORDER BY id LIMIT $1 OFFSET $2", [1, 1], [2]),
        ("SELECT id FROM crate WHERE due BETWEEN $1 AND $2", [ROWS[0][2], ROWS[0][2]], [1]),
        ("SELECT id FROM crate WHERE cost IN ($1, $2)", [ROWS[0][3], decimal.Decimal(7)], [1]),
        ("SELECT id FROM crate WHERE name LIKE $1 ESCAPE '/'", ["a/_%"], [2]),
        ("SELECT id FROM crate WHERE (id, name) IN (($1, $2))", [1, "fig"], [1]),
        ("SELECT count(*) FROM generate_series(1, $1)", [1000], [1000]),
        ("SELECT g FROM generate_series(1, $1) AS g ORDER BY g DESC LIMIT $2", [9, 1], [9]),
        ("SELECT coalesce($1, name) FROM crate WHERE id = $2", [None, 1], ["fig"]),
        ("SELECT CASE WHEN id = $1 THEN $2 ELSE name END FROM crate WHERE id < 2", [1, "y"], ["y"]),
        ("SELECT cardinality($1::int[])", [[1, None, 3]], [3]),
        ("SELECT conname FROM pg_catalog.pg_constraint WHERE conrelid = $1 AND contype = $2", [7, "p"], []),
        ("SELECT indexrelid FROM pg_catalog.pg_index WHERE indrelid = $1", [7], []),
    ]:
        found = [row[0] for row in await client.fetch(query, *values)]
        assert found == expected, (query, found)
    await client.execute("CREATE TABLE taken AS SELECT * FROM crate WHERE id < $1", 3)
    assert await client.execute("UPDATE taken SET name = $1, due = $2 WHERE id = $3", "z", ROWS[2][2], 2) == "UPDATE 1"
    assert tuple(await client.fetchrow("SELECT name, due FROM taken WHERE id = 2")) == ("z", ROWS[2][2])
    assert await client.execute("DELETE FROM taken WHERE name = ANY($1)", ["z"]) == "DELETE 1"
    assert await client.execute("INSERT INTO taken (id) SELECT id FROM crate WHERE id >= $1", 2) == "INSERT 0 2"
    plan = await client.fetch("EXPLAIN SELECT * FROM taken WHERE id = $1", 2)
    assert plan, plan
    await client.close()


async def values_go_there_and_back():
    instant = datetime.datetime(2024, 7, 1, 16, 0, 0, 123456, tzinfo=UTC)
    columns = {
        "b": ("BOOLEAN", True),
        "s": ("SMALLINT", -2),
        "i": ("INT", 2**31 - 1),
        "l": ("BIGINT", -(2**63)),
        "r": ("REAL", 0.5),
        "d": ("DOUBLE PRECISION", -1e300),
        "n": ("NUMERIC(12, 3)", decimal.Decimal("-123456789.125")),
        "v": ("TEXT", "it's ä $1 \\ \"quoted\""),
        "y": ("BYTEA", b"\x00\xff'"),
        "dt": ("DATE", datetime.date(1969, 12, 31)),
        "ti": ("TIME", datetime.time(12, 34, 56, 1)),
        "ts": ("TIMESTAMP", datetime.datetime(2024, 2, 29, 23, 59, 59, 999999)),
        "tz": ("TIMESTAMPTZ", instant),
        "a": ("BIGINT[]", [1, None, -3]),
        "t": ("TEXT[]", ["a,b", None, 'say "x"', "{}"]),
        "da": ("DATE[]", [datetime.date(2024, 2, 29), None]),
    }
    client = await connect(timezone="America/New_York")
    definition = ", ".join(f"{name} {kind}" for name, (kind, _) in columns.items())
    await client.execute(f"CREATE TABLE everything ({definition})")
    places = ", ".join(f"${n + 1}" for n in range(len(columns)))
    row = tuple(value for _, value in columns.values())
    await client.execute(f"INSERT INTO everything VALUES ({places})", *row)
    await client.execute(f"INSERT INTO everything VALUES ({places})", *[None] * len(row))
    assert tuple(await client.fetchrow("SELECT * FROM everything WHERE i IS NOT NULL")) == row
    assert tuple(await client.fetchrow("SELECT * FROM everything WHERE i IS NULL")) == (None,) * len(row)
    for name, value in zip(columns, row):
        where = f"SELECT count(*) FROM everything WHERE {name} = $1"
        assert await client.fetchval(where, value) == 1, name
    # A time without zone is one of the session's zone, an instant is none.
    local = datetime.datetime(2024, 7, 1, 12, 0, 0, 123456)
    assert await client.fetchval("SELECT count(*) FROM everything WHERE tz::timestamp = $1", local) == 1
    assert await client.fetchval("SELECT tz = $1::timestamp FROM everything WHERE i > 0", local) is True
    assert await client.fetchval("SELECT tz = $1 FROM everything WHERE i > 0", instant.astimezone(NEW_YORK)) is True
    assert await client.fetchval("SELECT tz::text FROM everything WHERE i > 0")
    await client.close()


async def cursors_and_prepared_statements_go_on():
    client = await connect()
    async with client.transaction():
        count = 0
        async for _ in client.cursor("SELECT value FROM generate_series(1, $1) AS value", 500):
            count += 1
    assert count == 500, count
    prepared = await client.prepare("SELECT id, crate.* FROM crate WHERE id = $1")
    assert [column.name for column in prepared.get_attributes()] == ["id", "id", "name", "due", "cost"]
    for row in ROWS:
        assert tuple(await prepared.fetchrow(row[0])) == (row[0], *row)
    await client.close()


async def pools_use_connections_again():
    address = {"host": "127.0.0.1", "port": int(sys.argv[1]), "user": "ada", "database": "skewer"}
    encrypted = os.environ.get("PGSSLMODE", "disable")
    secret = {"password": os.environ.get("PGPASSWORD"), "ssl": None if encrypted == "disable" else encrypted}
    async with asyncpg.create_pool(**address, **secret, min_size=1, max_size=2) as pool:
        for n in range(5):
            assert await pool.fetchval("SELECT $1::int + 1", n) == n + 1


async def main():
    for check in [
        parameters_stand_in_any_statement,
        values_go_there_and_back,
        cursors_and_prepared_statements_go_on,
        pools_use_connections_again,
    ]:
        await check()
        print(f"{check.__name__} ok", flush=True)


asyncio.run(main())
