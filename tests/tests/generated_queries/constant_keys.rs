//! Groups are the same whether or not the planner sees that a key has one value.

use skewer::{Database, ProfileLevel};

use crate::cases::{cases, run, session};
use crate::generator::{Generator, Type};
use crate::same_results::tables;

/// Groups by a key that has one value, which the planner sees, and by the same behind a function; `None` without a key.
fn queries(generator: &mut Generator) -> Option<[String; 2]> {
    let relation = generator.relation(2);
    let types = relation.types.iter().enumerate();
    let integers = types.filter(|(_, kind)| **kind == Type::Integer);
    let integers: Vec<usize> = integers.map(|(column, _)| column).collect();
    let most = integers.len();
    let key = *integers.get(generator.below(most.max(1)))?;
    let other = generator.below(relation.types.len());
    let value = generator.below(3);
    let shape = generator.below(3);
    Some([format!("r.c{key}"), format!("same(r.c{key})")].map(|compared| {
        let groups = format!(
            "SELECT r.c{other} AS o, r.c{key} AS k, count(*) AS n, max(r.c{other}) AS m
             FROM {} AS r WHERE {compared} = {value} GROUP BY r.c{other}, r.c{key}",
            relation.sql
        );
        match shape {
            0 => groups,
            1 => format!("SELECT g.k, max(g.n) AS n FROM ({groups}) AS g RIGHT JOIN u ON u.a = g.k GROUP BY g.k"),
            _ => format!(
                "SELECT DISTINCT k, n FROM (SELECT k, n FROM ({groups}) AS g UNION ALL SELECT a, 1 FROM t) AS q"
            ),
        }
    }))
}

#[tokio::test]
async fn a_key_with_one_value_makes_the_groups_that_it_makes_behind_a_function() {
    let database = Database::builder().worker_threads(3).build().unwrap();
    tables(&database).await;
    let (mut compared, mut had_rows) = (0, 0);
    for level in [ProfileLevel::Off, ProfileLevel::Records] {
        let session = session(&database, level, false).await;
        for (case, random) in cases(80) {
            let Some([seen, hidden]) = queries(&mut Generator::new(random)) else {
                continue;
            };
            let Ok((_, mut expected, _)) = run(&session, &hidden).await else {
                continue;
            };
            let found = run(&session, &seen).await;
            let (_, mut found, _) = found.unwrap_or_else(|error| panic!("{case}: {error}\n{seen}"));
            expected.sort();
            found.sort();
            assert_eq!(found, expected, "{case}:\n{seen}");
            compared += 1;
            had_rows += usize::from(!expected.is_empty());
        }
    }
    assert!(compared > 80, "{compared} queries were compared");
    assert!(had_rows > 40, "{had_rows} of them returned rows");
}
