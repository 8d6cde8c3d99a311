//! A query ends that is larger than the memory there is, and returns what it returns with enough of it.

use std::time::{Duration, Instant};

use futures::StreamExt;
use skewer::{Database, Error, ProfileLevel, Session};
use skewer_tests::contents::{lines, query};
use skewer_tests::watchdog::ends;

use crate::cases::{cases, session_of_other_plans};
use crate::generator::Generator;

/// Rows of each table.
const ROWS: usize = 6000;

/// What is larger with enough memory, or takes longer, is no case: some joins return millions of rows.
const MOST_ROWS: usize = 100_000;
const LONGEST: Duration = Duration::from_secs(5);

/// Memory of the cases, in turn.
const LIMITS_KIB: [usize; 4] = [256, 512, 1024, 2048];

/// Tables `t(a, b, f, s)` and `u(a, d, s)` of many values each, with NULLs and duplicates.
async fn tables(database: &Database) {
    let script = format!(
        "CREATE TABLE t AS SELECT
           CASE WHEN value % 97 = 3 THEN NULL ELSE value * 7919 % {ROWS} END AS a,
           value % 1500 AS b, (value % 2900) * 0.5e0 AS f,
           CASE WHEN value % 89 = 5 THEN NULL ELSE 'x' || value || ',y and some more' END AS s
         FROM generate_series(1, {ROWS});
         CREATE TABLE u AS SELECT value * 3 % 5000 AS a,
           CASE WHEN value % 61 = 7 THEN NULL ELSE value % 2100 END AS d,
           'x' || value % 4000 || ',y and some more' AS s
         FROM generate_series(1, {ROWS});"
    );
    database.session().execute_script(&script).await.unwrap();
}

/// Small batches, sorts that set aside little, and joins that sort their inputs or hash them.
async fn session(database: &Database, joins_hash: bool) -> Session {
    let session = session_of_other_plans(database, ProfileLevel::Counters).await;
    let settings = format!(
        "SET datafusion.execution.batch_size = 256;
         SET datafusion.execution.sort_spill_reservation_bytes = 32768;
         SET datafusion.optimizer.prefer_hash_join = {joins_hash};"
    );
    session.execute_script(&settings).await.unwrap();
    session
}

/// The rows of a query, sorted; `None` if it is too large.
async fn of_bounded_size(session: &Session, sql: &str) -> Result<Option<Vec<String>>, Error> {
    let begun = Instant::now();
    let mut stream = session.sql(sql).await?;
    let (mut batches, mut rows) = (Vec::new(), 0);
    loop {
        let left = LONGEST.saturating_sub(begun.elapsed());
        let Ok(batch) = tokio::time::timeout(left, stream.next()).await else {
            return Ok(None);
        };
        let Some(batch) = batch.transpose()? else {
            break;
        };
        rows += batch.num_rows();
        batches.push(batch);
        if rows > MOST_ROWS {
            return Ok(None);
        }
    }
    Ok(Some(sorted(lines(&batches)?)))
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort_unstable();
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_spills_ends_and_returns_what_it_returns_in_memory() {
    let database = Database::builder().worker_threads(3).build().unwrap();
    queries_end(&database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_does_one_on_three_workers() {
    let database = Database::builder().worker_threads(2).workers(3);
    queries_end(&database.build().unwrap()).await;
}

async fn queries_end(database: &Database) {
    let enough = Database::builder().worker_threads(3).build().unwrap();
    for database in [&enough, database] {
        tables(database).await;
    }
    let reference = session(&enough, true).await;
    let sessions = [
        session(database, false).await,
        session(database, true).await,
    ];
    let (mut all, mut compared, mut refused) = (0, 0, 0);
    for (number, (case, random)) in cases(40).enumerate() {
        all += 1;
        let mut generator = Generator::new(random);
        let (sql, _) = generator.query();
        let Ok(Some(expected)) = of_bounded_size(&reference, &sql).await else {
            continue;
        };
        let session = &sessions[number % 2];
        let limit = LIMITS_KIB[number / 2 % LIMITS_KIB.len()];
        let set = format!("SET memory_limit = '{limit} KiB'");
        session.execute_script(&set).await.unwrap();
        let running = async { session.sql(&sql).await?.collect().await };
        match ends(session, &sql, running).await {
            Ok(batches) => {
                compared += 1;
                let found = sorted(lines(&batches).unwrap());
                assert!(found == expected, "{case}, {limit} KiB: other rows:\n{sql}");
            }
            Err(Error::OutOfMemory(text)) => {
                refused += 1;
                assert!(text.starts_with("the memory limit of "), "{case}: {text}");
            }
            Err(error) => panic!("{case}, {limit} KiB: {error}\n{sql}"),
        }
        session.execute_script("RESET memory_limit").await.unwrap();
    }
    let spilled = "SELECT count(DISTINCT s.query_id), count(DISTINCT o.name)
        FROM sys.operator_stats s
        JOIN sys.operators o ON s.query_id = o.query_id AND s.operator_id = o.operator_id
        WHERE s.spilled_bytes > 0";
    let spilled = query(&sessions[0], spilled).await.unwrap();
    let (queries, operators) = spilled[0].split_once('|').unwrap();
    let spilled: usize = queries.parse().unwrap();
    eprintln!(
        "of {all} queries {compared} ended with their rows, {refused} were refused memory; {spilled} \
         spilled in {operators} kinds of operators"
    );
    assert!(compared * 3 >= all, "{compared} of {all} compared");
    assert!(spilled * 5 >= all, "{spilled} of {all} spilled");
}
