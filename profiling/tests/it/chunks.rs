//! The record-level tables: chunks in memory and in files, rows for whoever asks.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::*;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BinaryArray, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::DataType;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::prelude::SessionContext;
use skewer_profiling::{
    Ids, Latencies, LatencyChunk, LatencyKind, Method, OutputChunk, Retention, SysTables,
};

const TABLES: [&str; 3] = ["lineage", "record_latency", "output_records"];

/// A query with several chunks in each of the tables, of which ids differ from query to query.
fn run(tables: &SysTables, query_id: i64) {
    let recorder = recorder(query_id);
    recorder.operator(operator(0, None, "AggregateExec", true));
    for chunk in 0..5_i64 {
        let edges: Vec<(i64, i64, i64)> = (0..100)
            .map(|row| {
                let scattered = (row * 7919 + query_id) % 1000;
                (scattered, chunk * 100 + row, 40 + row % 3)
            })
            .collect();
        let table = (chunk % 2 == 0).then_some("t");
        lineage(&recorder, (0, chunk), (1, table), &edges);
        let ids: Vec<i64> = edges.iter().map(|edge| edge.0).collect();
        recorder.record_latency(LatencyChunk {
            fragment_id: 0,
            operator_id: 2,
            partition: chunk,
            table_name: table.map(Arc::from),
            row_ids: Ids::encode(&ids),
            latency: Latencies::encode(&ids),
            kind: LatencyKind::Computation,
            method: [Method::Measured, Method::Apportioned][chunk as usize % 2],
            error: Latencies::constant(3_000, ids.len()),
        });
        let ids = ids.iter().map(|id| (id % 5 > 0).then_some(*id));
        recorder.output_records(OutputChunk {
            first_output_row: chunk * 100,
            operator_id: 0,
            table_name: None,
            record_ids: Ids::encode_nullable(&ids.collect()),
            latency: Latencies::constant(1_700, 100),
        });
    }
    tables.finish(&recorder, finished("SELECT"));
}

fn files(directory: &Path, table: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory.join(table)).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// All rows of the record-level tables, in some order that depends on nothing.
async fn everything(context: &SessionContext) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for table in TABLES {
        let mut found = rows(context, &format!("SELECT * FROM sys.{table}")).await;
        found.sort();
        all.extend(found);
    }
    all
}

