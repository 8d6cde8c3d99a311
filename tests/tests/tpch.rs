//! The 22 queries of TPC-H give the same rows, names and types at every profile level, and on
//! several workers.
//!
//! On worker processes at scale factor 0.1, which takes a debug build some three minutes; at any
//! other by a command:
//!
//! ```sh
//! SKEWER_TPCH_SCALE=1 cargo test --release -p skewer-tests --test tpch three_processes
//! ```

use std::fs::File;
use std::path::Path;

use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, SchemaRef};
use datafusion::arrow::record_batch::RecordBatchReader;
use datafusion::parquet::arrow::ArrowWriter;
use skewer::{Database, ProfileLevel, Session};
use skewer_storage::StorageOptions;
use skewer_tests::cluster::Cluster;
use skewer_tests::contents::lines;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen::q_and_a::queries;
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

/// 30,000 lines of orders: every query has something to do, and a debug build does it in seconds.
const SMALL: f64 = 0.005;

/// 600,000 lines of orders, for workers that are processes.
const SCALE: f64 = 0.1;

/// `SKEWER_TPCH_SCALE=1` runs all of them at another scale.
fn scale_or(default: f64) -> f64 {
    let chosen = std::env::var("SKEWER_TPCH_SCALE").ok();
    chosen.map_or(default, |scale| scale.parse().expect("a number"))
}

fn tables(scale: f64) -> Vec<(&'static str, Box<dyn RecordBatchReader>)> {
    vec![
        (
            "region",
            Box::new(RegionArrow::new(RegionGenerator::new(scale, 1, 1))),
        ),
        (
            "nation",
            Box::new(NationArrow::new(NationGenerator::new(scale, 1, 1))),
        ),
        (
            "supplier",
            Box::new(SupplierArrow::new(SupplierGenerator::new(scale, 1, 1))),
        ),
        (
            "part",
            Box::new(PartArrow::new(PartGenerator::new(scale, 1, 1))),
        ),
        (
            "partsupp",
            Box::new(PartSuppArrow::new(PartSuppGenerator::new(scale, 1, 1))),
        ),
        (
            "customer",
            Box::new(CustomerArrow::new(CustomerGenerator::new(scale, 1, 1))),
        ),
        (
            "orders",
            Box::new(OrderArrow::new(OrderGenerator::new(scale, 1, 1))),
        ),
        (
            "lineitem",
            Box::new(LineItemArrow::new(LineItemGenerator::new(scale, 1, 1))),
        ),
    ]
}

fn write_parquet(path: &Path, reader: Box<dyn RecordBatchReader>) {
    let mut writer =
        ArrowWriter::try_new(File::create(path).unwrap(), reader.schema(), None).unwrap();
    for batch in reader {
        writer.write(&batch.unwrap()).unwrap();
    }
    writer.close().unwrap();
}

async fn run(session: &Session, sql: &str) -> (SchemaRef, Vec<RecordBatch>) {
    let stream = session
        .sql(sql)
        .await
        .unwrap_or_else(|e| panic!("{sql}\n{e}"));
    let schema = stream.schema();
    let batches = stream
        .collect()
        .await
        .unwrap_or_else(|e| panic!("{sql}\n{e}"));
    (schema, batches)
}

/// The columns that the last ORDER BY of a query names, as positions in its result.
fn order_columns(sql: &str, schema: &SchemaRef) -> Vec<usize> {
    let Some(position) = sql.rfind("order by") else {
        return Vec::new();
    };
    let keys = sql[position + "order by".len()..]
        .split("limit")
        .next()
        .unwrap();
    let keys = keys
        .split(',')
        .map(|key| key.trim().trim_end_matches(" desc").trim());
    keys.map(|key| {
        let column = schema.index_of(key);
        column.unwrap_or_else(|_| panic!("no column {key} in {sql}"))
    })
    .collect()
}

/// A query's result, in a form in which two results are the same if and only if SQL says so:
/// the rows as a set, and the sequence of what they are ordered by.
#[derive(Debug, PartialEq)]
struct Answer {
    schema: SchemaRef,
    rows: Vec<String>,
    order: Vec<String>,
}

async fn answer(session: &Session, sql: &str) -> Answer {
    let (schema, batches) = run(session, sql).await;
    let mut rows = lines(&batches).unwrap();
    rows.sort();
    let keys = order_columns(sql, &schema);
    let order: Vec<_> = batches
        .iter()
        .map(|batch| batch.project(&keys).unwrap())
        .collect();
    let order = if keys.is_empty() {
        Vec::new()
    } else {
        lines(&order).unwrap()
    };
    Answer {
        schema,
        rows,
        order,
    }
}

