//! Two profiles beside each other.

use super::{documents, lines, number};

#[tokio::test(flavor = "multi_thread")]
async fn two_profiles_are_compared() {
    let session = documents().await;
    let query = "SELECT count(*), max(parse(line, 'txt')) FROM documents";
    let profile = format!("EXPLAIN PROFILE {query} WITHOUT (id = 1700)");
    lines(&session, &profile).await;
    let after = number(&session, "SELECT last_query_id()").await;
    let before = after - 1;
    let long = number(&session, "SELECT _row_id FROM documents WHERE id = 1700").await;
    let text = lines(&session, &format!("EXPLAIN PROFILE DIFF {before}, {after}")).await;
    let all = text.join("\n");
    let head = format!("Query {before} → query {after} · ");
    assert!(
        text[0].starts_with(&head) && text[0].contains("÷ "),
        "{all}"
    );
    let (_, plans) = text[0].split_once("different plans ").expect(&all);
    let (one, other) = plans.split_once(", ").expect(&all);
    assert!(one.len() == 8 && other.len() == 8 && one != other, "{all}");
    let record = format!("· Row {long} of documents: ");
    let only = format!("only in query {before}.");
    let found = text.iter().find(|line| line.contains(&record));
    assert!(found.is_some(), "{all}");
    assert!(all.contains(only.trim_end_matches('.')), "{all}");
    for line in &text {
        assert!(line.chars().count() <= 100, "{line}");
    }

    // The same query once more has the same plan.
    lines(&session, &format!("EXPLAIN PROFILE QUERY {before}")).await;
    let again = number(&session, "SELECT last_query_id()").await;
    let sql = format!("EXPLAIN PROFILE (FORMAT json) DIFF {before}, {again}");
    let json: serde_json::Value =
        serde_json::from_str(&lines(&session, &sql).await.join("\n")).unwrap();
    assert_eq!(json["same_plan"], true);
    let (one, other) = (&json["before"], &json["after"]);
    assert!(one["plan_fingerprint"].is_string(), "{json}");
    assert_eq!(one["plan_fingerprint"], other["plan_fingerprint"]);
    let same = format!(
        "SELECT count(*) FROM sys.plan_fingerprints AS one JOIN sys.plan_fingerprints AS other \
           ON one.plan_fingerprint = other.plan_fingerprint \
         WHERE one.query_id = {before} AND other.query_id IN ({after}, {again})"
    );
    assert_eq!(number(&session, &same).await, 1);
    assert_eq!(json["before"]["query_id"], before);
    assert_eq!(json["after"]["query_id"], again);
    let operators = json["operators"].as_array().unwrap();
    assert!(!operators.is_empty());
    for operator in operators {
        let id = &operator["operator_id"];
        assert!(
            id["before"].is_i64() && id["before"] == id["after"],
            "{operator}"
        );
    }
    assert!(json["records"][0]["self_ns"]["before"].is_i64(), "{json}");

    let sql = format!("EXPLAIN PROFILE (AS SQL) DIFF {before}, {again}");
    for statement in skewer::split(&lines(&session, &sql).await.join("\n")) {
        session
            .sql(&statement.sql)
            .await
            .unwrap()
            .collect()
            .await
            .unwrap();
    }
    for (sql, says) in [
        (
            "EXPLAIN PROFILE DIFF 4711, 1",
            "sys.queries has no query 4711",
        ),
        (
            "EXPLAIN PROFILE (LEVEL calls) DIFF 1, 2",
            "which runs nothing",
        ),
        (
            "EXPLAIN PROFILE (FORMAT graphviz) DIFF 1, 2",
            "text and json",
        ),
    ] {
        let error = session.sql(sql).await.err().unwrap().to_string();
        assert!(error.contains(says), "{sql}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_of_which_one_was_not_recorded_are_not_said_to_differ() {
    let session = documents().await;
    let mut ids = Vec::new();
    for level in ["counters", "off"] {
        let run = async |sql: &str| session.sql(sql).await.unwrap().collect().await.unwrap();
        run(&format!("SET profile.level = '{level}'")).await;
        run("SELECT count(*) FROM documents WHERE id > 7").await;
        ids.push(number(&session, "SELECT last_query_id()").await);
    }
    let [counted, off] = ids[..] else { panic!() };
    for (before, after) in [(counted, off), (off, counted)] {
        let text = lines(&session, &format!("EXPLAIN PROFILE DIFF {before}, {after}")).await;
        let all = text.join("\n");
        assert!(text[0].ends_with(" · no plan to compare"), "{all}");
        assert!(
            all.contains(&format!("! No plan was recorded for query {off}")),
            "{all}"
        );
        for difference in ["plans differ", "Operators", "Tasks", "− ", "+ "] {
            assert!(!all.contains(difference), "{all}");
        }
        let sql = format!("EXPLAIN PROFILE (FORMAT json) DIFF {before}, {after}");
        let json = lines(&session, &sql).await.join("\n");
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert!(json["same_plan"].is_null(), "{json}");
    }
    let text = lines(&session, &format!("EXPLAIN PROFILE DIFF {off}, {off}")).await;
    let all = text.join("\n");
    let none = format!("! No plan was recorded for queries {off} and {off}");
    assert!(all.contains(&none), "{all}");
}
