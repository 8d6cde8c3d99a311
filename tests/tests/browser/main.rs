//! The profiler's page in a real browser: Chromium without a window, driven from Node by playwright-core. Runs embedded,
//! beside an SQL port, and at the master of three worker processes.
//!
//! `page.cjs` opens pages, clicks and types, and reads the tables behind the drawings. Without Node, Chromium or
//! the packages the tests are skipped, unless `SKEWER_REQUIRE_CLIENTS` is 1.

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use skewer::{Database, ReadOnly, Session};
use skewer_tests::cluster::Cluster;
use skewer_web::{WebOptions, WebServer};
use tokio::runtime::Runtime;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/browser/page.cjs");

/// Why the browser cannot be driven here, if it cannot.
fn missing() -> Option<String> {
    let check = "require('playwright-core'); require('@axe-core/playwright')";
    let found = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    };
    if !found("node", &["-e", check]) {
        return Some("node, playwright-core or @axe-core/playwright is not installed".to_owned());
    }
    (!found(&chromium(), &["--version"])).then(|| "chromium is not installed".to_owned())
}

fn chromium() -> String {
    std::env::var("SKEWER_TEST_CHROMIUM").unwrap_or_else(|_| "chromium".to_owned())
}

/// Runs a statement to its end; gives its id.
async fn run(session: &Session, sql: &str) -> i64 {
    let ended = match session.sql(sql).await {
        Ok(stream) => stream.collect().await,
        Err(error) => Err(error),
    };
    let expected_to_fail = sql.contains("/ 0");
    assert_eq!(ended.is_err(), expected_to_fail, "{sql}: {ended:?}");
    session.last_query_id().unwrap_or_default()
}

/// Queries whose profiles the script looks at; gives their ids by what they are.
async fn profiles(session: &Session) -> serde_json::Value {
    run(
        session,
        "CREATE TABLE ratings AS SELECT value AS movie, repeat('5,4,', CAST(1 + value % 50 AS INT)) AS stars \
         FROM generate_series(0, 999)",
    )
    .await;
    run(
        session,
        "UPDATE ratings SET stars = repeat('5,4,', 150000) WHERE movie = 234",
    )
    .await;
    // A third of the rows have one key.
    run(
        session,
        "CREATE TABLE follows AS SELECT CASE WHEN value % 3 = 0 THEN 7 ELSE value % 2000 END AS followee, \
         (value * 7919) % 2000 AS follower FROM generate_series(1, 12000)",
    )
    .await;
    run(session, "CREATE TABLE users AS SELECT value AS id, value % 13 AS country FROM generate_series(0, 1999)").await;
    let records = run(
        session,
        "EXPLAIN PROFILE SELECT star, count(*) FROM \
         (SELECT unnest(string_to_array(stars, ',')) AS star FROM ratings) GROUP BY star",
    )
    .await;
    let mut ids = serde_json::json!({ "records": records });
    let query = |limit: u32| {
        format!(
            "SELECT u.country, count(*) FROM follows f JOIN users u ON f.followee = u.id GROUP BY u.country \
             ORDER BY 1 LIMIT {limit}"
        )
    };
    for (level, names) in [
        ("calls", ["previous", "calls"]),
        ("counters", ["early", "counters"]),
        ("off", ["ended", "off"]),
    ] {
        run(session, &format!("SET profile.level = '{level}'")).await;
        for (number, name) in (10..).zip(names) {
            ids[name] = run(session, &query(number)).await.into();
        }
    }
    ids["markup"] = run(
        session,
        "SELECT '<img src=x onerror=document.title=1>' AS markup",
    )
    .await
    .into();
    run(session, "RESET profile.level").await;
    ids["recursive"] = run(
        session,
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 50) SELECT sum(n) FROM r",
    )
    .await
    .into();
    ids["failed"] = run(session, "SELECT id / 0 FROM users").await.into();
    ids
}

/// Drives the page of `database`; `part` says which tests of the script to run.
#[track_caller]
fn drive(runtime: &Runtime, database: &Database, size: &str, part: &str) {
    let ids = runtime.block_on(profiles(&database.session()));
    let options = WebOptions {
        listen: "127.0.0.1:0".to_owned(),
        // Debug builds are slow.
        limits: ReadOnly {
            timeout: Duration::from_secs(100),
            memory: 256 << 20,
        },
        ..WebOptions::default()
    };
    let server = runtime
        .block_on(WebServer::bind(database.clone(), options))
        .unwrap();
    let tickets = server.tickets();
    let serving = runtime.spawn(server.run(std::future::pending()));
    let directory = tempfile::tempdir().unwrap();
    let exported = directory.path().join("profile.html");
    let export = format!(
        "EXPORT PROFILE {} TO '{}' (FORMAT html)",
        ids["records"],
        exported.display()
    );
    runtime.block_on(run(&database.session(), &export));
    let page = serde_json::json!({
        "address": tickets.lasting("/"), "ids": ids, "size": size, "part": part, "chromium": chromium(),
        "profile": directory.path().join("chromium"), "exported": exported, "pictures": pictures(),
    });
    let output = Command::new("node")
        .arg(SCRIPT)
        .env("SKEWER_PAGE", page.to_string())
        .output()
        .unwrap();
    serving.abort();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{size}, {part}:\n{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let passed = said.lines().filter(|line| line.ends_with(" ok")).count();
    assert!(
        passed >= 12,
        "{size}, {part}: only {passed} tests ran\n{said}"
    );
}

/// Where to put pictures of all pages, if somebody wants them: the documentation's are made so.
fn pictures() -> Option<String> {
    let folder = std::env::var("SKEWER_PICTURES").ok()?;
    std::fs::create_dir_all(Path::new(&folder)).unwrap();
    Some(folder)
}

/// Says that a test proves nothing here, past the capturing of output. Fails where the browser must be there.
fn skipped(test: &str) -> bool {
    let Some(reason) = missing() else {
        return false;
    };
    let required = std::env::var("SKEWER_REQUIRE_CLIENTS").is_ok_and(|value| value == "1");
    assert!(!required, "{test}: {reason}");
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
    true
}

#[test]
fn pages_of_an_embedded_database() {
    if skipped("pages_of_an_embedded_database") {
        return;
    }
    let runtime = Runtime::new().unwrap();
    let database = runtime.block_on(async { Database::in_memory().unwrap() });
    drive(&runtime, &database, "embedded", "all");
}

#[test]
fn pages_of_three_worker_processes() {
    if skipped("pages_of_three_worker_processes") {
        return;
    }
    let cluster = Cluster::start(3);
    let runtime = Runtime::new().unwrap();
    drive(&runtime, cluster.database(), "cluster", "distributed");
}
