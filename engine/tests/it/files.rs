//! Files in place: odd names, and large files that several threads read.

use std::fmt::Write as _;
use std::path::Path;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::Int64Type;
use skewer::{Database, Session};

async fn rows(session: &Session, sql: &str) -> Vec<RecordBatch> {
    match session.sql(sql).await {
        Ok(stream) => match stream.collect().await {
            Ok(batches) => batches,
            Err(error) => panic!("{sql}: {error}"),
        },
        Err(error) => panic!("{sql}: {error}"),
    }
}

async fn numbers(session: &Session, sql: &str) -> Vec<i64> {
    let batches = rows(session, sql).await;
    let columns = batches[0].columns().iter();
    columns
        .map(|column| column.as_primitive::<Int64Type>().value(0))
        .collect()
}

fn quoted(path: &Path) -> String {
    path.to_str().unwrap().replace('\'', "''")
}

#[tokio::test(flavor = "multi_thread")]
async fn files_in_folders_of_any_name_are_written_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let session = Database::in_memory().unwrap().session();
    rows(
        &session,
        "CREATE TABLE t AS SELECT value AS n, 'x' AS s FROM generate_series(1, 10)",
    )
    .await;
    let long = "n".repeat(200);
    for name in [
        "a b",
        "wh?t",
        "no#1",
        "100%25",
        "x[1]",
        "st*r",
        "o'neil",
        "qu\"ote",
        "Ærø",
        "数据",
        "🦆",
        "new\nline",
        "tab\there",
        "semi;colon",
        "back\\slash",
        "{a,b}",
        "a=1",
        "-dash",
        &long,
    ] {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).unwrap();
        let path = quoted(&path);
        // As long as names of files may be.
        let file = format!("{}.csv", "f".repeat(251));
        for target in ["f.parquet", "f.ndjson", "g.json", &file] {
            rows(&session, &format!("COPY t TO '{path}/{target}'")).await;
        }
        rows(&session, "CREATE OR REPLACE TABLE u (n BIGINT, s TEXT)").await;
        for source in ["f.parquet", "f.ndjson", "*.csv"] {
            rows(&session, &format!("COPY u FROM '{path}/{source}'")).await;
        }
        let read = format!(
            "SELECT (SELECT sum(n) FROM '{path}/{file}'), (SELECT sum(n) FROM '{path}/*.parquet'),
                (SELECT sum(n) FROM '{path}/[fg].*json'), (SELECT sum(n) FROM u),
                (SELECT count(*) FROM (DESCRIBE SELECT * FROM '{path}/*.csv'))"
        );
        assert_eq!(
            numbers(&session, &read).await,
            [55, 55, 110, 165, 2],
            "{name:?}"
        );
        let external = format!(
            "CREATE OR REPLACE EXTERNAL TABLE e STORED AS PARQUET LOCATION '{path}/f.parquet'"
        );
        rows(&session, &external).await;
        assert_eq!(
            numbers(&session, "SELECT sum(n) FROM e").await,
            [55],
            "{name:?}"
        );
    }
    // A name with a `*` that exists is no pattern.
    std::fs::create_dir(folder.path().join("star")).unwrap();
    let path = quoted(folder.path());
    rows(&session, &format!("COPY t TO '{path}/star/f.parquet'")).await;
    let read = format!("SELECT sum(n) FROM '{path}/st*r/f.parquet'");
    assert_eq!(numbers(&session, &read).await, [55]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_folder_above_is_the_one_that_the_operating_system_means() {
    let folder = tempfile::tempdir().unwrap();
    let session = Database::in_memory().unwrap().session();
    for name in ["near", "far", "far/in"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(folder.path().join("far/in"), link).unwrap();
    let path = quoted(folder.path());
    let create = "CREATE TABLE t AS SELECT value AS n FROM generate_series(1, 10)";
    rows(&session, create).await;
    for (target, written) in [
        ("near/../up.parquet", "up.parquet"),
        ("link/../up.csv", "far/up.csv"),
    ] {
        rows(&session, &format!("COPY t TO '{path}/{target}'")).await;
        assert!(folder.path().join(written).exists(), "{target}");
    }
    let external = "CREATE EXTERNAL TABLE e STORED AS PARQUET LOCATION";
    rows(&session, &format!("{external} '{path}/near/../up.parquet'")).await;
    let copy = format!("COPY t FROM '{path}/near/./../near/../up.parquet'");
    rows(&session, &copy).await;
    let read = format!(
        "SELECT (SELECT sum(n) FROM '{path}/near/../up.parquet'), (SELECT sum(n) FROM '{path}/near/../*.parquet'),
            (SELECT sum(n) FROM '{path}/link/../up.csv'), (SELECT sum(n) FROM e), (SELECT sum(n) FROM t)"
    );
    assert_eq!(numbers(&session, &read).await, [55, 55, 55, 55, 110]);
    let missing = format!("SELECT * FROM '{path}/nowhere/../up.parquet'");
    let error = session.sql(&missing).await.err().map(|e| e.to_string());
    assert!(error.is_some_and(|error| error.contains("nowhere/../up.parquet")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_is_written_through_and_a_device_stays_one() {
    let folder = tempfile::tempdir().unwrap();
    let session = Database::in_memory().unwrap().session();
    let (file, link) = (folder.path().join("f.csv"), folder.path().join("l.csv"));
    std::os::unix::fs::symlink(&file, &link).unwrap();
    std::fs::write(&file, "old").unwrap();
    let copy = |path: &Path| format!("COPY (SELECT 1 AS n) TO '{}' (FORMAT csv)", path.display());
    rows(&session, &copy(&link)).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "n\n1\n");
    assert!(link.is_symlink());
    rows(&session, &copy(Path::new("/dev/null"))).await;
    assert!(!Path::new("/dev/null").is_file());
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

/// Texts with line breaks, commas and quotes, so that lines look like records.
fn notes(records: usize) -> String {
    let body = format!(
        "1,2,\"\"3\"\"\n{}\n5,6\n\"\"{}\"\"7",
        "x".repeat(150),
        "y".repeat(165)
    );
    let mut text = "id,body,score\n".to_owned();
    for id in 0..records {
        writeln!(text, "{id},\"{body}\",{}", id % 10).unwrap();
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_share_a_file_at_records_and_not_at_line_breaks_in_quotes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.csv");
    let records = 50_000;
    std::fs::write(&path, notes(records)).unwrap();
    let file = format!("'{}'", path.display());
    let ids = (0..records as i64).sum::<i64>();
    let expected = [records as i64, ids, 331, 331, 3, 225_000];
    let looked_at =
        "SELECT count(*), sum(id), min(length(body))::BIGINT, max(length(body))::BIGINT,
        max(length(body) - length(replace(body, chr(10), '')))::BIGINT, sum(score)";
    let session = Database::in_memory().unwrap().session();
    for threads in [1, 2, 8] {
        rows(&session, &format!("SET threads = {threads}")).await;
        let query = format!("{looked_at} FROM {file}");
        assert_eq!(
            numbers(&session, &query).await,
            expected,
            "{threads} threads"
        );
        let plan = rows(&session, &format!("EXPLAIN {query}")).await;
        let plan = format!("{plan:?}");
        // 17 MB in parts of 4 MB and more.
        assert_eq!(plan.contains("notes.csv:0.."), threads > 1, "{plan}");
        rows(
            &session,
            "CREATE OR REPLACE TABLE t (id BIGINT, body TEXT, score BIGINT)",
        )
        .await;
        rows(&session, &format!("COPY t FROM {file}")).await;
        let query = format!("{looked_at} FROM t");
        assert_eq!(
            numbers(&session, &query).await,
            expected,
            "{threads} threads"
        );
        let in_order = "SELECT count(*) FROM t WHERE _row_id <> id";
        assert_eq!(numbers(&session, in_order).await, [0]);
    }
    let declared = format!(
        "CREATE EXTERNAL TABLE x (id BIGINT, body VARCHAR, score BIGINT) STORED AS CSV LOCATION {file}"
    );
    rows(&session, &declared).await;
    let query = format!("{looked_at} FROM x");
    assert_eq!(numbers(&session, &query).await, expected);
    let again = folder.path().join("again.csv");
    rows(&session, &format!("COPY t TO '{}'", again.display())).await;
    let (written, read) = (
        std::fs::read(&again).unwrap(),
        std::fs::read(&path).unwrap(),
    );
    assert!(written == read, "COPY TO gives another file");
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_share_a_json_file_at_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.json");
    let records = 60_000i64;
    let mut text = String::new();
    for id in 0..records {
        let filling = "}\\n{".repeat(40);
        writeln!(
            text,
            "{{\n \"id\": {id},\n \"in\": {{\"s\": \"{filling}\"}}\n}}"
        )
        .unwrap();
    }
    std::fs::write(&path, text).unwrap();
    let session = Database::in_memory().unwrap().session();
    for threads in [1, 2, 8] {
        rows(&session, &format!("SET threads = {threads}")).await;
        let query = format!(
            "SELECT count(*), sum(id), min(length(f.\"in\"['s']))::BIGINT FROM '{}' AS f",
            path.display()
        );
        let expected = [records, records * (records - 1) / 2, 120];
        assert_eq!(
            numbers(&session, &query).await,
            expected,
            "{threads} threads"
        );
        let plan = format!("{:?}", rows(&session, &format!("EXPLAIN {query}")).await);
        assert_eq!(plan.contains("records.json:0.."), threads > 1, "{plan}");
    }
}
