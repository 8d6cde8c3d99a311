//! Profiles and traces as files.

use skewer::Database;

use super::{column, documents, lines, number};

/// The report's text without its first line, which tells times, and without its reservations.
fn body(lines: &[String]) -> Vec<String> {
    let lines = lines[1..].iter().filter(|line| !line.starts_with("  ! "));
    lines.cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exported_profile_is_read_by_another_database() {
    let session = documents().await;
    let query = "SELECT kind, max(parse(line, 'txt')) FROM documents GROUP BY kind";
    lines(&session, &format!("EXPLAIN PROFILE {query}")).await;
    let id = number(&session, "SELECT last_query_id()").await;
    let shown = lines(&session, &format!("SHOW PROFILE {id}")).await;
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("profile");
    let export = format!("EXPORT PROFILE {id} TO '{}'", path.display());
    let exported = column(&session, &format!("{export} (FORMAT parquet)")).await;
    assert_eq!(exported, [path.display().to_string()]);
    let twice = session.sql(&export).await.err().unwrap().to_string();
    assert!(
        twice.ends_with("the directory is there and not empty"),
        "{twice}"
    );
    // Any tool that reads Parquet can read it.
    let file = format!("'{}'", path.join("record_latency.parquet").display());
    let rows = number(&session, &format!("SELECT count(*) FROM {file}")).await;
    let sys = format!("SELECT count(*) FROM sys.record_latency WHERE query_id = {id}");
    assert_eq!(rows, number(&session, &sys).await);

    // It is not taken for an empty database, whose files would be put into it.
    let error = Database::open(&path).unwrap_err().to_string();
    assert!(
        error.contains("it is an exported profile and no database"),
        "{error}"
    );
    let elsewhere = tempfile::tempdir().unwrap();
    let import = format!("IMPORT PROFILE FROM '{}'", path.display());
    let database = Database::open(elsewhere.path().join("db")).unwrap();
    let other = database.session();
    other
        .sql("SELECT 1")
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    let new = number(&other, &import).await;
    for table in [
        "operators",
        "operator_stats",
        "lineage",
        "record_latency",
        "output_records",
    ] {
        let count = |id: i64| format!("SELECT count(*) FROM sys.{table} WHERE query_id = {id}");
        let (here, there) = (count(id), count(new));
        let rows = number(&session, &here).await;
        assert!(rows > 0, "{table}");
        assert_eq!(rows, number(&other, &there).await, "{table}");
    }
    let sums =
        "sum(input_latency_ns), sum(input_id), sum(output_id * 7), count(DISTINCT worker_id)";
    let sums =
        |id: i64| format!("SELECT concat_ws(' ', {sums}) FROM sys.lineage WHERE query_id = {id}");
    assert_eq!(
        column(&session, &sums(id)).await,
        column(&other, &sums(new)).await
    );
    let report = lines(&other, &format!("SHOW PROFILE {new}")).await;
    let all = report.join("\n");
    let said = format!(
        "  ! The query was imported from '{}': its tables",
        path.display()
    );
    assert!(all.contains(&said[..40]), "{all}");
    // Processor times are recorded, so that they hold on another machine, too.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for report in [shown.join(" "), all.clone()] {
        assert!(words(&report).contains("cores on average"), "{report}");
    }
    // Everything but what is asked of the table itself.
    let tables = |line: &&String| {
        ![
            "Operators worked",
            "the record",
            "What tells",
            "◆",
            "instead of",
            "SELECT",
            "EXPLAIN",
        ]
        .iter()
        .any(|part| line.contains(part))
    };
    // Only tables of this database can have a quarantine.
    let mut proposes = false;
    let mut no_proposal = |line: &&String| {
        let proposed = proposes;
        proposes = *line == "Quarantine" || proposed && !line.is_empty();
        !proposes && !proposed
    };
    let of_both = [body(&shown), body(&report)].map(|lines| {
        let lines = lines.iter().filter(&mut no_proposal).filter(tables);
        let lines: Vec<String> = lines.cloned().collect();
        lines
            .join("\n")
            .replace("\n\n\n", "\n\n")
            .trim_end()
            .to_owned()
    });
    assert_eq!(of_both[0], of_both[1]);
    assert!(all.contains("(its table is not here)"), "{all}");
    let error = other.sql(&format!("SELECT * FROM sys.blame({new})")).await;
    assert!(
        error
            .err()
            .unwrap()
            .to_string()
            .contains("was imported from")
    );
    // Its tables are elsewhere: nothing runs it again, and nothing offers to.
    let error = other.sql(&format!("EXPLAIN PROFILE QUERY {new}")).await;
    let error = error.err().unwrap().to_string();
    assert!(
        error.contains("its tables are elsewhere; SHOW PROFILE"),
        "{error}"
    );
    let zooms = format!("SELECT count(zoom_sql) FROM sys.diagnoses WHERE query_id = {new}");
    assert_eq!(number(&other, &zooms).await, 0);
    // It is there when the database is opened again, and new queries have ids of their own.
    drop(other);
    database.close().await.unwrap();
    let other = Database::open(elsewhere.path().join("db"))
        .unwrap()
        .session();
    let again = lines(&other, &format!("SHOW PROFILE {new}")).await;
    assert_eq!(again, report);
    assert!(number(&other, &import).await > new);

    // What is missing or damaged is named.
    let broken = |file: &str, text: &str| std::fs::write(path.join(file), text).unwrap();
    broken("lineage.parquet", "nonsense");
    let error = other.sql(&import).await.err().unwrap().to_string();
    assert!(
        error.contains("lineage.parquet: it is not a readable Parquet file"),
        "{error}"
    );
    std::fs::remove_file(path.join("lineage.parquet")).unwrap();
    let error = other.sql(&import).await.err().unwrap().to_string();
    assert!(error.contains("lineage.parquet"), "{error}");
    broken(
        "manifest.json",
        r#"{"format_version":99,"skewer":"9.0","query_id":1,"sql":"","tables":{}}"#,
    );
    let error = other.sql(&import).await.err().unwrap().to_string();
    assert!(
        error.contains("format_version is 99, written by Skewer 9.0"),
        "{error}"
    );
    let error = other
        .sql("IMPORT PROFILE FROM '/nowhere'")
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("it is no exported profile"), "{error}");
    let error = session
        .sql("EXPORT PROFILE 4711 TO 'x'")
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.starts_with("sys.queries has no query 4711"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_operators_are_exported_as_trace_events() {
    let database = Database::builder()
        .workers(3)
        .worker_threads(2)
        .build()
        .unwrap();
    let session = database.session();
    let create =
        "CREATE TABLE t AS SELECT value % 7 AS k, value AS v FROM generate_series(1, 30000)";
    session.sql(create).await.unwrap().collect().await.unwrap();
    let query = "SELECT k, count(*), max(v) FROM t GROUP BY k ORDER BY k";
    lines(&session, &format!("EXPLAIN PROFILE (LEVEL calls) {query}")).await;
    let id = number(&session, "SELECT last_query_id()").await;
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("trace.json");
    let export = format!(
        "EXPORT PROFILE {id} TO '{}' (FORMAT perfetto)",
        path.display()
    );
    session.sql(&export).await.unwrap().collect().await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(trace["displayTimeUnit"], "ns");
    let events = trace["traceEvents"].as_array().unwrap();

    // Chrome's trace event format: complete events and metadata, each with what it must have.
    let mut calls = Vec::new();
    let mut named = std::collections::BTreeSet::new();
    for event in events {
        let number = |field: &str| {
            event[field]
                .as_f64()
                .unwrap_or_else(|| panic!("{field}: {event}"))
        };
        let thread = (number("pid") as i64, number("tid") as i64);
        assert!(
            event["name"].as_str().is_some_and(|name| !name.is_empty()),
            "{event}"
        );
        match event["ph"].as_str() {
            Some("M") => {
                assert!(event["args"]["name"].is_string(), "{event}");
                named.insert((event["name"].as_str().unwrap().to_owned(), thread));
            }
            Some("X") => {
                let (from, length) = (number("ts"), number("dur"));
                assert!(from >= 0.0 && length >= 0.0, "{event}");
                assert!(event["args"]["rows"].is_i64(), "{event}");
                calls.push((thread, from, from + length));
            }
            _ => panic!("no such phase: {event}"),
        }
    }
    let sys = format!("SELECT count(*) FROM sys.operator_calls WHERE query_id = {id}");
    assert_eq!(calls.len() as i64, number(&session, &sys).await);
    let workers: std::collections::BTreeSet<i64> = calls.iter().map(|call| call.0.0).collect();
    assert!(workers.len() > 1, "{workers:?}");
    for (thread, ..) in &calls {
        assert!(
            named.contains(&("thread_name".to_owned(), *thread)),
            "{thread:?}"
        );
        assert!(
            named.contains(&("process_name".to_owned(), (thread.0, 0))),
            "{thread:?}"
        );
    }
    // Calls of a thread are within each other or apart.
    calls.sort_by(|a, b| {
        a.0.cmp(&b.0)
            .then(a.1.total_cmp(&b.1))
            .then(b.2.total_cmp(&a.2))
    });
    let mut open: Vec<((i64, i64), f64)> = Vec::new();
    for (thread, from, to) in calls {
        // Rounding to a floating-point number of microseconds.
        let epsilon = 1e-3;
        open.retain(|(other, end)| *other == thread && *end > from + epsilon);
        assert!(
            open.iter().all(|(_, end)| *end + epsilon >= to),
            "{thread:?} at {from}"
        );
        open.push((thread, to));
    }
    // At level counters there is nothing to draw.
    session.sql(query).await.unwrap().collect().await.unwrap();
    let id = number(&session, "SELECT last_query_id()").await;
    let export = format!(
        "EXPORT PROFILE {id} TO '{}' (FORMAT perfetto)",
        path.display()
    );
    let error = session.sql(&export).await.err().unwrap().to_string();
    assert!(
        error.contains("EXPLAIN PROFILE (LEVEL calls) QUERY"),
        "{error}"
    );
}
