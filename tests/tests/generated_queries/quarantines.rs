//! A query returns with quarantines what it returns where their rows have been deleted.

use skewer::{Database, ProfileLevel, Session};
use skewer_tests::contents::lines;

use crate::cases::{cases, run, session};
use crate::generator::Generator;
use crate::same_results::tables;

/// The rows of quarantines: by values, some of them NULL, and by row ids.
const QUARANTINES: [(&str, &str); 3] = [
    ("t", "b > 3 AND s <> 'y'"),
    ("t", "_row_id IN (4, 11)"),
    ("u", "d = 2 OR length(s) > 4"),
];

async fn statement(session: &Session, sql: &str) {
    let stream = session.sql(sql).await;
    let stream = stream.unwrap_or_else(|error| panic!("{sql}: {error}"));
    stream.collect().await.unwrap();
}

/// A database whose tables have quarantines.
async fn with_quarantines(database: Database) -> Database {
    tables(&database).await;
    for (table, predicate) in QUARANTINES {
        let sql = format!("CREATE QUARANTINE ON {table} WHERE ({predicate})");
        statement(&database.session(), &sql).await;
    }
    database
}

#[tokio::test]
async fn a_query_returns_with_quarantines_what_it_returns_without_their_rows() {
    let build = || Database::builder().worker_threads(2);
    let reference = build().build().unwrap();
    tables(&reference).await;
    let mut deleted = 0;
    for (table, predicate) in QUARANTINES {
        let sql = format!("DELETE FROM {table} WHERE {predicate}");
        let stream = reference.session().sql(&sql).await.unwrap();
        let count = lines(&stream.collect().await.unwrap()).unwrap();
        deleted += count[0].parse::<u32>().unwrap();
    }
    assert!(
        (6..30).contains(&deleted),
        "{deleted} rows of 36 are left out"
    );
    let one = with_quarantines(build().build().unwrap()).await;
    let three = with_quarantines(build().workers(3).build().unwrap()).await;
    let plain = session(&reference, ProfileLevel::Off, false).await;
    let asking = [
        session(&one, ProfileLevel::Records, false).await,
        session(&one, ProfileLevel::Counters, true).await,
        session(&three, ProfileLevel::Records, true).await,
    ];
    for session in &asking {
        statement(session, "SET quarantine = 'on'").await;
    }
    let mut compared = 0;
    for (number, (case, random)) in cases(150).enumerate() {
        let (sql, order) = Generator::new(random).query();
        let Ok((_, mut expected, _)) = run(&plain, &sql).await else {
            continue;
        };
        let found = run(&asking[number % asking.len()], &sql).await;
        let (_, mut found, _) = found.unwrap_or_else(|error| panic!("{case}: {error}\n{sql}"));
        if order.is_none() {
            expected.sort();
            found.sort();
        }
        assert_eq!(expected, found, "{case}:\n{sql}");
        compared += 1;
    }
    assert!(compared > 50, "only {compared} queries ran");
}
