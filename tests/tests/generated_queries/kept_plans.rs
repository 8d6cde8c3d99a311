//! A query returns with the plan of an earlier run what it returns with one of its own.

use futures::future::join_all;
use skewer::{Database, ProfileLevel};

use crate::cases::{cases, run, session};
use crate::generator::Generator;
use crate::same_results::tables;

/// Changes of a table that the queries read.
const CHANGES: [&str; 3] = [
    "INSERT INTO t SELECT a, b + 1, f, s FROM t WHERE b = 1",
    "DELETE FROM u WHERE a = 6 AND d IS NULL",
    "UPDATE t SET s = 'y' WHERE b = 3",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_query_returns_the_same_with_the_plan_of_an_earlier_run() {
    let database = Database::builder().worker_threads(3).build().unwrap();
    tables(&database).await;
    let (mut compared, mut had_rows) = (0, 0);
    for level in [ProfileLevel::Off, ProfileLevel::Calls] {
        let anew = session(&database, level, false).await;
        anew.sql("SET plan_cache = off").await.unwrap();
        let again = session(&database, level, false).await;
        for (number, (case, random)) in cases(80).enumerate() {
            let (sql, order) = Generator::new(random).query();
            for is_changed in [false, true] {
                if is_changed {
                    if number % 8 > 0 {
                        continue;
                    }
                    again.sql(CHANGES[number / 8 % 3]).await.unwrap();
                }
                let Ok((schema, mut expected, _)) = run(&anew, &sql).await else {
                    continue;
                };
                if order.is_none() {
                    expected.sort();
                }
                // The second run keeps its plan, the third and the ones at the same time have copies of it.
                let mut runs = Vec::new();
                for _ in 0..3 {
                    runs.push(run(&again, &sql).await);
                }
                runs.extend(join_all((0..3).map(|_| run(&again, &sql))).await);
                for found in runs {
                    let (found_schema, mut found, _) =
                        found.unwrap_or_else(|error| panic!("{case}: {error}\n{sql}"));
                    if order.is_none() {
                        found.sort();
                    }
                    assert_eq!(found_schema, schema, "{case}:\n{sql}");
                    assert_eq!(found, expected, "{case}:\n{sql}");
                }
                compared += 1;
                had_rows += usize::from(!expected.is_empty());
            }
        }
    }
    assert!(compared > 100, "{compared} queries were compared");
    assert!(had_rows > 60, "{had_rows} of them returned rows");
}
