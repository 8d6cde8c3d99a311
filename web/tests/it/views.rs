use skewer::arrow::array::AsArray;
use skewer::arrow::datatypes::Int64Type;
use skewer::{Database, DatabaseBuilder};
use skewer_page::rows::arrow_stream;
use skewer_page::views::{Kind, VIEWS};

use super::client::{Browser, no_users, profiled, serve};

#[tokio::test]
async fn a_view_has_the_rows_that_its_sql_has() {
    let (database, id) = profiled().await;
    let served = serve(database, no_users()).await;
    let browser = Browser::with_token(&served).await;
    let sql = browser
        .get(&format!("/api/sql/plan?query_id={id}"))
        .await
        .text();
    assert!(
        sql.contains(&format!("query_id = {id}")) && !sql.contains('$'),
        "{sql}"
    );
    let expected = served
        .database
        .session()
        .sql(&sql)
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    let expected: usize = expected.iter().map(|batch| batch.num_rows()).sum();
    let rows = browser
        .get(&format!("/api/view/plan?query_id={id}"))
        .await
        .rows();
    assert_eq!(
        rows.iter().map(|batch| batch.num_rows()).sum::<usize>(),
        expected
    );
    assert!(expected > 3);
    let scan = rows[0]
        .column_by_name("rows_out")
        .unwrap()
        .as_primitive::<Int64Type>();
    assert!(scan.iter().flatten().any(|rows| rows == 1_000), "{scan:?}");
}

#[tokio::test]
async fn wrong_requests_are_told_what_is_wrong() {
    let served = serve(Database::in_memory().unwrap(), no_users()).await;
    let browser = Browser::with_token(&served).await;
    for (path, status, text) in [
        ("/api/view/nosuch", 404, "there is no view nosuch"),
        ("/api/view/query", 400, "needs the parameter query_id"),
        (
            "/api/view/query?query_id=1%20OR%201",
            400,
            "is an integer, not '1 OR 1'",
        ),
        ("/api/view/query?query_id=1&x=2", 400, "has no parameter x"),
        ("/api/sql/query?query_id=", 400, "is an integer"),
        ("/api/export/7", 422, "7"),
    ] {
        let answer = browser.get(path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert!(answer.text().contains(text), "{path}: {}", answer.text());
    }
}

/// A database, and a builder's options for it.
fn sizes() -> [(&'static str, DatabaseBuilder); 2] {
    let one = Database::builder();
    let several = Database::builder().workers(3);
    [("one process", one), ("three workers", several)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_view_answers_for_every_level_with_types_that_the_page_reads() {
    for (size, builder) in sizes() {
        let database = builder.build().unwrap();
        let session = database.session();
        let setup = [
            "CREATE TABLE follows AS SELECT value % 50 AS followee, value AS follower FROM generate_series(1, 2000)",
            "CREATE TABLE users AS SELECT value AS id, 'user ' || value AS name FROM generate_series(0, 49)",
        ];
        for sql in setup {
            session.sql(sql).await.unwrap().collect().await.unwrap();
        }
        let query = "SELECT name, count(*) FROM follows JOIN users ON followee = id GROUP BY name";
        let mut ids = vec![999_999];
        for level in ["off", "counters", "calls", "records"] {
            session
                .sql(&format!("SET profile.level = '{level}'"))
                .await
                .unwrap();
            session.sql(query).await.unwrap().collect().await.unwrap();
            ids.push(session.last_query_id().unwrap());
        }
        let with_records = ids[4];
        session
            .sql("SELECT id / 0 FROM users")
            .await
            .unwrap()
            .collect()
            .await
            .unwrap_err();
        ids.push(session.last_query_id().unwrap());
        let reader = database.read_only_session(skewer::ReadOnly::default());
        for id in ids {
            for view in VIEWS {
                if view.name == "cluster_nodes" {
                    // Only clusters of processes have sys.cluster, and the page asks for it there.
                    continue;
                }
                let values = view.parameters().filter_map(|parameter| {
                    let value = match (parameter.name, parameter.kind) {
                        ("column", _) => "id".to_owned(),
                        ("table_name", _) | (_, Kind::Identifier) => "main.users".to_owned(),
                        ("query_id", _) => id.to_string(),
                        _ if parameter.default.is_some() => return None,
                        _ => "1".to_owned(),
                    };
                    Some((parameter.name.to_owned(), value))
                });
                let sql = view.sql(&values.collect()).unwrap();
                let failed = |error: skewer::Error| -> ! {
                    panic!("{size}: {} of query {id}: {error}\n{sql}", view.name)
                };
                // They refuse queries without latencies of records, and say how to get them.
                let functions = ["record_blame", "record_makes", "record_why", "what_if"];
                let refuses = functions.contains(&view.name) && id != with_records;
                let stream = match reader.sql(&sql).await {
                    Err(error) if refuses => {
                        let text = error.to_string();
                        assert!(text.contains("query") && text.len() > 20, "{text}");
                        continue;
                    }
                    stream => stream.unwrap_or_else(|error| failed(error)),
                };
                let schema = stream.schema();
                let batches = stream.collect().await.unwrap_or_else(|error| failed(error));
                let encoded = arrow_stream(view.name, &schema, &batches);
                assert!(encoded.is_ok(), "{size}: {:?}", encoded.err());
            }
        }
    }
}
