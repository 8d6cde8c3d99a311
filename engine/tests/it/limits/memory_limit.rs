//! The memory limit of a database, set when it is opened or by SQL.

use datafusion::arrow::array::RecordBatch;
use datafusion::common::ScalarValue;
use skewer::{Database, Error, Session};

async fn run(session: &Session, sql: &str) -> Result<Vec<RecordBatch>, Error> {
    session.sql(sql).await?.collect().await
}

async fn shown(session: &Session) -> String {
    let batches = run(session, "SHOW memory_limit").await.unwrap();
    ScalarValue::try_from_array(batches[0].column(1), 0)
        .unwrap()
        .to_string()
}

/// Keeps all of its rows, and cannot spill them.
const HUNGRY: &str = "SELECT array_length(array_agg(repeat('x', 100) || value)) \
                      FROM generate_series(1, 200000)";

#[tokio::test]
async fn a_query_beyond_the_limit_names_it_and_the_way_out_which_works() {
    let db = Database::builder().memory_limit(16 << 20).build().unwrap();
    let session = db.session();
    assert_eq!(shown(&session).await, "16 MiB");
    let error = run(&session, HUNGRY).await.unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(_)), "{error:?}");
    let text = error.to_string();
    assert!(
        text.starts_with("the memory limit of 16 MiB is reached: "),
        "{text}"
    );
    let (_, way_out) = text.split_once("raise it with ").unwrap();
    assert_eq!(way_out, "SET memory_limit = '32 MiB'");
    run(&session, "SET memory_limit = '1 GiB'").await.unwrap();
    run(&session, HUNGRY).await.unwrap();

    // The limit is the database's, not the session's.
    let other = db.session();
    assert_eq!(shown(&other).await, "1 GiB");
    run(&other, "SET memory_limit = unlimited").await.unwrap();
    assert_eq!(shown(&session).await, "unlimited");
    run(&session, "RESET memory_limit").await.unwrap();
    assert_eq!(shown(&other).await, "16 MiB");
}

#[tokio::test]
async fn a_limit_set_by_sql_makes_sorts_spill() {
    let db = Database::builder().worker_threads(2).build().unwrap();
    let session = db.session();
    run(&session, "SET memory_limit = '24MB'").await.unwrap();
    let sorted = "SELECT value, repeat('x', 50) AS s FROM generate_series(1, 400000) \
                  ORDER BY s, value DESC";
    let rows = |batches: Vec<RecordBatch>| batches.iter().map(RecordBatch::num_rows).sum();
    let sorted: usize = rows(run(&session, sorted).await.unwrap());
    assert_eq!(sorted, 400_000);
    let spilled = "SELECT sum(spilled_bytes) > 0 FROM sys.operator_stats \
                   WHERE query_id = last_query_id()";
    let batches = run(&session, spilled).await.unwrap();
    let spilled = ScalarValue::try_from_array(batches[0].column(0), 0).unwrap();
    assert_eq!(spilled, ScalarValue::Boolean(Some(true)));
}

/// Two tables of 100 MB.
async fn wide_tables(session: &Session) {
    for name in ["a", "b"] {
        let create = format!(
            "CREATE TABLE {name} AS \
             SELECT value AS k, repeat('x', 300) || value AS {name}_text FROM range(300000)"
        );
        run(session, &create).await.unwrap();
    }
}

/// Whether joins wrote to temporary files in the last query.
async fn joins_spilled(session: &Session) -> bool {
    let spilled = "SELECT coalesce(sum(s.spilled_bytes), 0) > 0 FROM sys.operator_stats s \
                   JOIN sys.operators o USING (query_id, operator_id) \
                   WHERE query_id = last_query_id() AND o.name LIKE '%JoinExec'";
    let batches = run(session, spilled).await.unwrap();
    let spilled = ScalarValue::try_from_array(batches[0].column(0), 0).unwrap();
    spilled == ScalarValue::Boolean(Some(true))
}

#[tokio::test]
async fn a_hash_join_beyond_the_limit_spills() {
    let db = Database::builder().worker_threads(2).build().unwrap();
    let session = db.session();
    wide_tables(&session).await;
    let joins = [
        "SELECT count(*), max(a_text || b_text) FROM a JOIN b ON a.k = b.k",
        "SELECT count(*), count(b_text), max(a_text) FROM a LEFT JOIN b ON a.k = b.k + 1000",
        "SELECT count(*), max(a_text), max(b_text) FROM a FULL JOIN b ON a.k = b.k + 1000",
        "SELECT count(*), max(a_text) FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k + 7)",
        "SELECT count(*), max(a_text) FROM a WHERE k NOT IN (SELECT k + 100000 FROM b)",
    ];
    for join in joins {
        let expected = run(&session, join).await.unwrap();
        assert!(!joins_spilled(&session).await, "{join}");
        run(&session, "SET memory_limit = '10MB'").await.unwrap();
        for level in ["counters", "records"] {
            run(&session, &format!("SET profile.level = '{level}'"))
                .await
                .unwrap();
            let found = run(&session, join).await.unwrap();
            assert_eq!(found, expected, "{join}");
            assert!(joins_spilled(&session).await, "{join} at {level}");
        }
        run(&session, "RESET ALL").await.unwrap();
    }
}

#[tokio::test]
async fn joins_without_equal_columns_beyond_the_limit_spill() {
    let db = Database::builder().worker_threads(3).build().unwrap();
    let session = db.session();
    for (name, rows) in [("a", 1500), ("b", 2000)] {
        let create = format!(
            "CREATE TABLE {name} AS \
             SELECT value AS k, repeat('x', 600) || value AS {name}_text FROM range({rows})"
        );
        run(&session, &create).await.unwrap();
    }
    // DataFusion's own nested loop join would return rows of outer joins once for each thread.
    let joins = [
        "SELECT count(*), count(b_text), min(a_text) FROM a LEFT JOIN b ON a.k > b.k + 1000",
        "SELECT count(*), count(b_text), min(a_text) FROM a FULL JOIN b ON a.k > b.k + 1000",
        "SELECT count(*), min(a_text) FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k > a.k + 1500)",
        "SELECT count(*), min(a_text), max(b_text) FROM a, b",
    ];
    for join in joins {
        let expected = run(&session, join).await.unwrap();
        run(&session, "SET memory_limit = '1MB'").await.unwrap();
        let found = run(&session, join).await.unwrap();
        assert_eq!(found, expected, "{join}");
        assert!(joins_spilled(&session).await, "{join}");
        run(&session, "RESET memory_limit").await.unwrap();
    }
}

#[test]
fn a_directory_for_temporary_files_that_cannot_be_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let directory = file.path().join("spill");
    let error = Database::builder()
        .temp_directory(&directory)
        .build()
        .unwrap_err();
    assert!(
        error.to_string().contains(directory.to_str().unwrap()),
        "{error}"
    );
}

#[tokio::test]
async fn temporary_files_have_a_limit_that_can_be_set() {
    let db = Database::builder().worker_threads(2).build().unwrap();
    let session = db.session();
    run(&session, "SET memory_limit = '40MB'").await.unwrap();
    run(&session, "SET max_temp_directory_size = '1MB'")
        .await
        .unwrap();
    let sorted = "SELECT value, repeat('x', 50) || value AS s FROM generate_series(1, 600000) \
                  ORDER BY s DESC";
    let text = run(&session, sorted).await.unwrap_err().to_string();
    assert!(text.contains("max_temp_directory_size"), "{text}");
    run(&session, "RESET ALL").await.unwrap();
    run(&session, sorted).await.unwrap();
}
