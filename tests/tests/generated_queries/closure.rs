//! Recursive queries with UNION, which return a row once however often it is reached: its lineage is one
//! of those of the iteration that reached it first.

use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt;
use skewer::{Database, ProfileLevel};

use crate::cases::{cases, run, session, session_of_other_plans};
use crate::lineage::{as_line, is_simplified, logged_lineage, tiny_tables};
use crate::naive::{Base, Naive, Row, Step, Value};

/// The lineages that a row may have.
type Ways = BTreeSet<BTreeSet<Base>>;

/// Pairs of where one is and where one came from, with the ways that led there.
type Reached = BTreeMap<[Value; 2], Ways>;

/// More ways than these are not followed.
const MOST_WAYS: usize = 3_000;

#[tokio::test]
async fn a_row_reached_once_has_the_lineage_of_a_first_way() {
    agrees(&Database::builder().worker_threads(3).build().unwrap()).await;
}

#[tokio::test]
async fn a_row_reached_once_has_the_lineage_of_a_first_way_across_three_workers() {
    let database = Database::builder().worker_threads(2).workers(3);
    agrees(&database.build().unwrap()).await;
}

/// What is reached from column `c` of `start` by going from `n` to `(n + by) % 7` for each of `others` whose
/// column `from` is `n % 3`, `by` being its column `to`; and in how many iterations. Nothing if there are
/// too many ways.
fn closure(
    start: Vec<Row>,
    c: usize,
    others: &[Row],
    (from, to): (usize, usize),
) -> Option<(Reached, usize)> {
    let (mut reached, mut last) = (Reached::new(), Reached::new());
    for (values, made_of) in start {
        last.entry([values[c]; 2]).or_default().insert(made_of);
    }
    let mut iterations = 0;
    while !last.is_empty() {
        let mut next = Reached::new();
        for ([at, origin], ways) in &last {
            let Some(at) = at else {
                continue;
            };
            let along = others
                .iter()
                .filter(|(values, _)| values[from] == Some(at % 3));
            for (values, made_of) in along {
                let row = [values[to].map(|by| (at + by) % 7), *origin];
                if reached.contains_key(&row) || last.contains_key(&row) {
                    continue;
                }
                let longer = ways.iter().map(|way| way | made_of);
                next.entry(row).or_default().extend(longer);
            }
        }
        reached.extend(last);
        if next.values().map(Ways::len).sum::<usize>() > MOST_WAYS {
            return None;
        }
        last = next;
        iterations += 1;
    }
    Some((reached, iterations))
}

async fn agrees(database: &Database) {
    let tables = tiny_tables(database).await;
    let whole = session(database, ProfileLevel::Records, false).await;
    let otherwise = session_of_other_plans(database, ProfileLevel::Records).await;
    let (mut checked, mut open, mut deep) = (0, 0, 0);
    for (case, mut random) in cases(80) {
        let mut part = || {
            let depth = random.random_range(0..=2);
            Naive::generate(&mut random, depth)
        };
        let (start, other) = (part(), part());
        let mut column = |of: &Naive| random.random_range(0..of.width());
        let (c, along) = (column(&start), (column(&other), column(&other)));
        let others = other.evaluate(&tables);
        let started = start.evaluate(&tables);
        if started.len() > 200 || others.len() > 200 {
            continue;
        }
        let Some((mut expected, iterations)) = closure(started, c, &others, along) else {
            continue;
        };
        let sql = format!(
            "WITH RECURSIVE closure AS (\
               SELECT c{c} AS c0, c{c} AS c1 FROM ({}) AS q UNION \
               SELECT (r.c0 + o.c{}) % 7 AS c0, r.c1 AS c1 \
               FROM closure AS r JOIN ({}) AS o ON r.c0 % 3 = o.c{}\
             ) SELECT c0, c1 FROM closure",
            start.sql(),
            along.1,
            other.sql(),
            along.0
        );
        let session = match random.random_range(0..3) {
            0 => &otherwise,
            _ => &whole,
        };
        let (_, rows, query_id) = run(session, &sql)
            .await
            .unwrap_or_else(|error| panic!("{case}: {error}\n{sql}"));
        let mut lineage = logged_lineage(session, query_id).await;
        let (start, other) = (Box::new(start), Box::new(other));
        let like_it = Naive::Reached(start, other, c, along, 1, Step::Pairs);
        let simplified = is_simplified(session, query_id, &like_it).await;
        let mut left: BTreeMap<String, Ways> = BTreeMap::new();
        while let Some((row, ways)) = expected.pop_first() {
            left.insert(as_line(&row), ways);
        }
        for (number, row) in rows.into_iter().enumerate() {
            let from = lineage.remove(&number).unwrap_or_default();
            let Some(ways) = left.remove(&row) else {
                panic!("{case}: row {number} is {row}, left are {left:?}\n{sql}");
            };
            assert!(
                ways.contains(&from) || simplified && ways.iter().any(|way| from.is_subset(way)),
                "{case}: row {number}, {row}, is of {from:?}, not of one of {ways:?}\n{sql}"
            );
            checked += 1;
            open += usize::from(ways.len() > 1);
        }
        assert!(left.is_empty(), "{case}: {left:?} were not reached\n{sql}");
        deep += usize::from(iterations > 2);
    }
    assert!(checked > 100, "only {checked} rows were checked");
    assert!(
        open > 30,
        "only {open} rows could be reached in several ways"
    );
    assert!(
        deep > 10,
        "only {deep} queries had more than two iterations"
    );
}
