//! Queries return the same whatever is done about skew.

use skewer::{Database, ProfileLevel, Session};

use crate::cases::{cases, run, session};
use crate::generator::Generator;
use crate::join_order::{few_rows, query};
use crate::same_results::tables;

/// A session in which both inputs of each join have exchanges.
async fn exchanging(database: &Database, level: ProfileLevel) -> Session {
    let session = session(database, level, false).await;
    for setting in [
        "hash_join_single_partition_threshold = 0",
        "hash_join_single_partition_threshold_rows = 0",
    ] {
        let sql = format!("SET datafusion.optimizer.{setting}");
        session.sql(&sql).await.unwrap();
    }
    session
}

async fn remedies(session: &Session, mode: &str) {
    let sql = format!("SET remedies = '{mode}'");
    session.sql(&sql).await.unwrap();
}

/// How many remedies the session's last query had.
async fn applied(session: &Session) -> usize {
    let sql = "SELECT remedy FROM sys.remedy_runs WHERE query_id = last_query_id() AND is_applied";
    let (_, rows, _) = run(session, sql).await.unwrap();
    rows.len()
}

async fn return_the_same(database: &Database, level: ProfileLevel, count: u64) {
    tables(database).await;
    let plain = exchanging(database, ProfileLevel::Off).await;
    let changed = exchanging(database, level).await;
    let (mut compared, mut had) = (0, 0);
    for (number, (case, random)) in cases(count).enumerate() {
        let mut generator = Generator::new(random);
        let (sql, sorted) = match number % 4 {
            3 => generator.query(),
            _ => match few_rows(&plain, query(&mut generator)).await {
                Some(sql) => (sql, None),
                None => continue,
            },
        };
        let Ok((_, mut expected, _)) = run(&plain, &sql).await else {
            continue;
        };
        if sorted.is_none() {
            expected.sort();
        }
        // The log of this run names the heavy keys.
        remedies(&changed, "off").await;
        run(&changed, &sql).await.unwrap();
        for seed in 0..3 {
            remedies(&changed, &format!("random {}", 10 * number + seed)).await;
            let found = run(&changed, &sql).await;
            let (_, mut found, _) = found.unwrap_or_else(|error| panic!("{case}: {error}\n{sql}"));
            if sorted.is_none() {
                found.sort();
            }
            assert_eq!(expected, found, "{case}, seed {seed}:\n{sql}");
            had += applied(&changed).await;
        }
        compared += 1;
    }
    assert!(compared > count / 2, "{compared} queries were compared");
    assert!(
        had > compared as usize,
        "{had} remedies in {compared} queries"
    );
}

#[tokio::test]
async fn remedies_change_no_result_in_a_process() {
    let database = Database::builder().worker_threads(3).build().unwrap();
    return_the_same(&database, ProfileLevel::Counters, 60).await;
}

#[tokio::test]
async fn remedies_change_no_result_on_workers() {
    let database = Database::builder().workers(3).build().unwrap();
    return_the_same(&database, ProfileLevel::Counters, 40).await;
}

#[tokio::test]
async fn remedies_change_no_result_where_records_are_traced() {
    let database = Database::builder().worker_threads(3).build().unwrap();
    return_the_same(&database, ProfileLevel::Records, 40).await;
}