/// What the specification's validation puts into the templates; a smaller sum of quantities in
/// query 18 and a larger share in query 11, for a small scale.
const VALUES: [&[&str]; 22] = [
    &["90"],
    &["15", "BRASS", "EUROPE"],
    &["BUILDING", "1995-03-15"],
    &["1993-07-01"],
    &["ASIA", "1994-01-01"],
    &["1994-01-01", "0.06", "24"],
    &["FRANCE", "GERMANY"],
    &["BRAZIL", "AMERICA", "ECONOMY ANODIZED STEEL"],
    &["green"],
    &["1993-10-01"],
    &["GERMANY", "0.01"],
    &["MAIL", "SHIP", "1994-01-01"],
    &["special", "requests"],
    &["1995-09-01"],
    &["1996-01-01"],
    &[
        "Brand#45",
        "MEDIUM POLISHED",
        "49",
        "14",
        "23",
        "45",
        "19",
        "3",
        "36",
        "9",
    ],
    &["Brand#23", "MED BOX"],
    &["220"],
    &["Brand#12", "Brand#23", "Brand#34", "1", "10", "20"],
    &["forest", "1994-01-01", "CANADA"],
    &["SAUDI ARABIA"],
    &["13", "31", "23", "29", "30", "18", "17"],
];

/// The query's statements: what comes before it, the query, what comes after it.
fn statements(number: i32) -> (Vec<String>, String, Vec<String>) {
    // The template's stream number.
    let text = queries::query(number)
        .unwrap()
        .replace("revenue:s", "revenue0");
    let mut text = text.replace(" day (3)", " day");
    for (position, value) in VALUES[number as usize - 1].iter().enumerate().rev() {
        text = text.replace(&format!(":{}", position + 1), value);
    }
    let mut statements: Vec<_> = skewer::split(&text)
        .into_iter()
        .map(|statement| statement.sql)
        .collect();
    let query = statements.iter().position(|sql| {
        let sql = sql.trim_start();
        sql.starts_with("select") || sql.starts_with("with")
    });
    let after = statements.split_off(query.unwrap() + 1);
    let query = statements.pop().unwrap();
    (statements, query, after)
}

/// Sessions of databases that have the tables.
async fn imported(databases: &[Database], scale: f64) -> Vec<Session> {
    let scratch = tempfile::tempdir().unwrap();
    let sessions: Vec<_> = databases.iter().map(Database::session).collect();
    for (table, reader) in tables(scale) {
        let path = scratch.path().join(format!("{table}.parquet"));
        write_parquet(&path, reader);
        for session in &sessions {
            let sql = format!("CREATE TABLE {table} AS SELECT * FROM '{}'", path.display());
            run(session, &sql).await;
        }
    }
    sessions
}

/// The queries on three workers, whose plans are distributed, against one worker.
#[tokio::test]
async fn tpch_queries_give_the_same_on_three_workers() {
    let builder = || Database::builder().worker_threads(2);
    // Several segments of each of the larger tables: every worker owns some.
    let segments = StorageOptions {
        segment_rows: 4000,
        ..StorageOptions::default()
    };
    let one = builder().build().unwrap();
    let three = builder().workers(3).storage_options(segments);
    let three = three.build().unwrap();
    agree_when_distributed(one, three, "3", scale_or(SMALL)).await;
}

/// The queries on three worker processes, which keep the rows, against one process.
#[tokio::test(flavor = "multi_thread")]
async fn tpch_queries_give_the_same_on_three_processes() {
    let one = Database::builder().worker_threads(2).build().unwrap();
    let cluster = Cluster::start(3);
    // The master gathers what the three return.
    let three = cluster.database().clone();
    agree_when_distributed(one, three, "4", scale_or(SCALE)).await;
}

/// The queries return in `three` what they return in `one`, and are run by `workers` workers.
async fn agree_when_distributed(one: Database, three: Database, workers: &str, scale: f64) {
    let [one, three] = &imported(&[one, three], scale).await[..] else {
        panic!("two sessions");
    };
    run(one, "SET profile.level = 'off'").await;
    for number in 1..=22 {
        let (before, query, after) = statements(number);
        for sql in &before {
            run(one, sql).await;
            run(three, sql).await;
        }
        let expected = answer(one, &query).await;
        for level in [ProfileLevel::Counters, ProfileLevel::Records] {
            run(three, &format!("SET profile.level = '{level}'")).await;
            let given = answer(three, &query).await;
            assert_eq!(expected, given, "query {number} at level {level}");
            let took_part = "SELECT count(DISTINCT worker_id) FROM sys.operator_stats
                             WHERE query_id = last_query_id()";
            let (_, took_part) = run(three, took_part).await;
            assert_eq!(
                lines(&took_part).unwrap(),
                [workers],
                "query {number} at level {level}"
            );
        }
        for sql in &after {
            run(one, sql).await;
            run(three, sql).await;
        }
    }
}

