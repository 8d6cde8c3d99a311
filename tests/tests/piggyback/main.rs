//! Latencies carried in rows give the expensive inputs that the log gives: of generated queries in
//! simulated time, in which the same query takes the same on every run.
//!
//! `SKEWER_SEED=n` generates other queries, `SKEWER_CASES=n` another number of them.

#[path = "../generated_queries/cases.rs"]
#[allow(dead_code, reason = "of the other tests")]
mod cases;
#[path = "../generated_queries/frames.rs"]
#[allow(dead_code, reason = "of the other tests")]
mod frames;
#[path = "../generated_queries/naive/mod.rs"]
#[allow(dead_code, reason = "of the other tests")]
mod naive;

use std::time::Duration;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Volatility;
use rand::RngExt;
use skewer::{Database, ProfileLevel, Session};
use skewer_profiling::ticks::simulated;
use skewer_tests::contents::query;

use cases::{Random, cases, run};
use naive::{Naive, VIEW};

/// Tables `t(a, b)` and `u(a, b)` of several segments. Most rows have a number of their own.
async fn tables(database: &Database) {
    let session = database.session();
    for (number, table) in ["t", "u"].into_iter().enumerate() {
        let sql = format!("CREATE TABLE {table} (a BIGINT, b BIGINT)");
        session.sql(&sql).await.unwrap();
        for segment in 0..3 {
            let rows = (segment * 4..segment * 4 + 4).map(|row| {
                let a = match (row + number) % 6 {
                    5 => "NULL".to_owned(),
                    key => (key % 4).to_string(),
                };
                format!("({a}, {})", row * 7 + number)
            });
            let rows: Vec<_> = rows.collect();
            let sql = format!("INSERT INTO {table} VALUES {}", rows.join(", "));
            session.sql(&sql).await.unwrap();
        }
    }
    session.sql(VIEW).await.unwrap();
}

/// A value that `same` takes far longer of.
const SLOW: i64 = 1_000_000;

/// What `same` takes of a value: of some values the same, so that there are ties.
fn cost(value: Option<i64>) -> Duration {
    match value {
        None => Duration::from_micros(3),
        Some(SLOW) => Duration::from_secs(50),
        Some(value) => Duration::from_micros((value * 37).rem_euclid(101) as u64 / 2),
    }
}

async fn session(database: &Database, mode: &str) -> Session {
    let session = cases::session(database, ProfileLevel::Records, false).await;
    let sql = format!("SET profile.lineage = '{mode}'");
    session.sql(&sql).await.unwrap();
    session.register_row_udf(
        "same",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Immutable,
        |row| {
            let ScalarValue::Int64(value) = row[0] else {
                panic!("{:?} is no BIGINT", row[0]);
            };
            simulated::pass(cost(value));
            Ok(ScalarValue::Int64(value))
        },
    );
    session
}

/// A query whose rows take time, at the top and wherever the generator has it so.
fn generated(random: &mut Random) -> String {
    let depth = random.random_range(1..=4);
    let naive = Naive::generate(random, depth);
    match random.random_range(0..3) {
        0 => naive.sql(),
        1 => format!("SELECT same(c0) FROM ({}) AS q", naive.sql()),
        _ => format!(
            "SELECT max(same(c0)) FROM ({}) AS q GROUP BY c0",
            naive.sql()
        ),
    }
}

