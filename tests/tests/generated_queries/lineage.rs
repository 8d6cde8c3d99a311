//! The lineage of each row is what the naive evaluator says.

use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt;
use skewer::{Database, ProfileLevel, Session};
use skewer_tests::cluster::Cluster;
use skewer_tests::contents::query;

use crate::cases::{cases, run, session, session_of_filtering_scans, session_of_other_plans};
use crate::naive::{Base, Naive, Tables, VIEW, Value, in_order};

/// Tiny tables `t(a, b)` and `u(a, b)` of several segments, and what is in them.
pub async fn tiny_tables(database: &Database) -> Tables {
    let session = database.session();
    let mut tables = Tables::new();
    for (number, table) in ["t", "u"].into_iter().enumerate() {
        session
            .sql(&format!("CREATE TABLE {table} (a BIGINT, b BIGINT)"))
            .await
            .unwrap();
        for segment in 0..3 {
            let rows = (segment * 3..segment * 3 + 3).map(|row| {
                let a = if (row + number) % 5 == 2 {
                    "NULL".to_owned()
                } else {
                    (row % 3).to_string()
                };
                format!("({a}, {})", row * (row + number) % 4)
            });
            let rows: Vec<_> = rows.collect();
            let sql = format!("INSERT INTO {table} VALUES {}", rows.join(", "));
            session.sql(&sql).await.unwrap();
        }
        let rows = query(&session, &format!("SELECT _row_id, a, b FROM {table}"))
            .await
            .unwrap();
        let rows = rows.iter().map(|line| {
            let mut values = line.split('|').map(|value| value.parse().ok());
            (values.next().flatten().expect("an id"), values.collect())
        });
        tables.insert(table, rows.collect());
    }
    database.session().sql(VIEW).await.unwrap();
    tables
}

fn table(log_name: &str) -> &'static str {
    match log_name {
        "main.t" => "t",
        "main.u" => "u",
        other => panic!("no rows of a table {other} are in the query"),
    }
}

/// The lineage of each result row that has one, by its number, followed edge by edge through the
/// log.
pub async fn logged_lineage(session: &Session, query_id: i64) -> BTreeMap<usize, BTreeSet<Base>> {
    let fields = |line: &str| line.split('|').map(str::to_owned).collect::<Vec<_>>();
    let sql = format!(
        "SELECT operator_id, output_id, input_operator_id, input_id, table_name \
         FROM sys.lineage WHERE query_id = {query_id}"
    );
    let mut edges: BTreeMap<(String, String), Vec<Vec<String>>> = BTreeMap::new();
    for line in query(session, &sql).await.unwrap() {
        let edge = fields(&line);
        edges
            .entry((edge[0].clone(), edge[1].clone()))
            .or_default()
            .push(edge[2..].to_vec());
    }
    let sql = format!(
        "SELECT output_row, operator_id, record_id, table_name \
         FROM sys.output_records WHERE query_id = {query_id} AND record_id IS NOT NULL"
    );
    let mut lineage: BTreeMap<usize, BTreeSet<Base>> = BTreeMap::new();
    for line in query(session, &sql).await.unwrap() {
        let record = fields(&line);
        let of_row = lineage.entry(record[0].parse().unwrap()).or_default();
        let mut open = vec![record[1..].to_vec()];
        while let Some(record) = open.pop() {
            if record[2] == "NULL" {
                let key = (record[0].clone(), record[1].clone());
                open.extend(edges.get(&key).cloned().unwrap_or_default());
            } else {
                of_row.insert((table(&record[2]), record[1].parse().unwrap()));
            }
        }
    }
    lineage
}

/// The lineage of one result row as `backward_trace` gives it.
async fn traced(session: &Session, query_id: i64, row: usize) -> BTreeSet<Base> {
    let sql = format!("SELECT table_name, row_id FROM backward_trace({query_id}, {row})");
    let lines = query(session, &sql).await.unwrap();
    let mut lineage = BTreeSet::new();
    for line in &lines {
        let (name, id) = line.split_once('|').unwrap();
        let new = lineage.insert((table(name), id.parse().unwrap()));
        assert!(new, "backward_trace gives {line} twice");
    }
    lineage
}

