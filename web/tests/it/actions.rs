use std::time::Duration;

use super::client::{Browser, no_users, profiled, serve};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_statement_is_cancelled() {
    let (database, _) = profiled().await;
    let served = serve(database, no_users()).await;
    let browser = Browser::with_token(&served).await;
    let session = served.database.session();
    let slow = "SELECT count(*) FROM generate_series(1, 1000000) AS a, generate_series(1, 1000000) AS b \
                WHERE a.value % 7 = b.value % 11";
    let running = tokio::spawn(async move { session.sql(slow).await?.collect().await });
    let reader = served.database.session();
    let mut id = None;
    for _ in 0..600 {
        let rows: Vec<(i64,)> = reader
            .query_as("SELECT query_id FROM sys.running WHERE state = 'running'")
            .await
            .unwrap();
        id = rows.first().map(|(id,)| *id);
        if id.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let id = id.expect("the statement did not begin within 30 s");
    let answer = browser
        .post("/api/cancel", &format!("{{\"query_id\":{id}}}"))
        .await;
    assert_eq!(answer.status, 204, "{}", answer.text());
    let ended = tokio::time::timeout(Duration::from_secs(30), running).await;
    let ended = ended.expect("the statement went on for 30 s").unwrap();
    assert!(matches!(ended, Err(skewer::Error::Cancelled)), "{ended:?}");
    let answer = browser
        .post("/api/cancel", &format!("{{\"query_id\":{id}}}"))
        .await;
    assert_eq!(answer.status, 404);
    assert!(answer.text().contains("does not run"), "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_what_if_is_verified_by_running_the_query_without_the_records() {
    let (database, id) = profiled().await;
    let served = serve(database, no_users()).await;
    let browser = Browser::with_token(&served).await;
    let blamed: Vec<(String, String)> = served
        .database
        .session()
        .query_as(&format!(
            "SELECT table_name, predicate FROM sys.blame({id}) ORDER BY rank LIMIT 1"
        ))
        .await
        .unwrap();
    let [(table, predicate)] = blamed.as_slice() else {
        panic!("nothing is blamed: {blamed:?}");
    };
    for body in [
        serde_json::json!({ "query_id": id, "table_name": table, "predicates": [predicate] }),
        serde_json::json!({ "query_id": id, "table_name": table, "row_ids": ["123"] }),
        serde_json::json!({ "query_id": id, "table_name": table, "predicates": [predicate], "row_ids": ["123"] }),
    ] {
        let answer = browser.post("/api/verify", &body.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert!(answer["query_id"].as_i64().unwrap() > id, "{answer}");
        assert!(answer["before_ns"].as_i64().unwrap() > 0, "{answer}");
        assert!(answer["after_ns"].as_i64().unwrap() > 0, "{answer}");
        assert_eq!(answer["rows_excluded"], 1, "{answer}");
    }
    for body in [
        serde_json::json!({ "query_id": id, "table_name": table, "predicates": ["1 = 1); DROP TABLE ratings; --"] }),
        serde_json::json!({ "query_id": id, "table_name": table, "row_ids": ["1) OR (1=1"] }),
        serde_json::json!({ "query_id": id, "table_name": table, "row_ids": [] }),
        serde_json::json!({ "query_id": id, "table_name": table }),
    ] {
        let answer = browser.post("/api/verify", &body.to_string()).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_profile_is_exported_as_one_file_with_everything_inside() {
    let (database, id) = profiled().await;
    let served = serve(database, no_users()).await;
    let browser = Browser::with_token(&served).await;
    let answer = browser.get(&format!("/api/export/{id}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(
        answer
            .header("content-disposition")
            .contains(&format!("query-{id}.html"))
    );
    let page = answer.text();
    assert!(
        page.contains(&format!("{{\"query\":{id},\"views\":[")),
        "{}",
        &page[..2_000]
    );
    assert!(page.len() < 2_000_000, "the page has {} bytes", page.len());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.html");
    let session = served.database.session();
    let sql = format!("EXPORT PROFILE {id} TO '{}' (FORMAT html)", path.display());
    session.sql(&sql).await.unwrap().collect().await.unwrap();
    let written = std::fs::read_to_string(&path).unwrap();
    assert_eq!(written.len(), page.len());
    let missing = format!("EXPORT PROFILE 99999 TO '{}' (FORMAT html)", path.display());
    let error = session.sql(&missing).await.unwrap_err();
    assert!(error.to_string().contains("99999"), "{error}");
}