/// Each kind of operator once.
const GIVEN: [&str; 20] = [
    "SELECT same(b) FROM t",
    "SELECT a, count(*) FROM t WHERE same(b) > 10 GROUP BY a",
    "SELECT same(t.b + u.b) FROM t LEFT JOIN u ON t.a = u.a",
    // What one side of a join takes, what each does, and what both do.
    "SELECT u.b % 2, max(same(t.b)) FROM u JOIN t ON t.a = u.a GROUP BY u.b % 2",
    "SELECT t.a, max(same(t.b)), max(same(u.b + 1)) FROM t FULL JOIN u ON t.a = u.a GROUP BY t.a",
    "SELECT t.a, max(same(t.b + u.b)) FROM t JOIN u ON t.a = u.a GROUP BY t.a",
    "SELECT q.a, same(q.s), u.b FROM (SELECT a, sum(same(b)) AS s FROM t GROUP BY a) AS q \
     FULL JOIN u ON q.a = u.a",
    "SELECT same(b) FROM (SELECT a, b FROM t UNION ALL SELECT a, b FROM u) AS q ORDER BY b",
    "SELECT count(same(b)) FROM t WHERE b < 0",
    "SELECT DISTINCT same(n) FROM (SELECT a, count(DISTINCT same(b)) AS n FROM t GROUP BY a) AS q",
    "WITH RECURSIVE r(n, k) AS (SELECT same(b), 0 FROM t UNION ALL \
     SELECT same(r.n + u.b), k + 1 FROM r JOIN u ON r.n % 4 = u.a WHERE k < 2) SELECT same(n) FROM r",
    // Elements of short lists and of long ones, of rows that took something before.
    "SELECT x % 2, max(same(x + c)) FROM (SELECT same(b) AS c, unnest([a, b]) AS x FROM t) AS q GROUP BY x % 2",
    "SELECT x, max(same(x + c)) FROM (SELECT same(b) AS c, unnest(range(0, 40)) AS x FROM t) AS q GROUP BY x",
    // Some rows are met again, after they took something on another way.
    "WITH RECURSIVE r(n, k) AS (SELECT b, 0 FROM t UNION ALL \
     SELECT r.n + q.c, k + 1 FROM r JOIN (SELECT a, same(b) AS c FROM t) AS q ON r.n % 3 = q.a \
     WHERE k < 3) SELECT k, max(n) FROM r GROUP BY k",
    "WITH RECURSIVE r(n, g, k) AS (SELECT b, a, 0 FROM t UNION ALL \
     SELECT max(same(n + k)), g % 2, k + 1 FROM r WHERE k < 3 GROUP BY g % 2, k) SELECT same(n) FROM r",
    "WITH RECURSIVE r(n, k) AS (SELECT same(b), 0 FROM t UNION ALL \
     SELECT sum(same(n)) OVER (ORDER BY n GROUPS 1 PRECEDING) % 50, k + 1 FROM r WHERE k < 3) \
     SELECT n FROM r",
    "WITH RECURSIVE r(n) AS (SELECT b FROM t UNION SELECT same(n - 10) FROM r WHERE n > 20) \
     SELECT same(n) FROM r",
    "WITH RECURSIVE r(n, k) AS (SELECT b, 0 FROM t UNION ALL SELECT q.m, r.k + 1 FROM r JOIN ( \
       WITH RECURSIVE s(m, j) AS (SELECT b, 0 FROM u UNION ALL \
       SELECT same(m + 1), j + 1 FROM s WHERE j < 2) SELECT m FROM s \
     ) AS q ON r.n % 5 = q.m % 5 WHERE r.k < 1) SELECT same(n) FROM r",
    "WITH RECURSIVE r(n, k) AS (SELECT b, 0 FROM t UNION ALL SELECT m, k + 1 FROM ( \
       WITH RECURSIVE s(m, k, j) AS (SELECT n, k, 0 FROM r UNION ALL \
       SELECT same(m + 3), k, j + 1 FROM s WHERE j < 2) SELECT m, k FROM s \
     ) AS q WHERE k < 2) SELECT same(n) FROM r",
    // A row of the result is made of nothing, and takes the longest.
    "WITH RECURSIVE r(n, k) AS (SELECT 90, 0 UNION ALL \
     SELECT same(r.n + t.b), k + 1 FROM r JOIN t ON r.n % 4 = t.a WHERE k < 2) \
     SELECT max(same(n)) FROM r GROUP BY k / 2",
];

/// Aggregates that evaluate themselves what takes time, which is shuffle latency then.
const SHUFFLED: [&str; 2] = [
    "SELECT max(a) FROM t GROUP BY ROLLUP (same(b), a)",
    "SELECT a, same(n) FROM (SELECT a, count(*) FILTER (WHERE same(b) > 9) AS n FROM t GROUP BY a) AS q",
];

async fn expensive_inputs(session: &Session, query_id: i64) -> Vec<String> {
    let sql = format!(
        "SELECT rank, table_name, row_id, impact_ns, max_total_ns, max_remediated_ns, outputs \
         FROM sys.expensive_inputs WHERE query_id = {query_id} ORDER BY rank"
    );
    query(session, &sql).await.unwrap()
}

/// A query without a log and with one.
struct Both {
    log: Session,
    piggyback: Session,
}

impl Both {
    async fn of_database(database: &Database) -> Self {
        Self {
            log: session(database, "log").await,
            piggyback: session(database, "piggyback").await,
        }
    }

