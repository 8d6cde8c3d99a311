//! Aggregates and conditions over values at the ends of their types, in tables of many segments, under every
//! setting that changes plans. What they come to is computed here, in numbers that do not overflow.
//!
//! - [`values`]: the rows, and what a type has at its ends
//! - [`aggregates`]: queries over them, and what they come to
//! - [`zones`]: the same for times in the zone of the session
//! - [`settings`]: sessions with other plans
//!
//! `SKEWER_WITHOUT=overflow,zones` leaves kinds of queries out: those whose numbers may not fit, and those
//! whose times go by the session's zone.

mod aggregates;
mod settings;
mod values;
mod zones;

use rand::RngExt;
use skewer::Database;

use crate::cases::{cases, run};
use crate::generator::Generator;
use aggregates::Aggregation;
use values::Rows;

/// Whether queries of a kind are generated.
fn has(kind: &str) -> bool {
    let without = std::env::var("SKEWER_WITHOUT").unwrap_or_default();
    without.split(',').all(|left_out| left_out != kind)
}

fn is_overflow(error: &str) -> bool {
    let error = error.to_lowercase();
    ["overflow", "out of range", "does not fit"]
        .iter()
        .any(|word| error.contains(word))
}

#[tokio::test]
async fn aggregates_of_values_at_the_ends_are_right_under_every_setting() {
    let database = Database::builder().worker_threads(3).build().unwrap();
    let mut rows = Rows::default();
    let (mut results, mut overflows) = (0, 0);
    for (number, (case, mut random)) in cases(150).enumerate() {
        if number % 10 == 0 {
            rows = Rows::generate(&mut random);
            rows.create(&database.session()).await;
        }
        let aggregation = Aggregation::generate(&mut random, has("overflow"));
        let (session, with) = settings::session(&database, &mut random).await;
        let sql = aggregation.sql();
        let said = || format!("{case}\n{sql}\nwith {with:?}\nof {rows:?}");
        let expected = aggregation.evaluate(&rows);
        match (run(&session, &sql).await, expected.rows) {
            (Ok((_, mut got, _)), Some(mut expected)) => {
                got.sort();
                expected.sort();
                assert_eq!(got, expected, "{}", said());
                results += 1;
            }
            (Ok((_, got, _)), None) => panic!("{got:?} in place of an overflow: {}", said()),
            (Err(error), _) => {
                assert!(
                    expected.may_overflow && is_overflow(&error),
                    "{error}: {}",
                    said()
                );
                overflows += 1;
            }
        }
    }
    assert!(
        results > 3 * overflows,
        "{results} results, {overflows} overflows"
    );
}

#[tokio::test]
async fn times_go_by_the_zone_of_the_session_under_every_setting() {
    if !has("zones") {
        return;
    }
    let database = Database::builder().worker_threads(3).build().unwrap();
    let mut rows = Rows::default();
    for (number, (case, mut random)) in cases(100).enumerate() {
        if number % 10 == 0 {
            rows = Rows::generate(&mut random);
            rows.create(&database.session()).await;
        }
        let query = zones::Query::generate(&mut random);
        let (session, with) = settings::session(&database, &mut random).await;
        session.sql(&query.set_zone()).await.unwrap();
        let sql = query.sql();
        let (_, got, _) = run(&session, &sql)
            .await
            .unwrap_or_else(|error| panic!("{case}: {error}\n{sql}"));
        let expected = [query.evaluate(&rows)];
        let zone = query.set_zone();
        assert_eq!(
            got, expected,
            "{case}\n{zone};\n{sql}\nwith {with:?}\nof {rows:?}"
        );
    }
}

#[tokio::test]
async fn a_query_returns_the_same_under_every_setting() {
    let database = Database::builder().worker_threads(3).build().unwrap();
    crate::same_results::tables(&database).await;
    let plain = database.session();
    crate::cases::register(&plain);
    let mut valid = 0;
    let mut all = 0;
    for (case, mut random) in cases(120) {
        let (session, with) = settings::session(&database, &mut random).await;
        crate::cases::register(&session);
        if random.random_range(0..2) == 0 {
            session.sql("SET profile.level = 'records'").await.unwrap();
        }
        let (sql, _) = Generator::new(random).query();
        let sorted = |result: Result<_, String>| {
            result.map(|(_, mut rows, _): (_, Vec<String>, _)| {
                rows.sort();
                rows
            })
        };
        let expected = sorted(run(&plain, &sql).await);
        let got = sorted(run(&session, &sql).await);
        all += 1;
        valid += usize::from(expected.is_ok());
        match (&expected, &got) {
            // Which of several rows fails first is the plan's to say.
            (Err(_), Err(_)) => {}
            _ => assert_eq!(expected, got, "{case}\n{sql}\nwith {with:?}"),
        }
    }
    assert!(valid * 10 >= all * 9, "{valid} of {all} queries are valid");
}