/// The limit under which joins spill, in bytes at scale factor 1.
const MEMORY: f64 = 1e8;

/// Some batches of all columns take what they take at any scale.
const LEAST_MEMORY: f64 = 4e6;

#[tokio::test]
async fn tpch_queries_give_the_same_with_little_memory() {
    let builder = || Database::builder().worker_threads(2);
    let (much, little) = (builder().build().unwrap(), builder().build().unwrap());
    let scale = scale_or(SCALE / 4.0);
    let [much, little] = &imported(&[much, little], scale).await[..] else {
        panic!("two sessions");
    };
    run(much, "SET profile.level = 'off'").await;
    let memory = (MEMORY * scale).max(LEAST_MEMORY);
    run(little, &format!("SET memory_limit = '{memory}'")).await;
    // In the order of least cost, joins collect so little that hardly any spills.
    run(little, "SET join_order = 'text'").await;
    // Each sort would set aside more than there is.
    let no_reserve = "SET datafusion.execution.sort_spill_reservation_bytes = 0";
    run(little, no_reserve).await;
    let (mut spilled, mut refused) = (Vec::new(), Vec::new());
    for number in 1..=22 {
        let (before, query, after) = statements(number);
        for sql in &before {
            run(much, sql).await;
            run(little, sql).await;
        }
        let expected = answer(much, &query).await;
        // An aggregate or a sort may be refused memory; a join may not.
        let attempt = async { little.sql(&query).await?.collect().await };
        if let Err(error) = attempt.await {
            let error = error.to_string();
            assert!(
                error.starts_with("the memory limit of "),
                "query {number}: {error}"
            );
            assert!(
                !error.contains("reached: JoinBuild"),
                "query {number}: {error}"
            );
            refused.push(number);
            for sql in &after {
                run(much, sql).await;
                run(little, sql).await;
            }
            continue;
        }
        let given = answer(little, &query).await;
        assert_eq!(expected, given, "query {number}");
        let joins = "SELECT count(*) FROM sys.operator_stats s \
                     JOIN sys.operators o USING (query_id, operator_id) \
                     WHERE query_id = last_query_id() AND name = 'HashJoinExec' \
                     AND s.spilled_bytes > 0";
        let (_, joins) = run(little, joins).await;
        if lines(&joins).unwrap() != ["0"] {
            spilled.push(number);
        }
        for sql in &after {
            run(much, sql).await;
            run(little, sql).await;
        }
    }
    assert!(
        spilled.len() >= 3,
        "joins spilled in queries {spilled:?} only"
    );
}

#[tokio::test]
async fn tpch_queries_give_the_same_at_every_level() {
    let database = Database::builder().worker_threads(2).build().unwrap();
    let session = imported(&[database], scale_or(SMALL)).await.swap_remove(0);
    let levels = [
        ProfileLevel::Counters,
        ProfileLevel::Calls,
        ProfileLevel::Records,
    ];
    let mut empty = Vec::new();
    for number in 1..=22 {
        let (before, query, after) = statements(number);
        for sql in before {
            run(&session, &sql).await;
        }
        run(&session, "SET profile.level = 'off'").await;
        let plain = answer(&session, &query).await;
        if plain.rows.is_empty() {
            empty.push(number);
        }
        for level in levels {
            run(&session, &format!("SET profile.level = '{level}'")).await;
            let profiled = answer(&session, &query).await;
            assert_eq!(plain, profiled, "query {number} at level {level}");
        }
        for sql in after {
            run(&session, &sql).await;
        }
    }
    assert!(
        empty.len() <= 3,
        "too small a scale, queries {empty:?} have no rows"
    );
}

/// The queries over Parquet files that were not imported: their rows' numbers are their ids.
#[tokio::test]
async fn tpch_queries_over_files_give_the_same_at_level_records() {
    let scratch = tempfile::tempdir().unwrap();
    let session = Database::builder()
        .worker_threads(2)
        .build()
        .unwrap()
        .session();
    for (table, reader) in tables(scale_or(SMALL)) {
        let path = scratch.path().join(format!("{table}.parquet"));
        write_parquet(&path, reader);
        let path = path.display();
        let sql = format!("CREATE EXTERNAL TABLE {table} STORED AS PARQUET LOCATION '{path}'");
        run(&session, &sql).await;
    }
    for number in [1, 3, 6, 13, 18, 21] {
        let (_, query, _) = statements(number);
        run(&session, "SET profile.level = 'off'").await;
        let plain = answer(&session, &query).await;
        run(&session, "SET profile.level = 'records'").await;
        let profiled = answer(&session, &query).await;
        assert_eq!(plain, profiled, "query {number}");
    }
}

