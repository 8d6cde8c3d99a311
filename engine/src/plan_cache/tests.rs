use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Volatility;

use crate::{Database, Session};

const TABLES: &str = "
    CREATE TABLE sale AS SELECT value AS id, value % 300 AS shop, value * 7 % 4000 AS item FROM generate_series(0, 19999);
    CREATE TABLE item AS SELECT value AS id, 'item ' || (value % 50) AS name FROM generate_series(0, 3999);
    CREATE TABLE shop AS SELECT value AS id, value % 3 AS region FROM generate_series(0, 299);
    CREATE VIEW near AS SELECT * FROM shop WHERE region = 1";

async fn rows(session: &Session, sql: &str) -> Vec<RecordBatch> {
    let stream = session
        .sql(sql)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    stream
        .collect()
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"))
}

async fn text(session: &Session, sql: &str) -> String {
    pretty_format_batches(&rows(session, sql).await)
        .unwrap()
        .to_string()
}

fn kept(session: &Session) -> usize {
    session.database_inner().plans.len()
}

async fn with_tables() -> Session {
    let session = Database::in_memory().unwrap().session();
    session.execute_script(TABLES).await.unwrap();
    session
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_returns_the_same_from_its_kept_plan() {
    let session = with_tables().await;
    for query in [
        "SELECT count(*) FROM sale",
        "SELECT * FROM sale WHERE id = 77",
        "SELECT _row_id, id FROM shop WHERE id < 3 ORDER BY id",
        "SELECT id FROM sale ORDER BY item DESC, id LIMIT 7",
        "SELECT id FROM sale ORDER BY item, id OFFSET 19990",
        "SELECT region, count(*), max(id) FROM near GROUP BY region",
        "SELECT i.name, count(*) FROM sale s JOIN item i ON s.item = i.id JOIN shop h ON s.shop = h.id \
         WHERE h.region = 1 GROUP BY i.name ORDER BY i.name LIMIT 5",
        "SELECT count(*) FROM sale LEFT JOIN item ON sale.item = item.id AND item.name = 'item 3' WHERE item.id IS NULL",
        "SELECT count(*) FROM shop a JOIN shop b ON a.id < b.id",
        "SELECT count(*) FROM shop WHERE id IN (SELECT shop FROM sale WHERE item < 40)",
        "SELECT count(*) FROM shop h WHERE NOT EXISTS (SELECT 1 FROM sale s WHERE s.shop = h.id AND item < 4000)",
        "SELECT id, (SELECT max(s.id) FROM sale s WHERE s.shop = h.id) FROM shop h ORDER BY id LIMIT 3",
        "SELECT count(*) FROM sale WHERE item > (SELECT avg(item) FROM sale)",
        "WITH made AS (SELECT shop, sum(item) AS s FROM sale GROUP BY shop HAVING sum(item) > 0) \
         SELECT count(*) FROM made a JOIN made b ON a.shop = b.shop + 1",
        "SELECT id, row_number() OVER (PARTITION BY region ORDER BY id), sum(id) OVER (ORDER BY id) FROM shop \
         ORDER BY id LIMIT 5",
        "SELECT max(id), min(item) FROM sale",
        "SELECT DISTINCT region FROM shop UNION ALL SELECT id FROM shop WHERE id < 2 ORDER BY 1",
        "SELECT region, count(*) FROM shop GROUP BY ROLLUP (region) ORDER BY 1",
        "SELECT 1 + 1",
    ] {
        session.sql("SET plan_cache = off").await.unwrap();
        let expected = text(&session, query).await;
        session.sql("RESET plan_cache").await.unwrap();
        let before = kept(&session);
        for run in 0..5 {
            assert_eq!(
                text(&session, query).await,
                expected,
                "run {run} of {query}"
            );
        }
        assert_eq!(kept(&session), before + 1, "{query}");
        for level in ["off", "calls", "records"] {
            session
                .sql(&format!("SET profile.level = '{level}'"))
                .await
                .unwrap();
            assert_eq!(text(&session, query).await, expected, "{level}: {query}");
        }
        session.sql("RESET profile.level").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_comes_twice_before_its_plan_is_kept() {
    let session = with_tables().await;
    for expected in [0, 1, 1] {
        rows(&session, "SELECT count(*) FROM shop").await;
        assert_eq!(kept(&session), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_tables_have_new_plans() {
    let session = with_tables().await;
    let count = async |sql: &str| {
        rows(&session, sql).await[0]
            .column(0)
            .as_primitive::<Int64Type>()
            .value(0)
    };
    for (change, expected) in [
        ("INSERT INTO shop VALUES (300, 1)", 301),
        ("DELETE FROM shop WHERE id = 0", 300),
        ("UPDATE shop SET region = NULL WHERE id = 1", 299),
        ("ALTER TABLE shop ADD COLUMN name VARCHAR", 299),
        (
            "DROP TABLE shop; CREATE TABLE shop AS SELECT 1 AS id, 2 AS region",
            1,
        ),
    ] {
        for _ in 0..3 {
            count("SELECT count(region) FROM shop").await;
            count("SELECT count(*) FROM sale").await;
        }
        assert_eq!(kept(&session), 2);
        session.execute_script(change).await.unwrap();
        // The plan of the other table is still there.
        assert_eq!(kept(&session), 1, "{change}");
        assert_eq!(
            count("SELECT count(region) FROM shop").await,
            expected,
            "{change}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_view_has_a_new_plan() {
    let session = with_tables().await;
    let query = "SELECT count(*) FROM near";
    for _ in 0..3 {
        assert!(text(&session, query).await.contains("100"));
    }
    session
        .execute_script("CREATE OR REPLACE VIEW near AS SELECT * FROM shop WHERE id = 1")
        .await
        .unwrap();
    assert!(text(&session, query).await.contains("| 1 "));
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_and_sessions_have_plans_of_their_own() {
    let session = with_tables().await;
    let query = "SELECT id FROM shop WHERE id < 3";
    let run = async |session: &Session| {
        for _ in 0..3 {
            rows(session, query).await;
        }
        kept(session)
    };
    assert_eq!(run(&session).await, 1);
    // Another session with the same settings shares them.
    assert_eq!(run(&session.database().session()).await, 1);
    session.sql("SET threads = 3").await.unwrap();
    assert_eq!(run(&session).await, 2);
    session.sql("RESET threads").await.unwrap();
    assert_eq!(run(&session).await, 2);
    session.sql("SET join_order = 'text'").await.unwrap();
    assert_eq!(run(&session).await, 3);
    session.sql("SET plan_cache = off").await.unwrap();
    session.sql("SET cardinality_feedback = off").await.unwrap();
    assert_eq!(run(&session).await, 3);
    assert!(text(&session, "SHOW plan_cache").await.contains("off"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_change_has_no_kept_plan() {
    let session = with_tables().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.csv");
    std::fs::write(&path, "a\n1\n").unwrap();
    let file = format!("SELECT * FROM '{}'", path.display());
    for query in [
        "SELECT now(), id FROM shop LIMIT 1",
        "SELECT count(*) FROM shop WHERE random() < 2",
        "SELECT last_query_id()",
        "SELECT count(*) FROM sys.queries",
        "EXPLAIN SELECT count(*) FROM shop",
        "SELECT count(*) FROM generate_series(1, 3)",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT count(*) FROM r",
        &file,
    ] {
        for _ in 0..3 {
            rows(&session, query).await;
        }
        assert_eq!(kept(&session), 0, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_was_registered_again_is_another_one() {
    let session = with_tables().await;
    let query = "SELECT marked(id) FROM shop WHERE id = 7";
    for mark in ["a", "b"] {
        session.register_row_udf(
            "marked",
            vec![DataType::Int64],
            DataType::Utf8,
            Volatility::Immutable,
            move |args| Ok(ScalarValue::from(format!("{mark}{}", args[0]))),
        );
        for _ in 0..3 {
            let found = text(&session, query).await;
            assert!(found.contains(&format!("{mark}7")), "{found}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_at_the_same_time_share_nothing_that_changes() {
    let session = with_tables().await;
    let query = "WITH made AS (SELECT shop, sum(item) AS s FROM sale GROUP BY shop HAVING sum(item) > 0) \
                 SELECT a.shop, a.s FROM made a JOIN made b ON a.shop = b.shop + 1 JOIN shop ON shop.id = a.shop \
                 ORDER BY a.s DESC, a.shop LIMIT 4";
    let expected = text(&session, query).await;
    for _ in 0..3 {
        rows(&session, query).await;
    }
    let runs = (0..16).map(|_| {
        let session = session.database().session();
        tokio::spawn(async move { text(&session, query).await })
    });
    for run in runs.collect::<Vec<_>>() {
        assert_eq!(run.await.unwrap(), expected);
    }
}

/// Counters of a run are its own, not the sum of all runs that had the same plan.
#[tokio::test(flavor = "multi_thread")]
async fn each_run_counts_for_itself() {
    let session = with_tables().await;
    let query =
        "SELECT count(*) FROM sale JOIN item ON sale.item = item.id WHERE item.name = 'item 7'";
    let counts = async || {
        rows(&session, query).await;
        let counts = "SELECT operator_id, metric, sum(value) FROM sys.operator_metrics \
                      WHERE query_id = last_query_id() AND metric NOT LIKE '%_ns' AND metric NOT LIKE '%mem%' \
                      GROUP BY operator_id, metric ORDER BY operator_id, metric";
        text(&session, counts).await
    };
    for _ in 0..3 {
        counts().await;
    }
    let from_kept_plan = [counts().await, counts().await];
    session.sql("SET plan_cache = off").await.unwrap();
    let expected = counts().await;
    assert!(expected.contains("build_input_rows"), "{expected}");
    for counted in from_kept_plan {
        assert_eq!(counted, expected);
    }
}
