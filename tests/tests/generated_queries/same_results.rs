//! A query returns the same at every level.

use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use skewer::{Database, ProfileLevel, Session};
use skewer_tests::cluster::Cluster;
use skewer_tests::contents::lines;

use crate::cases::{cases, run, session, session_of_other_plans};
use crate::generator::Generator;

/// Tables `t(a, b, f, s)` and `u(a, d, s)` of several segments, with NULLs, duplicates and
/// numbers whose sums are exact in any order.
pub async fn tables(database: &Database) {
    let session = database.session();
    session
        .sql("CREATE TABLE t (a BIGINT, b BIGINT, f DOUBLE, s VARCHAR)")
        .await
        .unwrap();
    session
        .sql("CREATE TABLE u (a BIGINT, d BIGINT, s VARCHAR)")
        .await
        .unwrap();
    for segment in 0..3 {
        let (mut t, mut u) = (Vec::new(), Vec::new());
        for row in segment * 6..segment * 6 + 6 {
            let a = if row % 7 == 3 {
                "NULL".to_owned()
            } else {
                (row % 5).to_string()
            };
            let s = ["'x1,y'", "'y'", "NULL", "'z,x2,z'", "''"][row % 5];
            t.push(format!("({a}, {}, {}.5, {s})", row * row % 6, row % 4));
            let d = if row % 4 == 1 {
                "NULL".to_owned()
            } else {
                (row % 3).to_string()
            };
            u.push(format!("({}, {d}, {s})", row * 3 % 8));
        }
        for (table, rows) in [("t", t), ("u", u)] {
            let sql = format!("INSERT INTO {table} VALUES {}", rows.join(", "));
            session.sql(&sql).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_profiled_query_returns_what_it_returns_unprofiled() {
    let database = Database::builder().worker_threads(3).build().unwrap();
    tables(&database).await;
    every_level_agrees(&database, &database, 100).await;
}

#[tokio::test]
async fn a_query_returns_on_three_workers_what_it_returns_on_one() {
    let one = Database::builder().worker_threads(3).build().unwrap();
    let three = Database::builder().worker_threads(2).workers(3);
    let three = three.build().unwrap();
    tables(&one).await;
    tables(&three).await;
    every_level_agrees(&one, &three, 100).await;
    most_were_distributed(&three).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_returns_on_three_processes_what_it_returns_on_one() {
    let one = Database::builder().worker_threads(3).build().unwrap();
    let three = Cluster::start(3);
    tables(&one).await;
    tables(three.database()).await;
    every_level_agrees(&one, three.database(), 100).await;
    most_were_distributed(three.database()).await;
}

/// Of 200 that were run.
async fn most_were_distributed(database: &Database) {
    let distributed = "SELECT count(DISTINCT query_id) FROM sys.operator_stats WHERE worker_id > 0";
    let (_, rows, _) = run(&database.session(), distributed).await.unwrap();
    let rows: u64 = rows[0].parse().unwrap();
    assert!(rows > 100, "only {rows} of 200 were distributed");
}

/// So little that operators spill or are refused more. The tables are too small for joins to spill: see `spilling`.
const LITTLE_MEMORY: &str = "SET memory_limit = '48KB'";

#[tokio::test]
async fn a_query_returns_with_little_memory_what_it_returns_with_much() {
    let much = Database::builder().worker_threads(3).build().unwrap();
    let little = Database::builder().worker_threads(3).build().unwrap();
    tables(&much).await;
    tables(&little).await;
    let plain = session(&much, ProfileLevel::Off, false).await;
    let records = session(&little, ProfileLevel::Records, false).await;
    let counters = session(&little, ProfileLevel::Counters, false).await;
    // Each sort would set aside more than there is.
    for session in [&records, &counters] {
        let no_reserve = "SET datafusion.execution.sort_spill_reservation_bytes = 0";
        session.sql(no_reserve).await.unwrap();
    }
    records.sql(LITTLE_MEMORY).await.unwrap();
    let (mut same, mut refused) = (0, 0);
    for (number, (case, random)) in cases(100).enumerate() {
        let (sql, order) = Generator::new(random).query();
        let Ok((_, mut expected, _)) = run(&plain, &sql).await else {
            continue;
        };
        let session = [&records, &counters][number % 2];
        match run(session, &sql).await {
            Ok((_, mut found, _)) => {
                if order.is_none() {
                    expected.sort();
                    found.sort();
                }
                assert_eq!(expected, found, "{case}:\n{sql}");
                same += 1;
            }
            Err(error) if error.contains("the memory limit of ") => {
                assert!(
                    !error.contains("reached: JoinBuild"),
                    "{case}: {error}\n{sql}"
                );
                refused += 1;
            }
            Err(error) => panic!("{case}, only with little memory: {error}\n{sql}"),
        }
    }
    assert!(same > 2 * refused, "{same} queries ran, {refused} did not");
}

/// Queries return in `database` at every level what they return in `reference`, which has the
/// same tables, unprofiled.
async fn every_level_agrees(reference: &Database, database: &Database, queries: u64) {
    let plain = session(reference, ProfileLevel::Off, false).await;
    let plain_skipping = session(reference, ProfileLevel::Off, true).await;
    let records = session(database, ProfileLevel::Records, false).await;
    let records_skipping = session(database, ProfileLevel::Records, true).await;
    let counters = session(database, ProfileLevel::Counters, false).await;
    let calls = session_of_other_plans(database, ProfileLevel::Calls).await;
    let sorted = session_of_other_plans(database, ProfileLevel::Records).await;
    let (mut valid, mut rows) = (0, 0);
    let mut all = 0;
    for (number, (case, random)) in cases(queries).enumerate() {
        let mut generator = Generator::new(random);
        let (sql, order) = generator.query();
        let skip = generator.below(3) == 0;
        let (plain, records) = if skip {
            (&plain_skipping, &records_skipping)
        } else {
            (&plain, &records)
        };
        let others = [&counters, &calls, &sorted][number % 3];
        all += 1;
        let expected = run(plain, &sql).await;
        if let (Some(order), Ok(_)) = (&order, &expected) {
            assert_ordered(plain, &sql, order, &case).await;
        }
        for (level, session) in [("records", records), ("another level", others)] {
            let profiled = run(session, &sql).await;
            match (&expected, profiled) {
                (Ok((schema, expected, _)), Ok((profiled_schema, mut profiled, _))) => {
                    assert!(
                        is_as(schema, &profiled_schema),
                        "{case}, {level}:\n{sql}\n{schema:?} {profiled_schema:?}"
                    );
                    let mut expected = expected.clone();
                    if order.is_none() {
                        expected.sort();
                        profiled.sort();
                    }
                    assert_eq!(expected, profiled, "{case}, {level}:\n{sql}");
                }
                (Err(expected), Err(profiled)) => {
                    assert_eq!(*expected, profiled, "{case}, {level}:\n{sql}");
                }
                (Ok(_), Err(error)) => panic!("{case}, only at {level}: {error}\n{sql}"),
                (Err(error), Ok(_)) => panic!("{case}, only at off: {error}\n{sql}"),
            }
        }
        if let Ok((_, expected, _)) = expected {
            valid += 1;
            rows += usize::from(!expected.is_empty());
        }
    }
    // What the generator gives is what the planner can plan, nearly always, and has rows.
    assert!(valid * 10 >= all * 9, "{valid} of {all} queries are valid");
    assert!(rows * 2 >= all, "{rows} of {all} queries have rows");
}

/// Whether a profiled query's schema is that of the query. The planner may know of more of its columns that
/// they are never NULL.
fn is_as(schema: &Schema, profiled: &Schema) -> bool {
    schema.fields().len() == profiled.fields().len()
        && schema
            .fields()
            .iter()
            .zip(profiled.fields())
            .all(|(one, other)| {
                one.name() == other.name()
                    && one.data_type() == other.data_type()
                    && (one.is_nullable() || !other.is_nullable())
            })
}

/// What `sql` returns is in the order of these columns, NULL last, and is what it returns unordered.
async fn assert_ordered(session: &Session, sql: &str, order: &[usize], case: &str) {
    let batches = session.sql(sql).await.unwrap().collect().await.unwrap();
    let (unordered, _) = sql.rsplit_once(" ORDER BY ").expect("an order");
    let (_, mut unordered, _) = run(session, unordered).await.unwrap();
    let mut found = lines(&batches).unwrap();
    found.sort();
    unordered.sort();
    assert_eq!(unordered, found, "{case}:\n{sql}");
    let last = SortOptions::new(false, false);
    let mut before: Option<OwnedRow> = None;
    for batch in batches {
        let schema = batch.schema();
        let keys = order.iter().map(|c| {
            let kind = schema.field(*c).data_type().clone();
            SortField::new_with_options(kind, last)
        });
        let converter = RowConverter::new(keys.collect()).unwrap();
        let columns: Vec<_> = order.iter().map(|c| batch.column(*c).clone()).collect();
        for row in &converter.convert_columns(&columns).unwrap() {
            let in_order = before.as_ref().is_none_or(|before| before.row() <= row);
            assert!(in_order, "{case}: rows are not in order\n{sql}");
            before = Some(row.owned());
        }
    }
}