/// The joins of a logical plan as text, the side that a table is built of first: `((region nation) supplier)`.
/// Other operators are left out.
fn joins(plan: &str) -> String {
    /// The joins of the first node of `lines` and of all below it, which are indented more.
    fn node(lines: &mut std::iter::Peekable<std::str::Lines<'_>>) -> String {
        let indent = |line: &str| line.len() - line.trim_start().len();
        let Some(line) = lines.next() else {
            return String::new();
        };
        let mut inputs = Vec::new();
        while lines.peek().is_some_and(|next| indent(next) > indent(line)) {
            inputs.push(node(lines));
        }
        inputs.retain(|input| !input.is_empty());
        let inputs = inputs.join(" ");
        let line = line.trim_start();
        match line
            .split_once(" Join: ")
            .or_else(|| line.split_once(" Join:"))
        {
            Some(("Inner", _)) => format!("({inputs})"),
            Some((kind, _)) => format!("{kind}({inputs})"),
            None if line.starts_with("Cross Join:") => format!("Cross({inputs})"),
            None => match line.strip_prefix("TableScan: ") {
                Some(scan) => {
                    let name = scan.split([' ', ',']).next().unwrap_or(scan);
                    name.rsplit('.').next().unwrap_or(name).to_owned()
                }
                None => inputs,
            },
        }
    }
    node(&mut plan.lines().peekable())
}

/// The logical plan of a query.
async fn logical_plan(session: &Session, query: &str) -> String {
    let (_, batches) = run(session, &format!("EXPLAIN {query}")).await;
    let rows: Vec<(String, String)> = batches
        .iter()
        .flat_map(|batch| {
            let texts = |column: usize| {
                let column = batch.column(column);
                cast(column, &DataType::Utf8).unwrap()
            };
            let (kinds, plans) = (texts(0), texts(1));
            let rows = (0..batch.num_rows()).map(|row| {
                let text = |texts: &ArrayRef| texts.as_string::<i32>().value(row).to_owned();
                (text(&kinds), text(&plans))
            });
            rows.collect::<Vec<_>>()
        })
        .collect();
    let logical = rows.into_iter().find(|(kind, _)| kind == "logical_plan");
    logical.unwrap().1
}

/// The order in which the queries join, at scale factor 0.1.
#[tokio::test]
async fn tpch_queries_join_in_the_expected_order() {
    let database = Database::builder().worker_threads(2).build().unwrap();
    let session = imported(&[database], 0.1).await.swap_remove(0);
    let mut found = String::new();
    for number in 1..=22 {
        let (before, query, after) = statements(number);
        for sql in before {
            run(&session, &sql).await;
        }
        let plan = logical_plan(&session, &query).await;
        found += &format!("q{number}: {}\n", joins(&plan));
        for sql in after {
            run(&session, &sql).await;
        }
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tpch_join_orders.txt");
    skewer_testing::golden(&golden, &found);
}

/// The queries in other orders of their joins. Rows of a relation are as many in each, and correct later estimates.
#[tokio::test]
async fn tpch_queries_give_the_same_in_any_order_of_joins() {
    let database = Database::builder().worker_threads(2).build().unwrap();
    let session = imported(&[database], scale_or(SMALL)).await.swap_remove(0);
    for number in 1..=22 {
        let (before, query, after) = statements(number);
        for sql in before {
            run(&session, &sql).await;
        }
        run(&session, "SET profile.level = 'off'").await;
        run(&session, "SET join_order = 'text'").await;
        let written = answer(&session, &query).await;
        for (order, level) in [
            ("random 1", "off"),
            ("random 2", "counters"),
            ("random 3", "records"),
            ("random 4", "records"),
            ("cost", "counters"),
            ("cost", "counters"),
        ] {
            run(&session, &format!("SET profile.level = '{level}'")).await;
            run(&session, &format!("SET join_order = '{order}'")).await;
            let given = answer(&session, &query).await;
            assert_eq!(written, given, "query {number}, {order}, level {level}");
        }
        for sql in after {
            run(&session, &sql).await;
        }
    }
    let counted = "SELECT relation FROM sys.cardinalities GROUP BY relation HAVING";
    let several = format!("SELECT count(*) AS n FROM ({counted} count(*) > 1)");
    let (_, batches) = run(&session, &several).await;
    let several = batches[0].column(0).as_primitive::<Int64Type>().value(0);
    assert!(
        several > 60,
        "{several} relations were counted several times"
    );
    let unequal = format!("{counted} min(returned_rows) <> max(returned_rows)");
    let (_, batches) = run(&session, &unequal).await;
    let unequal: usize = batches.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(unequal, 0, "relations with several sizes");
}
