//! Queries that were only counted, failed or have expired.

use std::time::Duration;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Volatility;
use skewer::{Database, Session};

use super::{column, lines, number, register_slow, slow_on_one_record};

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_was_only_counted_has_a_diagnosis_and_the_way_to_look_closer() {
    let session = Database::builder()
        .worker_threads(2)
        .build()
        .unwrap()
        .session();
    register_slow(&session, |value| (7..=16).contains(&value));
    let create = "CREATE TABLE t AS SELECT value AS v, \
                  CASE WHEN value % 10 > 0 THEN 0 ELSE value END AS k \
                  FROM generate_series(1, 1000000)";
    session.sql(create).await.unwrap().collect().await.unwrap();
    let diagnoses = async |sql: &str| {
        session.sql(sql).await.unwrap().collect().await.unwrap();
        let id = number(&session, "SELECT last_query_id()").await;
        let found = format!(
            "SELECT rule || ': ' || coalesce(zoom_sql, '') || ' ' || cause FROM sys.diagnoses \
             WHERE query_id = {id} ORDER BY rule"
        );
        (id, column(&session, &found).await)
    };
    let (id, found) = diagnoses("SELECT max(slow(v)) FROM t").await;
    let zoom = format!("EXPLAIN PROFILE QUERY {id} ");
    let tasks = "concat_ws(' ', operator_id, partition, rows_in, rows_out, self_ns)";
    let tasks = format!("SELECT {tasks} FROM sys.operator_stats WHERE query_id = {id} ORDER BY 1");
    let tasks = column(&session, &tasks).await;
    let start = format!("straggler task: {zoom}");
    assert!(
        found.iter().any(|one| one.starts_with(&start)),
        "{found:?} {tasks:?}"
    );
    let report = lines(&session, zoom.trim_end()).await.join("\n");
    assert!(report.contains("● Row "), "{report}");

    let window = "SELECT max(r) FROM (SELECT row_number() OVER (PARTITION BY k) AS r FROM t)";
    // A busy machine may delay the other task as long: then the key costs nothing.
    let mut attempts = 0;
    let (id, found) = loop {
        let (id, found) = diagnoses(window).await;
        attempts += 1;
        if attempts == 5 || found.iter().any(|one| one.starts_with("heavy key: ")) {
            break (id, found);
        }
    };
    let place = format!(
        "SELECT count(*) FROM sys.diagnoses JOIN sys.operators USING (query_id, operator_id, fragment_id) \
         WHERE query_id = {id} AND rule = 'heavy key' AND exchange_id = operator_id \
         AND kind = 'exchange' AND partition >= 0 AND row_id IS NULL"
    );
    assert_eq!(number(&session, &place).await, 1);
    let skew = found
        .iter()
        .find(|one| one.starts_with("heavy key: EXPLAIN PROFILE QUERY"));
    let skew = skew.unwrap_or_else(|| panic!("{found:?}"));
    assert!(skew.contains("rows have the key 0"), "{skew}");
    // Who looks closer finds it in the report, too.
    let report = lines(&session, &format!("EXPLAIN PROFILE {window}")).await;
    let report = report.join("\n");
    for said in ["Heavy key, operator ", "Exchange: hash of k"] {
        assert!(report.contains(said), "{said}: {report}");
    }

    // The number of a list is nobody's key.
    let lists = "SELECT sum(s) FROM (SELECT (SELECT count(*) FROM unnest(list) AS u(x) \
                 JOIN range(0, 3000) AS y ON x <> y.value) AS s FROM (SELECT \
                 CASE WHEN value = 7 THEN range(0, 2000) ELSE range(0, 3) END AS list \
                 FROM range(0, 100)) AS q) AS r";
    let (_, found) = diagnoses(lists).await;
    let made = "rows are made of one value that a subquery is asked for";
    assert!(found.iter().any(|one| one.contains(made)), "{found:?}");

    // A key of both inputs of a join makes most of its rows.
    let channels = "(SELECT CASE WHEN value % 20 = $1 THEN 'web' ELSE 'k' || value END AS channel \
                    FROM range(0, 20000)) AS $2";
    let side = |place: &str, name: &str| channels.replace("$1", place).replace("$2", name);
    let (one, other) = (side("0", "one"), side("1", "other"));
    let join = format!("SELECT count(*) FROM {one} JOIN {other} ON one.channel = other.channel");
    let (_, found) = diagnoses(&join).await;
    let hot = found.iter().find(|one| one.starts_with("hot join key"));
    let hot = hot.unwrap_or_else(|| panic!("{found:?}"));
    assert!(hot.contains("the key web"), "{hot}");
    let report = lines(&session, &format!("EXPLAIN PROFILE {join}")).await;
    let report = report.join("\n");
    assert!(report.contains("Hot join key, operator "), "{report}");
    // Keys that many rows of one input have multiply nothing.
    let (_, found) = diagnoses(&join.replace("% 20 = 1 THEN", "= 1 THEN")).await;
    let is_hot = |one: &String| one.starts_with("hot join key");
    assert!(!found.iter().any(is_hot), "{found:?}");

    // What changes something is not offered to be run again.
    let (_, found) = diagnoses(&format!("CREATE TABLE u AS {window}")).await;
    assert!(
        found.iter().any(|one| one.starts_with("heavy key:  ")),
        "{found:?}"
    );

    // On a busy machine planning it may take longer than running it, which is conspicuous; nothing else is.
    for attempt in 1.. {
        let (_, mut found) = diagnoses("SELECT count(*) FROM generate_series(1, 10)").await;
        if found.is_empty() {
            break;
        }
        let busy = ["slow planning:", "waited for a processor:"];
        found.retain(|one| attempt == 5 || !busy.iter().any(|rule| one.starts_with(rule)));
        assert_eq!(found, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_expired_is_told_from_what_never_was() {
    let session = Database::in_memory().unwrap().session();
    for n in 0..3 {
        let sql = format!("SELECT {n} AS n FROM generate_series(1, 10)");
        session.sql(&sql).await.unwrap().collect().await.unwrap();
    }
    let last = number(&session, "SELECT last_query_id()").await;
    // Asking for the last query was one.
    let newest = last + 1;
    let error = session.sql(&format!("SHOW PROFILE {}", last + 2)).await;
    let error = error.err().unwrap().to_string();
    assert_eq!(
        error,
        format!(
            "sys.queries has no query {}; the newest is {newest}",
            last + 2
        )
    );
    // The log is written, and looked through, whenever that is set.
    let set = "SET profile.retention_age = '1 second'";
    let left = format!("SELECT count(*) FROM sys.queries WHERE query_id <= {last}");
    let begun = std::time::Instant::now();
    loop {
        session.sql(set).await.unwrap().collect().await.unwrap();
        if number(&session, &left).await == 0 {
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "nothing has expired"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let sql = "SELECT 1 FROM generate_series(1, 10)";
    session.sql(sql).await.unwrap().collect().await.unwrap();
    for statement in ["SHOW PROFILE", "EXPLAIN PROFILE QUERY"] {
        let error = session.sql(&format!("{statement} {last}")).await;
        let error = error.err().unwrap().to_string();
        assert!(
            error.starts_with(&format!("sys.queries has no query {last}; ")),
            "{error}"
        );
        assert!(error.contains("profile.retention_age"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_of_a_failed_query_ends_with_the_statement_that_shows_what_it_did() {
    let (session, _) = slow_on_one_record().await;
    let sql = "EXPLAIN PROFILE SELECT k, max(10 / (v - 2000)) FROM measurements GROUP BY k";
    let error = session.sql(sql).await.err().unwrap().to_string();
    assert!(error.starts_with("division by zero\n"), "{error}");
    let (_, show) = error.rsplit_once(": ").unwrap();
    assert!(show.starts_with("SHOW PROFILE "), "{error}");
    let all = lines(&session, show).await.join("\n");
    let partial = "! The query failed; the profile shows what ran before that: division by zero";
    assert!(all.contains(partial), "{all}");
    assert!(all.contains("Scan measurements"), "{all}");
}

/// A value in one of the last batches of `t`.
const LATE: i64 = 99_000;

/// A table `t` of many batches, with the values 1 to 100,000.
async fn many_batches() -> Session {
    let session = Database::builder().worker_threads(2).build().unwrap();
    let session = session.session();
    let create = "CREATE TABLE t AS SELECT value AS v FROM generate_series(1, 100000)";
    session.sql(create).await.unwrap().collect().await.unwrap();
    session
        .execute_script("SET profile.level = 'records'")
        .await
        .unwrap();
    session
}

/// The number of edges that are logged of a query, once it has ended with `status`; and what is said
/// first of its profile.
async fn edges_and_reservation(session: &Session, query_id: i64, status: &str) -> (i64, String) {
    let ended = format!(
        "SELECT count(*) FROM sys.queries WHERE query_id = {query_id} AND status = '{status}'"
    );
    let begun = std::time::Instant::now();
    while number(session, &ended).await == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "not {status}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Each record that was logged is one of the table's.
    let stray = format!(
        "SELECT count(*) FROM sys.lineage WHERE query_id = {query_id} AND table_name = 'main.t'
         AND input_id NOT IN (SELECT _row_id FROM t)"
    );
    assert_eq!(number(session, &stray).await, 0);
    let edges = format!("SELECT count(*) FROM sys.lineage WHERE query_id = {query_id}");
    let report = lines(session, &format!("SHOW PROFILE {query_id}")).await;
    let said = report
        .iter()
        .find_map(|line| line.split_once("! The query "));
    let said = said.map(|(_, said)| said.to_owned());
    (number(session, &edges).await, said.unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_failed_query_has_logged_of_records_is_kept() {
    let session = many_batches().await;
    let sql = format!("SELECT v % 7, max(10 / (v - {LATE})) FROM t GROUP BY v % 7");
    let stream = session.sql(&sql).await.unwrap();
    let query_id = stream.query_id().unwrap();
    stream.collect().await.unwrap_err();
    let (edges, said) = edges_and_reservation(&session, query_id, "failed").await;
    assert!(edges > 0, "{edges}");
    assert!(
        said.starts_with("failed; the profile shows what ran before that"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cancelled_query_has_logged_of_records_is_kept() {
    let session = many_batches().await;
    let (reached, has_reached) = std::sync::mpsc::channel::<()>();
    let (go_on, goes_on) = std::sync::mpsc::channel::<()>();
    let both = std::sync::Mutex::new((reached, goes_on));
    session.register_row_udf(
        "reaches",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Volatile,
        move |arguments| {
            if arguments[0] == ScalarValue::Int64(Some(LATE)) {
                let (reached, goes_on) = &*both.lock().unwrap();
                let _ = reached.send(());
                let _ = goes_on.recv();
            }
            Ok(arguments[0].clone())
        },
    );
    let sql = "SELECT v % 7, max(reaches(v)) FROM t GROUP BY v % 7";
    let stream = session.sql(sql).await.unwrap();
    let query_id = stream.query_id().unwrap();
    let running = tokio::spawn(stream.collect());
    tokio::task::spawn_blocking(move || has_reached.recv())
        .await
        .unwrap()
        .unwrap();
    running.abort();
    drop(go_on);
    let (edges, said) = edges_and_reservation(&session, query_id, "cancelled").await;
    assert!(edges > 0, "{edges}");
    assert!(said.starts_with("was cancelled"), "{said}");
}
