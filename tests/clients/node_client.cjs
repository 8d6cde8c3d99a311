// What a Node program does with a server, through pg.
//
// Run as `node node_client.cjs PORT`, with pg where Node finds it. Ends with a status other than 0
// at the first thing that is not so.

const assert = require("node:assert/strict");
const { Client, Pool } = require("pg");

const address = { host: "127.0.0.1", port: Number(process.argv[2]), user: "ada", database: "skewer" };
const ENDLESS = "SELECT count(*) FROM generate_series(1, 1000000000000)";

async function valuesGoThereAndBack(client) {
  await client.query(
    "CREATE TABLE everything (b BOOLEAN, i INT, l BIGINT, d DOUBLE PRECISION, n NUMERIC(10, 2), " +
      "v TEXT, y BYTEA, at TIMESTAMPTZ, a INT[])",
  );
  const at = new Date("2024-02-29T12:34:56.789Z");
  const row = [true, -7, "9007199254740993", 0.1, "12.50", "ä 'x' \\ \"y\"", Buffer.from([0, 255]), at, [1, null, 3]];
  const insert = "INSERT INTO everything VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
  assert.equal((await client.query(insert, row)).rowCount, 1);
  assert.equal((await client.query(insert, row.map(() => null))).rowCount, 1);
  const found = await client.query({ text: "SELECT * FROM everything WHERE i = $1", values: [-7], rowMode: "array" });
  assert.deepEqual(found.rows, [row]);
  const nulls = await client.query({ text: "SELECT * FROM everything WHERE i IS NULL", rowMode: "array" });
  assert.deepEqual(nulls.rows, [row.map(() => null)]);
}

async function namedStatementsRunAgain(client) {
  for (let n = 0; n < 5; n++) {
    const { rows } = await client.query({ name: "same", text: "SELECT $1::INT AS same", values: [n] });
    assert.deepEqual(rows, [{ same: n }]);
  }
}

async function scriptsHaveAResultForEachStatement(client) {
  const results = await client.query("CREATE TABLE s (a INT); INSERT INTO s VALUES (1), (2); SELECT sum(a) AS a FROM s");
  assert.deepEqual(results.map((result) => result.command), ["CREATE", "INSERT", "SELECT"]);
  assert.deepEqual(results[2].rows, [{ a: "3" }]);
}

async function errorsHaveCodesAndPlacesAndTheSessionGoesOn(client) {
  await assert.rejects(client.query("SELECT * FORM s"), { code: "42601", position: "10" });
  await assert.rejects(client.query("SELECT nothing FROM s WHERE a = $1", [1]), { code: "42703" });
  await assert.rejects(client.query("SELECT 1 / (a - 1) FROM s"), { code: "22012" });
  assert.equal((await client.query("SELECT 1 AS one")).rows[0].one, "1");
}

async function theProfilerIsThere(client) {
  const report = await client.query("EXPLAIN PROFILE SELECT a, count(*) FROM s GROUP BY a");
  assert.ok(report.rows.some((row) => Object.values(row)[0].includes("Scan s")));
  const { rows } = await client.query("SELECT rows_returned FROM sys.queries WHERE query_id = last_query_id()");
  assert.deepEqual(rows, [{ rows_returned: "2" }]);
}

async function poolsShareTheDatabase() {
  const pool = new Pool({ ...address, max: 3 });
  const sums = await Promise.all([1, 2, 3, 4, 5, 6].map((n) => pool.query("SELECT sum(a) + $1::BIGINT AS n FROM s", [n])));
  assert.deepEqual(sums.map(({ rows }) => Number(rows[0].n)), [4, 5, 6, 7, 8, 9]);
  await pool.end();
}

async function aStatementCanTakeTooLong(client) {
  await client.query("SET statement_timeout = 200");
  await assert.rejects(client.query(ENDLESS), { code: "57014" });
  await client.query("SET statement_timeout = 0");
}

async function main() {
  const client = new Client(address);
  await client.connect();
  for (const check of [
    valuesGoThereAndBack,
    namedStatementsRunAgain,
    scriptsHaveAResultForEachStatement,
    errorsHaveCodesAndPlacesAndTheSessionGoesOn,
    theProfilerIsThere,
    poolsShareTheDatabase,
    aStatementCanTakeTooLong,
  ]) {
    await check(client);
    console.log(`${check.name} ok`);
  }
  await client.end();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