    /// The expensive inputs, which are the same both ways, and the query that has a log.
    async fn run(&self, case: &str, sql: &str) -> (Vec<String>, i64) {
        let mut answers = Vec::new();
        for session in [&self.log, &self.piggyback] {
            let (_, mut rows, query_id) = run(session, sql)
                .await
                .unwrap_or_else(|error| panic!("{case}: {error}\n{sql}"));
            rows.sort();
            let inputs = expensive_inputs(session, query_id).await;
            answers.push((rows, inputs, query_id));
        }
        let (other_rows, carried, _) = answers.remove(1);
        let (rows, logged, log_id) = answers.remove(0);
        assert_eq!(rows, other_rows, "{case}: rows\n{sql}");
        // Rows that are timed together share their time, and which rows are goes by the order in which
        // exchanges deliver them: so records and times may differ from run to run.
        assert_eq!(
            logged.is_empty(),
            carried.is_empty(),
            "{case}: expensive inputs\n{sql}"
        );
        (logged, log_id)
    }
}

async fn agree(database: &Database) {
    tables(database).await;
    let both = Both::of_database(database).await;
    let (mut found, mut with_impact) = (0, 0);
    let generated = cases(40).map(|(case, mut random)| (case, generated(&mut random)));
    let given = GIVEN.map(|sql| ("given".to_owned(), sql.to_owned()));
    for (case, sql) in given.into_iter().chain(generated) {
        let (inputs, _) = both.run(&case, &sql).await;
        found += inputs.len();
        let impact = |line: &&String| line.split('|').nth(3) != Some("0");
        with_impact += inputs.iter().filter(impact).count();
    }
    assert!(found > 80, "only {found} expensive inputs were compared");
    assert!(with_impact > 20, "only {with_impact} have an impact");
    // Rows that are written where they are made.
    let mut written = Vec::new();
    for (session, name) in [(&both.log, "logged"), (&both.piggyback, "carried")] {
        let sql = format!("CREATE TABLE {name} AS SELECT a, same(b) AS b FROM t");
        let (_, _, query_id) = run(session, &sql).await.unwrap();
        written.push(expensive_inputs(session, query_id).await);
    }
    assert_eq!(written[0].len(), 12, "{written:?}");
    assert_eq!(written[0], written[1]);
    // Of half of the records.
    for session in [&both.log, &both.piggyback] {
        session.sql("SET profile.sample_rate = 0.5").await.unwrap();
    }
    let mut sampled = 0;
    for sql in GIVEN {
        sampled += both.run("sampled", sql).await.0.len();
    }
    assert!(sampled > 40, "only {sampled} sampled inputs were compared");
    for session in [&both.log, &both.piggyback] {
        session.sql("RESET profile.sample_rate").await.unwrap();
    }
    // Which rows meet in a partition would be another on every run.
    for session in [&both.log, &both.piggyback] {
        let one = "SET datafusion.execution.target_partitions = 1";
        session.sql(one).await.unwrap();
    }
    for sql in SHUFFLED {
        let (_, query_id) = both.run("shuffled", sql).await;
        let ask = format!(
            "SELECT max(shuffle_ns) > 0 FROM sys.output_latency WHERE query_id = {query_id}"
        );
        assert_eq!(query(&both.log, &ask).await.unwrap(), ["true"], "{sql}");
    }
    // Nothing was logged of single records.
    for table in ["lineage", "record_latency", "output_records"] {
        let ask = format!(
            "SELECT count(*) FROM sys.{table} WHERE query_id IN \
             (SELECT query_id FROM sys.queries WHERE lineage = 'piggyback')"
        );
        assert_eq!(query(&both.log, &ask).await.unwrap(), ["0"], "{table}");
    }
}

#[tokio::test]
async fn carried_latencies_give_the_expensive_inputs_of_the_log() {
    simulated::begin();
    agree(&Database::builder().worker_threads(3).build().unwrap()).await;
}

#[tokio::test]
async fn carried_across_three_workers_they_give_the_expensive_inputs_of_the_log() {
    simulated::begin();
    let database = Database::builder().worker_threads(2).workers(3);
    let database = database.build().unwrap();
    agree(&database).await;
    let crossed = "SELECT count(DISTINCT query_id) FROM sys.operator_stats WHERE worker_id > 0";
    let crossed: u64 = query(&database.session(), crossed).await.unwrap()[0]
        .parse()
        .unwrap();
    assert!(
        crossed > 50,
        "only {crossed} queries ran on several workers"
    );
}