/// Replaces the rows of a file; what else the file says stays.
fn rewrite(path: &Path, change: impl Fn(&RecordBatch) -> RecordBatch) {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let entries = reader.metadata().file_metadata().key_value_metadata();
    let entries = entries.map(|entries| {
        let ours = |key: &str| key.starts_with("skewer.");
        let kept = entries.iter().filter(|entry| ours(&entry.key));
        kept.cloned().collect()
    });
    let schema = Arc::clone(reader.schema());
    let batches: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
    let changed = change(&concat_batches(&schema, &batches).unwrap());
    let properties = WriterProperties::builder().set_key_value_metadata(entries);
    let file = File::create(path).unwrap();
    let mut writer =
        ArrowWriter::try_new(file, changed.schema(), Some(properties.build())).unwrap();
    writer.write(&changed).unwrap();
    writer.close().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_the_same_in_memory_in_a_file_and_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    for place in [None, Some(directory.path())] {
        let tables = SysTables::open(place, Retention::default());
        let context = session(&tables);
        for query_id in 0..9 {
            run(&tables, query_id);
        }
        let expected = everything(&context).await;
        assert_eq!(expected.len(), 3 * 9 * 500);
        tables.flush().unwrap();
        assert!(everything(&context).await == expected, "written, {place:?}");
        assert_eq!(tables.warnings(), [""; 0]);
        if place.is_some() {
            let tables = SysTables::open(place, Retention::default());
            let context = session(&tables);
            assert!(everything(&context).await == expected, "opened again");
            assert_eq!(tables.warnings(), [""; 0]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn merging_keeps_every_record() {
    let directory = tempfile::tempdir().unwrap();
    let tables = SysTables::open(Some(directory.path()), Retention::default());
    let context = session(&tables);
    for query_id in 0..9 {
        run(&tables, query_id);
        tables.flush().unwrap();
    }
    let expected = everything(&context).await;
    // Wakes the thread that merges.
    tables.set_retention(Retention::default());
    for _ in 0..500 {
        if files(directory.path(), "lineage").len() == 1 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(files(directory.path(), "lineage").len(), 1);
    assert_eq!(everything(&context).await, expected);
    let sql =
        "SELECT count(*), min(query_id), max(query_id) FROM sys.lineage WHERE query_id IN (3, 5)";
    assert_eq!(rows(&context, sql).await, [["1000", "3", "5"]]);
    assert_eq!(tables.warnings(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_chunk_is_skipped_with_a_warning_and_the_others_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let tables = SysTables::open(Some(directory.path()), Retention::default());
    run(&tables, 1);
    drop(tables);
    let file = files(directory.path(), "lineage").remove(0);
    rewrite(&file, |chunks| {
        let columns = chunks.columns().iter().map(|column| -> ArrayRef {
            match column.data_type() {
                DataType::Binary => {
                    let blobs = column.as_binary::<i32>();
                    Arc::new(BinaryArray::from_iter_values((0..blobs.len()).map(
                        |row| match row {
                            2 => b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01 are many".as_slice(),
                            _ => blobs.value(row),
                        },
                    )))
                }
                _ => Arc::clone(column),
            }
        });
        RecordBatch::try_new(chunks.schema(), columns.collect()).unwrap()
    });

    let tables = SysTables::open(Some(directory.path()), Retention::default());
    let context = session(&tables);
    let sql = "SELECT partition, count(input_id) FROM sys.lineage GROUP BY 1 ORDER BY 1";
    let expected = [["0", "100"], ["1", "100"], ["3", "100"], ["4", "100"]];
    assert_eq!(rows(&context, sql).await, expected);
    let warnings = tables.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    for part in [file.to_str().unwrap(), "damaged chunk", "input_id"] {
        assert!(warnings[0].contains(part), "{part}: {warnings:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_another_layout_are_skipped_with_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let tables = SysTables::open(Some(directory.path()), Retention::default());
    run(&tables, 1);
    drop(tables);
    // A file without the columns and entries of chunks, as a table of rows has it.
    let operators = files(directory.path(), "operators").remove(0);
    let file = files(directory.path(), "lineage").remove(0);
    std::fs::copy(operators, &file).unwrap();
    // One with the entries but without a column.
    let other = files(directory.path(), "record_latency").remove(0);
    rewrite(&other, |chunks| {
        chunks.project(&(0..5).collect::<Vec<_>>()).unwrap()
    });

    let tables = SysTables::open(Some(directory.path()), Retention::default());
    let context = session(&tables);
    for (table, file) in [("lineage", file), ("record_latency", other)] {
        let sql = format!("SELECT count(latency) FROM (SELECT *, 1 AS latency FROM sys.{table})");
        assert_eq!(value(&context, &sql).await, "0");
        let warnings = tables.warnings();
        let last = warnings.last().unwrap();
        assert!(last.contains(file.to_str().unwrap()), "{warnings:?}");
    }
    let sql = "SELECT count(*) FROM sys.output_records";
    assert_eq!(value(&context, sql).await, "500");
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_on_what_chunks_have_in_common_choose_chunks_and_lose_no_row() {
    let directory = tempfile::tempdir().unwrap();
    for place in [None, Some(directory.path())] {
        let tables = SysTables::open(place, Retention::default());
        let context = session(&tables);
        for query_id in 0..3 {
            run(&tables, query_id);
        }
        if place.is_some() {
            tables.flush().unwrap();
        }
        for (table, filter, expected) in [
            ("lineage", "partition = 3", "300"),
            ("lineage", "partition = 3 AND query_id = 1", "100"),
            ("lineage", "partition = 3 AND input_id < 350", "150"),
            ("lineage", "table_name = 't'", "900"),
            ("lineage", "table_name IS NULL AND partition > 1", "300"),
            ("lineage", "partition = 3 OR input_id < 50", "450"),
            ("lineage", "operator_id = 77", "0"),
            ("lineage", "partition = (SELECT 3)", "300"),
            ("record_latency", "method <> 'measured'", "600"),
            ("output_records", "output_row = 7 AND operator_id = 0", "3"),
        ] {
            let sql = format!("SELECT count(*) FROM sys.{table} WHERE {filter}");
            assert_eq!(value(&context, &sql).await, expected, "{sql}, {place:?}");
        }
        let sql = "EXPLAIN SELECT input_id FROM sys.lineage WHERE partition = 3 AND input_id < 50";
        let plan = rows(&context, sql).await.concat().join("\n");
        assert!(plan.contains("chunks=partition@0 = 3"), "{plan}");
        let error = try_rows(
            &context,
            "SELECT * FROM sys.lineage WHERE 1 / partition = 1",
        )
        .await;
        assert!(error.unwrap_err().to_string().contains("ivide by zero"));
    }
}