/// For equal rows: how many, and the lineage of all of them together.
fn by_values(rows: Vec<(String, BTreeSet<Base>)>) -> BTreeMap<String, (usize, BTreeSet<Base>)> {
    let mut groups: BTreeMap<String, (usize, BTreeSet<Base>)> = BTreeMap::new();
    for (values, lineage) in rows {
        let group = groups.entry(values).or_default();
        group.0 += 1;
        group.1.extend(lineage);
    }
    groups
}

#[tokio::test]
async fn lineage_is_what_a_naive_evaluator_says() {
    agrees_with_the_naive_evaluator(&Database::builder().worker_threads(3).build().unwrap()).await;
}

#[tokio::test]
async fn lineage_across_three_workers_is_what_a_naive_evaluator_says() {
    let database = Database::builder().worker_threads(2).workers(3);
    let database = database.build().unwrap();
    agrees_with_the_naive_evaluator(&database).await;
    lineage_crossed(&database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lineage_across_three_processes_is_what_a_naive_evaluator_says() {
    let cluster = Cluster::start(3);
    agrees_with_the_naive_evaluator(cluster.database()).await;
    lineage_crossed(cluster.database()).await;
}

/// Many queries logged lineage on several workers.
async fn lineage_crossed(database: &Database) {
    let crossed = "SELECT count(DISTINCT query_id) FROM sys.lineage WHERE worker_id > 0";
    let rows = query(&database.session(), crossed).await.unwrap();
    let queries: u64 = rows[0].parse().unwrap();
    assert!(
        queries > 20,
        "only {queries} queries logged lineage on several workers"
    );
}

#[tokio::test]
async fn the_first_of_rows_that_tie_have_their_own_lineage() {
    ties_agree(&Database::builder().worker_threads(3).build().unwrap()).await;
}

#[tokio::test]
async fn the_first_of_rows_that_tie_have_their_own_lineage_across_three_workers() {
    let database = Database::builder().worker_threads(2).workers(3);
    ties_agree(&database.build().unwrap()).await;
}

/// Which of rows that tie are the first is open: they are any of them, each with its lineage.
async fn ties_agree(database: &Database) {
    let tables = tiny_tables(database).await;
    let session = session(database, ProfileLevel::Records, false).await;
    let (mut checked, mut ties) = (0, 0);
    for (case, mut random) in cases(60) {
        let depth = random.random_range(0..=3);
        let naive = Naive::generate(&mut random, depth);
        let all = naive.evaluate(&tables);
        let (by, limit) = (
            random.random_range(0..naive.width()),
            random.random_range(1..6),
        );
        if all.len() > 200 {
            continue;
        }
        let mut keys: Vec<Value> = all.iter().map(|(values, _)| values[by]).collect();
        keys.sort();
        ties += usize::from(keys.len() > limit && keys[limit - 1] == keys[limit]);
        keys.truncate(limit);
        let sql = format!(
            "SELECT * FROM ({}) AS q ORDER BY {} LIMIT {limit}",
            naive.sql(),
            in_order([by].into_iter())
        );
        let (_, rows, query_id) = run(&session, &sql)
            .await
            .unwrap_or_else(|error| panic!("{case}: {error}\n{sql}"));
        let mut lineage = logged_lineage(&session, query_id).await;
        let first: Vec<Value> = rows
            .iter()
            .map(|row| row.split('|').nth(by).and_then(|value| value.parse().ok()))
            .collect();
        assert_eq!(first, keys, "{case}: keys\n{sql}");
        let simplified = is_simplified(&session, query_id, &naive).await;
        let mut left: Vec<(String, BTreeSet<Base>)> = all
            .into_iter()
            .map(|(values, from)| (as_line(&values), from))
            .collect();
        let mut others = Vec::new();
        for (number, row) in rows.into_iter().enumerate() {
            let it = (row, lineage.remove(&number).unwrap_or_default());
            match left.iter().position(|whole| *whole == it) {
                Some(same) => {
                    left.swap_remove(same);
                }
                None => others.push(it),
            }
            checked += 1;
        }
        // What one row was made of in part must not be taken for what another was made of.
        for (row, from) in others {
            let is_it = |(values, whole): &(String, BTreeSet<Base>)| {
                simplified && *values == row && from.is_subset(whole)
            };
            let Some(it) = left.iter().position(is_it) else {
                panic!("{case}: a row is {row} of {from:?}, left are {left:?}\n{sql}");
            };
            left.swap_remove(it);
        }
    }
    assert!(checked > 60, "only {checked} rows were checked");
    assert!(ties > 10, "only {ties} limits were among rows that tie");
}

async fn agrees_with_the_naive_evaluator(database: &Database) {
    let tables = tiny_tables(database).await;
    let whole = session(database, ProfileLevel::Records, false).await;
    let skipping = session(database, ProfileLevel::Records, true).await;
    let otherwise = session_of_other_plans(database, ProfileLevel::Records).await;
    let filtering = session_of_filtering_scans(database, ProfileLevel::Records).await;
    let (mut checked, mut compared, mut simplified) = (0, 0, 0);
    let mut kinds = BTreeSet::new();
    for (number, (case, mut random)) in cases(250).enumerate() {
        let depth = random.random_range(1..=4);
        let naive = Naive::generate(&mut random, depth);
        let expected = naive.evaluate(&tables);
        if expected.len() > 200 {
            continue;
        }
        compared += 1;
        let sql = naive.sql();
        let session = match random.random_range(0..5) {
            0 => &skipping,
            1 => &otherwise,
            2 => &filtering,
            _ => &whole,
        };
        let (_, rows, query_id) = run(session, &sql)
            .await
            .unwrap_or_else(|error| panic!("{case}: {error}\n{sql}"));
        let mut lineage = logged_lineage(session, query_id).await;
        let lineage: Vec<BTreeSet<Base>> = (0..rows.len())
            .map(|row| lineage.remove(&row).unwrap_or_default())
            .collect();
        // SQL over the log agrees with the log: one row of each query, all rows of some.
        let some = if rows.is_empty() {
            0
        } else {
            random.random_range(0..rows.len())
        };
        for (row, logged) in lineage.iter().enumerate().take(12) {
            if row == some || number % 20 == 0 {
                let traced = traced(session, query_id, row).await;
                assert_eq!(
                    &traced, logged,
                    "{case}: backward_trace of row {row}\n{sql}"
                );
            }
        }
        let mut expected: Vec<_> = expected
            .into_iter()
            .map(|(values, from)| (as_line(&values), from))
            .collect();
        let mut found: Vec<_> = rows.into_iter().zip(lineage).collect();
        expected.sort();
        found.sort();
        if expected == found {
            checked += found.len();
            if !found.is_empty() {
                naive.kinds(&mut kinds);
            }
            continue;
        }
        assert!(
            is_simplified(session, query_id, &naive).await,
            "{case}: expected and found rows with their lineage: {expected:?} {found:?}\n{sql}"
        );
        simplified += 1;
        let whole = by_values(expected);
        let part = by_values(found);
        assert!(whole.keys().eq(part.keys()), "{case}: rows\n{sql}");
        for (values, (rows, lineage)) in &part {
            let (all_rows, all) = &whole[values];
            assert_eq!(rows, all_rows, "{case}: rows {values}\n{sql}");
            assert!(lineage.is_subset(all), "{case}: lineage of {values}\n{sql}");
        }
    }
    assert!(checked > 200, "only {checked} rows were checked");
    let merged = "SELECT count(*) > 0 FROM sys.operators WHERE name = 'SortMergeJoinExec'";
    assert_eq!(query(&whole, merged).await.unwrap(), ["true"]);
    let filtered =
        "SELECT count(DISTINCT query_id) FROM sys.fragments WHERE plan LIKE '%DynamicFilter%'";
    let filtered: u64 = query(&whole, filtered).await.unwrap()[0].parse().unwrap();
    assert!(
        filtered > 20,
        "only {filtered} queries with dynamic filters"
    );
    assert_eq!(kinds.len(), Naive::KINDS, "only of these kinds: {kinds:?}");
    assert!(
        simplified * 8 < compared,
        "{simplified} of {compared} queries were simplified by the planner"
    );
}

pub fn as_line(values: &[Value]) -> String {
    let text = |value: &Value| value.map_or("NULL".to_owned(), |number| number.to_string());
    values.iter().map(text).collect::<Vec<_>>().join("|")
}

/// An aggregate of which only is used that it has one row is not computed, nor is an outer join of
/// which nothing is used, nor a window function that nobody asks for. How often that may be is asserted.
pub async fn is_simplified(session: &Session, query_id: i64, naive: &Naive) -> bool {
    let sql = format!(
        "SELECT count(*) FILTER (WHERE name = 'PlaceholderRowExec') > 0 \
           OR count(*) FILTER (WHERE name LIKE '%Join%') < {} \
           OR coalesce(sum(regexp_count(details, \
                    '(=\\[|, )(sum|lag|lead|first_value|last_value|nth_value)\\(')) \
                       FILTER (WHERE name LIKE '%Window%'), 0) < {} \
         FROM sys.operators WHERE query_id = {query_id}",
        naive.joins(),
        naive.windows()
    );
    naive.is_dependent() || query(session, &sql).await.unwrap() == ["true"]
}

#[tokio::test]
async fn what_three_workers_write_has_the_lineage_that_a_naive_evaluator_says() {
    let database = Database::builder().worker_threads(2).workers(3);
    writes_agree_with_the_naive_evaluator(&database.build().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_three_processes_write_has_the_lineage_that_a_naive_evaluator_says() {
    let cluster = Cluster::start(3);
    writes_agree_with_the_naive_evaluator(cluster.database()).await;
}

/// Tables made of queries have their rows, and the lineages of the rows are theirs; which row has
/// which number is not known.
async fn writes_agree_with_the_naive_evaluator(database: &Database) {
    let tables = tiny_tables(database).await;
    let session = session(database, ProfileLevel::Records, false).await;
    let (mut written_apart, mut compared, mut simplified, mut checked) = (0, 0, 0, 0);
    for (case, mut random) in cases(60) {
        let depth = random.random_range(1..=4);
        let naive = Naive::generate(&mut random, depth);
        let expected = naive.evaluate(&tables);
        if expected.len() > 200 {
            continue;
        }
        compared += 1;
        let create = match random.random_range(0..3) {
            0 => "CREATE OR REPLACE TABLE w PARTITION BY HASH (c0) AS",
            _ => "CREATE OR REPLACE TABLE w AS",
        };
        let sql = format!("{create} {}", naive.sql());
        let (_, _, query_id) = run(&session, &sql)
            .await
            .unwrap_or_else(|error| panic!("{case}: {error}\n{sql}"));
        let logged = logged_lineage(&session, query_id).await;
        for (row, lineage) in logged.iter().take(2) {
            let traced = traced(&session, query_id, *row).await;
            assert_eq!(
                &traced, lineage,
                "{case}: backward_trace of row {row}\n{sql}"
            );
        }
        let mut logged: Vec<_> = logged.into_values().collect();
        let mut lines: Vec<_> = expected.iter().map(|(values, _)| as_line(values)).collect();
        let mut lineages: Vec<_> = expected.into_iter().map(|(_, from)| from).collect();
        // A row may be made of no record, or of a group without records.
        lineages.retain(|lineage| !lineage.is_empty());
        logged.retain(|lineage| !lineage.is_empty());
        let mut rows = query(&session, "SELECT * FROM w").await.unwrap();
        rows.sort();
        lines.sort();
        assert_eq!(rows, lines, "{case}\n{sql}");
        lineages.sort();
        logged.sort();
        if lineages == logged {
            checked += logged.len();
        } else {
            assert!(
                is_simplified(&session, query_id, &naive).await,
                "{case}: expected and found lineage: {lineages:?} {logged:?}\n{sql}"
            );
            simplified += 1;
        }
        let writers = format!(
            "SELECT count(DISTINCT s.worker_id) FROM sys.operator_stats s JOIN sys.operators o
               ON s.query_id = o.query_id AND s.operator_id = o.operator_id
             WHERE s.query_id = {query_id} AND o.name = 'WriteSegmentsExec'"
        );
        let writers = query(&session, &writers).await.unwrap();
        written_apart += usize::from(writers != ["0"] && writers != ["1"]);
    }
    assert!(
        written_apart > 10,
        "only {written_apart} were written where they were made"
    );
    assert!(checked > 100, "only {checked} rows were checked");
    assert!(
        simplified * 8 < compared,
        "{simplified} of {compared} queries were simplified by the planner"
    );
}