/// A table `slow(id, n)` of 20 rows, of which row 6 has the value that takes long.
async fn table_with_a_slow_row(session: &Session) {
    let rows = (0..20).map(|id| format!("({id}, {})", if id == 6 { SLOW } else { id }));
    let rows: Vec<_> = rows.collect();
    let sql = "CREATE TABLE slow (id BIGINT, n BIGINT)";
    session.sql(sql).await.unwrap();
    let sql = format!("INSERT INTO slow VALUES {}", rows.join(", "));
    session.sql(&sql).await.unwrap();
}

#[tokio::test]
async fn what_an_element_of_a_list_takes_is_its_record_s() {
    simulated::begin();
    let database = Database::builder().worker_threads(2).build().unwrap();
    let both = Both::of_database(&database).await;
    table_with_a_slow_row(&both.log).await;
    for elements in ["[n, id]", "range(n, n + 100)"] {
        // The second time, they took something before, too.
        for key in ["x", "same(x)"] {
            let sql = format!(
                "SELECT y % 2, max(same(y)) FROM (SELECT {key} AS y \
                 FROM (SELECT unnest({elements}) AS x FROM slow) AS e) AS q GROUP BY y % 2"
            );
            let (inputs, _) = both.run(elements, &sql).await;
            let first: Vec<&str> = inputs[0].split('|').collect();
            assert_eq!(first[..3], ["1", "main.slow", "6"], "{sql}: {inputs:?}");
            let seconds: f64 = first[3].parse::<f64>().unwrap() / 1e9;
            let expected = if key == "x" { 50.0 } else { 100.0 };
            assert!((seconds - expected).abs() < 0.1, "{sql}: {inputs:?}");
        }
    }
}

/// A result row waits for one of the elements that it is made of, but all of them were worked on.
#[tokio::test]
async fn the_report_tells_what_a_row_waited_for_from_the_work_in_sum() {
    simulated::begin();
    let database = Database::builder().worker_threads(2).build().unwrap();
    let session = session(&database, "log").await;
    table_with_a_slow_row(&session).await;
    for (elements, in_sum) in [
        ("[n, n, n]", ", and took 2 min 30 s of work in total"),
        ("[n]", ""),
    ] {
        let sql = format!(
            "EXPLAIN PROFILE SELECT y % 2, max(same(y)) \
             FROM (SELECT unnest({elements}) AS y FROM slow) AS q GROUP BY y % 2"
        );
        let text = query(&session, &sql).await.unwrap().join(" ");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let expected =
            format!("Row 6 of slow kept a result row waiting for 50.0 s{in_sum}; without it");
        assert!(text.contains(&expected), "no '{expected}' in\n{text}");
    }
}

#[tokio::test]
async fn the_report_names_the_expensive_record_and_how_to_learn_more() {
    simulated::begin();
    let database = Database::builder().worker_threads(2).build().unwrap();
    let session = session(&database, "piggyback").await;
    let lines = async |sql: &str| query(&session, sql).await.unwrap();
    table_with_a_slow_row(&session).await;
    let text = lines("EXPLAIN PROFILE SELECT id % 2, max(same(n)) FROM slow GROUP BY id % 2")
        .await
        .join("\n");
    for expected in [
        "level records, piggyback",
        "Row 6 of slow kept a result row waiting for 50.0 s",
        "id: 6, n: 1000000",
        "affects             1 result row",
        "  SET profile.lineage = 'log';",
    ] {
        assert!(text.contains(expected), "no '{expected}' in\n{text}");
    }
    for unknown in ["self time  ", "without it", "backward_trace"] {
        assert!(!text.contains(unknown), "'{unknown}' in\n{text}");
    }
    let subject = "SELECT subject, zoom_sql FROM sys.diagnoses \
                   WHERE query_id = last_query_id() AND rule = 'expensive input'";
    assert_eq!(lines(subject).await, ["main.slow row 6|NULL"]);
    // The statements that it ends with give what is missing.
    let (_, deeper) = text.split_once("To go deeper").unwrap();
    let mut said = Vec::new();
    for statement in deeper.lines().filter(|line| !line.trim().is_empty()) {
        said.extend(lines(statement).await);
    }
    let said = said.join("\n");
    assert!(said.contains("self time           50.0 s"), "{said}");
    assert!(said.contains("backward_trace"), "{said}");
}
