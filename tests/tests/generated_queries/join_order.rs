//! Queries return the same in whatever order their tables are joined.

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use skewer::{Database, ProfileLevel, Session};

use crate::cases::{cases, run, session};
use crate::generator::Generator;
use crate::same_results::tables;

/// A query that joins three to six relations by conditions of all kinds, some of them below others; and one that
/// counts its rows before they are aggregated.
pub fn query(generator: &mut Generator) -> (String, String) {
    let relations = 3 + generator.below(4);
    let mut from = String::new();
    let mut conditions: Vec<String> = Vec::new();
    for number in 0..relations {
        let name = format!("j{number}");
        let relation = match generator.below(10) {
            0 => "(SELECT t.a, u.d AS b FROM t JOIN u ON t.a = u.a)".to_owned(),
            1 => "(SELECT x.a, y.b FROM t AS x JOIN t AS y ON x.b = y.a WHERE x.f < 3)".to_owned(),
            2 => "(SELECT a, count(*) AS b FROM u GROUP BY a)".to_owned(),
            3 => "(SELECT u.a, u.d AS b FROM u LEFT JOIN t ON u.d = t.b)".to_owned(),
            4 => "(SELECT a, d AS b FROM u WHERE d IN (SELECT b FROM t))".to_owned(),
            5 => "(SELECT a, d AS b FROM u)".to_owned(),
            7 => "(SELECT a, b FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.d <> t.b))".to_owned(),
            8 => "(SELECT a, d AS b FROM u WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.a = u.a AND t.b >= u.d))".to_owned(),
            6 => "(SELECT max(a) AS a, min(b) AS b FROM t)".to_owned(),
            _ => "(SELECT a, b FROM t)".to_owned(),
        };
        let earlier = format!("j{}", generator.below(number.max(1)));
        let column = ["a", "b"][generator.below(2)];
        let other = ["a", "b"][generator.below(2)];
        let condition = match generator.below(10) {
            0 => format!("{name}.{column} < {earlier}.{other}"),
            1 => format!("{name}.{column} + 1 = {earlier}.{other}"),
            2 => format!("{name}.a + {name}.b = {earlier}.{other} + {earlier}.a"),
            3 => format!("({name}.a = {earlier}.a OR {name}.b = 1 AND {earlier}.b = 2)"),
            4 => format!("{name}.{column} = {earlier}.{other} AND {name}.b <> 4"),
            5 => format!("{name}.a = {earlier}.a AND {name}.b = {earlier}.b"),
            _ => format!("{name}.{column} = {earlier}.{other}"),
        };
        match (number, generator.below(5)) {
            (0, _) => from = format!("{relation} AS {name}"),
            (_, 0) => {
                from += &format!(", {relation} AS {name}");
                conditions.push(condition);
            }
            (_, 1) => from = format!("{from} LEFT JOIN {relation} AS {name} ON {condition}"),
            _ => from = format!("{from} JOIN {relation} AS {name} ON {condition}"),
        }
    }
    if generator.below(3) == 0 {
        conditions.push("j0.a + j1.b + j2.a < 9".to_owned());
    }
    if generator.below(4) == 0 {
        conditions.push("j1.a >= (SELECT min(b) FROM t)".to_owned());
    }
    let columns = (0..relations).map(|number| format!("j{number}.a, j{number}.b"));
    let columns = match generator.below(3) {
        0 => "count(*), sum(j0.a), sum(j1.b), max(j2.a)".to_owned(),
        1 => "*".to_owned(),
        _ => columns.collect::<Vec<_>>().join(", "),
    };
    let condition = match conditions.is_empty() {
        true => String::new(),
        false => format!(" WHERE {}", conditions.join(" AND ")),
    };
    let rest = format!("FROM {from}{condition}");
    (
        format!("SELECT {columns} {rest}"),
        format!("SELECT count(*) {rest}"),
    )
}

/// Rows of the widest queries that are compared.
const MOST_ROWS: usize = 20_000;

/// A query, if the other one, which counts its rows, finds few.
pub async fn few_rows(session: &Session, (sql, count): (String, String)) -> Option<String> {
    let (_, rows, _) = run(session, &count).await.ok()?;
    let rows: usize = rows.first()?.parse().ok()?;
    (rows <= MOST_ROWS).then_some(sql)
}

/// Checks that all queries have counted as many rows of a relation, in whatever order they joined; at least `least`
/// relations were counted several times.
pub async fn relations_have_one_size(session: &Session, least: usize) {
    let counted = "SELECT relation, count(*) AS times, min(returned_rows) AS fewest, max(returned_rows) AS most, \
                   min(query_id) AS first, max(query_id) AS last, min(details) AS one, max(details) AS other \
                   FROM sys.cardinalities GROUP BY relation";
    let sql = format!("SELECT count(*) FROM ({counted}) WHERE times > 1");
    let (_, rows, _) = run(session, &sql).await.unwrap();
    let several: usize = rows[0].parse().unwrap();
    assert!(
        several >= least,
        "{several} relations were counted several times"
    );
    let sql = format!("SELECT * FROM ({counted}) WHERE fewest <> most");
    let (_, rows, _) = run(session, &sql).await.unwrap();
    assert_eq!(rows, [""; 0], "relations with several sizes");
}

async fn order(session: &Session, order: &str) {
    let sql = format!("SET join_order = '{order}'");
    session.sql(&sql).await.unwrap();
}

#[tokio::test]
async fn joins_in_any_order_return_what_they_return_as_written() {
    let database = Database::builder().worker_threads(3).build().unwrap();
    tables(&database).await;
    let written = session(&database, ProfileLevel::Off, false).await;
    let plain = session(&database, ProfileLevel::Off, false).await;
    let records = session(&database, ProfileLevel::Records, false).await;
    let counters = session(&database, ProfileLevel::Counters, false).await;
    order(&written, "text").await;
    let mut compared = 0;
    for (number, (case, random)) in cases(80).enumerate() {
        let mut generator = Generator::new(random);
        let (sql, sorted) = match number % 4 {
            3 => generator.query(),
            _ => match few_rows(&written, query(&mut generator)).await {
                Some(sql) => (sql, None),
                None => continue,
            },
        };
        let Ok((schema, mut expected, _)) = run(&written, &sql).await else {
            continue;
        };
        for (session, level, seed) in [
            (&plain, "off", number),
            (&counters, "counters", number),
            (&counters, "counters", number + 1_000),
            (&records, "records", number),
        ] {
            order(session, &format!("random {seed}")).await;
            let found = run(session, &sql).await;
            let (found_schema, mut found, _) =
                found.unwrap_or_else(|error| panic!("{case}, {level}: {error}\n{sql}"));
            if sorted.is_none() {
                expected.sort();
                found.sort();
            }
            // With record ids, plans of outer joins do not always tell that a column has no NULL.
            let columns = |schema: &SchemaRef| -> Vec<(String, DataType)> {
                let fields = schema.fields().iter();
                let columns = fields.map(|field| (field.name().clone(), field.data_type().clone()));
                columns.collect()
            };
            assert_eq!(
                columns(&schema),
                columns(&found_schema),
                "{case}, {level}:\n{sql}"
            );
            assert_eq!(expected, found, "{case}, {level}:\n{sql}");
        }
        compared += 1;
    }
    assert!(compared > 40, "{compared} queries were compared");
    relations_have_one_size(&counters, 60).await;
}
