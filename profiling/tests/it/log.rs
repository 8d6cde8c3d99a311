//! The log of queries: readable at once, kept over restarts, never in the way.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::*;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use skewer_profiling::{
    Level, Operator, OperatorStats, QueryRow, Recorder, RecorderLimits, Retention, SysTables,
    TuplesSent,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn open(directory: &Path) -> std::sync::Arc<SysTables> {
    SysTables::open(Some(directory), Retention::default())
}

/// A small query of two operators.
fn run(tables: &SysTables, query_id: i64) {
    let recorder = recorder(query_id);
    recorder.operator(operator(0, None, "ProjectionExec", false));
    recorder.operator(operator(1, Some(0), "DataSourceExec", false));
    recorder.operator_stats(stats(0, 0, 10));
    recorder.operator_stats(stats(1, 0, 20));
    outputs(&recorder, 0, (1, Some("t")), &[(query_id, 5)]);
    tables.finish(&recorder, finished(&format!("SELECT {query_id}")));
}

/// The Parquet files of a table.
fn files(directory: &Path, table: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory.join(table)).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_query_is_readable_before_and_after_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    for place in [None, Some(directory.path())] {
        let tables = SysTables::open(place, Retention::default());
        let context = session(&tables);
        run(&tables, 1);
        run(&tables, 2);
        let sql = "SELECT query_id, name FROM sys.operators ORDER BY query_id, operator_id";
        let before = rows(&context, sql).await;
        assert_eq!(before.len(), 4);
        assert_eq!(before[3], ["2", "DataSourceExec"]);
        tables.flush().unwrap();
        assert_eq!(rows(&context, sql).await, before);
        run(&tables, 3);
        assert_eq!(
            value(&context, "SELECT count(*) FROM sys.queries").await,
            "3"
        );
        assert_eq!(tables.warnings(), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_did_in_several_runs_adds_up() {
    let tables = SysTables::open(None, Retention::default());
    let context = session(&tables);
    let recorder = recorder(1);
    let run = |self_ns, memory, from, to| OperatorStats {
        peak_memory_bytes: memory,
        first_call_at: from,
        last_call_at: to,
        ..stats(0, 0, self_ns)
    };
    recorder.operator_stats(run(10, 700, Some(5), Some(6)));
    recorder.operator_stats(run(20, 900, Some(3), Some(9)));
    recorder.operator_stats(run(30, 800, None, None));
    recorder.operator_stats(stats(0, 1, 1));
    tables.finish(&recorder, finished("SELECT 1"));
    let sql = "SELECT self_ns, peak_memory_bytes, first_call_at::BIGINT, last_call_at::BIGINT \
               FROM sys.operator_stats ORDER BY partition";
    let rows = rows(&context, sql).await;
    assert_eq!(rows[0], ["60", "900", "3", "9"]);
    assert_eq!(rows.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let tables = open(directory.path());
    run(&tables, 1);
    run(&tables, 2);
    drop(tables);
    let tables = open(directory.path());
    run(&tables, 3);
    let context = session(&tables);
    let sql = "SELECT sql FROM sys.queries ORDER BY query_id";
    assert_eq!(
        rows(&context, sql).await,
        [["SELECT 1"], ["SELECT 2"], ["SELECT 3"]]
    );
}

/// The columns that old versions did not write.
const KINDS: [&str; 4] = ["kind", "is_internal", "captured_records", "routing"];

/// Writes a file as versions did that did not know these columns.
fn forget(path: &Path, known: &[&str]) {
    let file = std::fs::File::open(path).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let batches: Vec<_> = reader.build().unwrap().map(Result::unwrap).collect();
    let schema = batches[0].schema();
    let kept: Vec<usize> = (0..schema.fields().len())
        .filter(|column| !known.contains(&schema.field(*column).name().as_str()))
        .collect();
    assert_eq!(kept.len() + known.len(), schema.fields().len());
    let schema = std::sync::Arc::new(schema.project(&kept).unwrap());
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, schema, None).unwrap();
    for batch in batches {
        writer.write(&batch.project(&kept).unwrap()).unwrap();
    }
    writer.close().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_that_older_versions_recorded_have_kinds_too() {
    let directory = tempfile::tempdir().unwrap();
    let tables = open(directory.path());
    let recorder = recorder(1);
    let shuffle = "partitioning=Hash([g@0], 6), input_partitions=2";
    for (operator_id, name, details, captures) in [
        (0, "ProjectionExec", "", true),
        (1, "AggregateExec", "", true),
        (2, "merge of spilled groups", "", true),
        (3, "NetworkShuffleExec", shuffle, false),
        (4, "ProjectionExec", "", false),
    ] {
        let parent = (operator_id > 0).then_some(operator_id - 1);
        recorder.operator(Operator {
            details: details.to_owned(),
            ..operator(operator_id, parent, name, captures)
        });
    }
    tables.finish(&recorder, finished("SELECT 1"));
    drop(tables);
    let files = files(directory.path(), "operators");
    assert_eq!(files.len(), 1);
    forget(&files[0], &KINDS);

    let expected = [
        ["projection", "false", "recursive rows", ""],
        ["aggregate", "false", "groups", ""],
        ["spilled groups", "true", "groups", ""],
        ["exchange", "false", "", "hash"],
        ["projection", "false", "", ""],
    ];
    let tables = open(directory.path());
    let context = session(&tables);
    let sql = "SELECT kind, is_internal, captured_records, routing FROM sys.operators \
               ORDER BY operator_id";
    assert_eq!(rows(&context, sql).await, expected);
    // Also if a statement reads one of these columns alone, or none, or all columns.
    let exchanges = "SELECT count(*) FROM sys.operators WHERE routing = 'hash'";
    assert_eq!(value(&context, exchanges).await, "1");
    let names = "SELECT operator_id, name, captures, kind FROM sys.operators WHERE is_internal";
    let merge = ["2", "merge of spilled groups", "true", "spilled groups"];
    assert_eq!(rows(&context, names).await, [merge]);
    let all = "SELECT * FROM sys.operators WHERE query_id = 1";
    assert_eq!(rows(&context, all).await.len(), 5);
    let counted = "SELECT operators FROM sys.plan_fingerprints WHERE query_id = 1";
    assert_eq!(value(&context, counted).await, "4");
    // They stay where files are merged with newer ones.
    for query_id in 2..20 {
        run(&tables, query_id);
        tables.flush().unwrap();
    }
    tables.set_retention(Retention::default());
    let merged = || self::files(directory.path(), "operators").len() == 1;
    eventually(merged).await;
    let sql = "SELECT kind, is_internal, captured_records, routing FROM sys.operators \
               WHERE query_id = 1 ORDER BY operator_id";
    assert_eq!(rows(&context, sql).await, expected);
    assert_eq!(tables.warnings(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_that_older_versions_did_not_have_are_null() {
    let directory = tempfile::tempdir().unwrap();
    let tables = open(directory.path());
    let recorder = recorder(1);
    recorder.tuples_sent(vec![sent(Some(3))]);
    let query = QueryRow {
        first_row_at: Some(2_000_000_000),
        queued_ns: Some(7),
        user_name: Some("ada".to_owned()),
        trace_id: None,
        parent_span_id: None,
        ..finished("SELECT 1")
    };
    tables.finish(&recorder, query);
    let asked = "SELECT first_row_at::BIGINT, queued_ns, user_name, source_partition \
                 FROM sys.queries NATURAL JOIN sys.tuples_sent";
    let context = session(&tables);
    assert_eq!(
        rows(&context, asked).await,
        [["2000000000", "7", "ada", "3"]]
    );
    drop((context, tables));

    let [queries] = files(directory.path(), "queries").try_into().unwrap();
    forget(&queries, &["first_row_at", "queued_ns", "user_name"]);
    let [sent] = files(directory.path(), "tuples_sent").try_into().unwrap();
    forget(&sent, &["source_partition"]);
    let tables = open(directory.path());
    assert_eq!(rows(&session(&tables), asked).await, [["", "", "", ""]]);
    assert_eq!(tables.warnings(), [""; 0]);
}

/// Rows that crossed an exchange.
fn sent(source_partition: Option<i64>) -> TuplesSent {
    TuplesSent {
        exchange_id: 0,
        source_worker: 0,
        destination_worker: 0,
        partition: 0,
        tuples: 1,
        bytes: 8,
        sent_at: None,
        source_partition,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_is_found_among_thousands_without_reading_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let tables = open(directory.path());
    for query_id in 0..3000 {
        run(&tables, query_id);
        if query_id % 1000 == 999 {
            tables.flush().unwrap();
        }
    }
    let context = session(&tables);
    let plan = rows(
        &context,
        "EXPLAIN SELECT * FROM sys.operators WHERE query_id = 1007",
    )
    .await;
    let plan = plan.concat().join("\n");
    assert!(
        plan.contains("SysScan: table=sys.operators, query_id={1007}"),
        "{plan}"
    );
    let sql = "SELECT count(*) FROM sys.operators WHERE query_id = 1007";
    assert_eq!(value(&context, sql).await, "2");
    assert_eq!(
        value(&context, "SELECT count(*) FROM sys.operators").await,
        "6000"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_and_missing_files_are_skipped_with_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let tables = open(directory.path());
    run(&tables, 1);
    tables.flush().unwrap();
    run(&tables, 2);
    drop(tables);

    let operators = files(directory.path(), "operators");
    assert_eq!(operators.len(), 2);
    let first = operators
        .iter()
        .find(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("1-1.")
        })
        .unwrap();
    std::fs::write(first, b"PAR1 no parquet at all PAR1").unwrap();
    std::fs::remove_dir_all(directory.path().join("operator_stats")).unwrap();
    std::fs::write(directory.path().join("queries").join("notes.txt"), b"hello").unwrap();

    let tables = open(directory.path());
    let context = session(&tables);
    let ids = rows(&context, "SELECT DISTINCT query_id FROM sys.operators").await;
    assert_eq!(ids, [["2"]]);
    assert_eq!(
        value(&context, "SELECT count(*) FROM sys.operator_stats").await,
        "0"
    );
    assert_eq!(
        value(&context, "SELECT count(*) FROM sys.queries").await,
        "2"
    );
    let warnings = tables.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("1-1."), "{warnings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_vanishes_or_is_cut_while_open_is_skipped() {
    let directory = tempfile::tempdir().unwrap();
    let tables = open(directory.path());
    let context = session(&tables);
    for query_id in 0..3 {
        run(&tables, query_id);
        tables.flush().unwrap();
    }
    assert_eq!(
        value(&context, "SELECT count(sql) FROM sys.queries").await,
        "3"
    );
    let files = files(directory.path(), "queries");
    std::fs::remove_file(&files[0]).unwrap();
    let bytes = std::fs::read(&files[1]).unwrap();
    std::fs::write(&files[1], &bytes[..10]).unwrap();
    assert_eq!(
        value(&context, "SELECT count(sql) FROM sys.queries").await,
        "1"
    );
    assert_eq!(tables.warnings().len(), 2, "{:?}", tables.warnings());
}

#[tokio::test(flavor = "multi_thread")]
async fn leftovers_of_an_interrupted_write_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let tables = open(directory.path());
    run(&tables, 1);
    drop(tables);
    // A merge of flushes 0 and 1 that was interrupted before the originals were removed.
    let queries = directory.path().join("queries");
    std::fs::copy(
        queries.join("1-1.0-0.parquet"),
        queries.join("1-2.0-1.parquet"),
    )
    .unwrap();
    std::fs::write(queries.join("5-5.7-7.tmp"), b"half").unwrap();
    let tables = open(directory.path());
    let context = session(&tables);
    assert_eq!(
        value(&context, "SELECT count(*) FROM sys.queries").await,
        "1"
    );
    assert_eq!(
        files(directory.path(), "queries"),
        [queries.join("1-2.0-1.parquet")]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_read_only_and_say_so() {
    let tables = SysTables::open(None, Retention::default());
    let context = session(&tables);
    for sql in [
        "INSERT INTO sys.workers VALUES (1, 2, 'a', 'b', 3, 4)",
        "DELETE FROM sys.operators",
        "UPDATE sys.operators SET name = 'x'",
    ] {
        let error = try_rows(&context, sql).await.expect_err(sql).to_string();
        assert!(error.contains("read-only"), "{sql}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn small_parts_are_merged_and_old_ones_removed_in_the_background() {
    let directory = tempfile::tempdir().unwrap();
    for place in [None, Some(directory.path())] {
        let tables = SysTables::open(place, Retention::default());
        let context = session(&tables);
        for query_id in 0..20 {
            run(&tables, query_id);
            tables.flush().unwrap();
        }
        tables.set_retention(Retention::default());
        if let Some(directory) = place {
            eventually(|| files(directory, "queries").len() == 1).await;
        }
        assert_eq!(
            value(&context, "SELECT count(*) FROM sys.operators").await,
            "40"
        );
        tables.set_retention(Retention {
            age: Duration::ZERO,
            ..Retention::default()
        });
        for _ in 0..200 {
            if value(&context, "SELECT count(*) FROM sys.queries").await == "0" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(
            value(&context, "SELECT count(*) FROM sys.operators").await,
            "0"
        );
        if let Some(directory) = place {
            eventually(|| files(directory, "operators").is_empty()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_queries_go_when_there_are_too_many_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let tables = SysTables::open(Some(directory.path()), Retention { bytes: 1, age: DAY });
    let context = session(&tables);
    for query_id in 0..3 {
        run(&tables, query_id);
        tables.flush().unwrap();
    }
    tables.set_retention(Retention { bytes: 1, age: DAY });
    eventually(|| files(directory.path(), "queries").len() == 1).await;
    assert_eq!(
        rows(&context, "SELECT query_id FROM sys.queries").await,
        [["2"]]
    );
}

async fn eventually(condition: impl Fn() -> bool) {
    for _ in 0..200 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it did not happen within 4 s");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edge_of_lineage_takes_a_few_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let tables = open(directory.path());
    let recorder = recorder(1);
    // Rows in order, groups in none, a latency that differs from batch to batch, as an
    // aggregate over 100 batches of 8192 rows sees them.
    let mut state = 42_u64;
    for batch in 0..100_i64 {
        let edges: Vec<(i64, i64, i64)> = (0..8192)
            .map(|row| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (
                    (state >> 33) as i64 % 1_000_000,
                    batch * 8192 + row,
                    40 + batch % 7,
                )
            })
            .collect();
        lineage(&recorder, (3, batch % 2), (5, Some("t")), &edges);
    }
    let edges = 819_200;
    assert!(
        recorder.memory() < 5 * edges,
        "{} bytes in memory",
        recorder.memory()
    );
    tables.finish(&recorder, finished("SELECT"));
    tables.flush().unwrap();
    let bytes = std::fs::metadata(&files(directory.path(), "lineage")[0])
        .unwrap()
        .len();
    // 20 bits for one group of a million, and next to nothing for the rest.
    assert!(bytes < 26 * edges as u64 / 10, "{bytes} bytes on disk");
    let context = session(&tables);
    let written = value(&context, "SELECT bytes_written FROM sys.profiler_overhead").await;
    assert!(written.parse::<u64>().unwrap() >= bytes);
    let sql = "SELECT count(*) || ' ' || sum(input_id) FROM sys.lineage WHERE query_id = 1";
    let sum: i64 = (0..edges as i64).sum();
    assert_eq!(value(&context, sql).await, format!("{edges} {sum}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn events_beyond_the_memory_limit_are_dropped_and_counted() {
    let tables = SysTables::open(None, Retention::default());
    let limits = RecorderLimits {
        memory_bytes: 1000,
        ..RecorderLimits::default()
    };
    let recorder = Recorder::new(1, Level::Records, 1.0, limits);
    recorder.operator(operator(0, None, "AggregateExec", true));
    let edges: Vec<(i64, i64, i64)> = (0..200).map(|row| (row * 7 % 100, row, row)).collect();
    for _ in 0..5 {
        lineage(&recorder, (0, 0), (1, Some("t")), &edges);
    }
    let kept = 1000 - i64::try_from(recorder.events_dropped()).unwrap();
    assert!(kept < 1000 && recorder.memory() <= 1000);
    tables.finish(&recorder, finished("SELECT"));
    let context = session(&tables);
    let dropped = value(&context, "SELECT events_dropped FROM sys.profiler_overhead").await;
    assert_eq!(dropped, (1000 - kept).to_string());
    assert_eq!(
        value(&context, "SELECT count(*) FROM sys.lineage").await,
        kept.to_string()
    );
    assert_eq!(
        value(&context, "SELECT count(*) FROM sys.operators").await,
        "1"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn records_beyond_the_limit_are_written_while_the_query_runs_and_read_like_others() {
    let directory = tempfile::tempdir().unwrap();
    for path in [None, Some(directory.path())] {
        let tables = SysTables::open(path, Retention::default());
        let limits = RecorderLimits {
            spill_bytes: 2_000,
            ..RecorderLimits::default()
        };
        let recorder = Recorder::new(1, Level::Records, 1.0, limits);
        recorder.spill_to(&tables);
        recorder.operator(operator(0, None, "AggregateExec", true));
        let edges: Vec<(i64, i64, i64)> = (0..200).map(|row| (row * 7 % 100, row, row)).collect();
        for chunk in 0..50 {
            lineage(&recorder, (0, chunk), (1, Some("t")), &edges);
            assert!(recorder.memory() < 4_000, "{}", recorder.memory());
            if chunk == 25 {
                tables.flush().unwrap();
            }
        }
        assert_eq!(recorder.events_dropped(), 0);
        let rows: Vec<(i64, i64)> = (0..100).map(|row| (row, 0)).collect();
        outputs(&recorder, 0, (0, None), &rows);
        tables.finish(&recorder, finished("SELECT"));
        let context = session(&tables);
        for written in [false, true] {
            if written {
                tables.flush().unwrap();
            }
            let all = "SELECT count(*) || ' ' || count(DISTINCT input_id) FROM sys.lineage";
            assert_eq!(value(&context, all).await, "10000 200");
            let overheads = "SELECT count(*) FROM sys.profiler_overhead";
            assert_eq!(value(&context, overheads).await, "1");
            let sources = "SELECT count(*) FROM backward_trace(1, 7)";
            assert_eq!(value(&context, sources).await, "2");
            let inputs = "SELECT count(*) FROM sys.expensive_inputs WHERE query_id = 1";
            assert_eq!(value(&context, inputs).await, "100");
        }
        let peak = "SELECT peak_memory_bytes FROM sys.profiler_overhead";
        let peak: usize = value(&context, peak).await.parse().unwrap();
        assert!((2_000..6_000).contains(&peak), "{peak}");
    }
}
