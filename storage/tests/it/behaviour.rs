//! What storage promises, one promise a test.

use std::fs;
use std::sync::Arc;

use crate::support;
use crate::support::{
    columns, dump, files, insert, open, referenced, rewrite, table, table_rows, write,
};
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, StringViewArray};
use datafusion::arrow::datatypes::{DataType, Field, Fields, IntervalUnit, Schema, TimeUnit};
use datafusion::parquet::basic::Encoding;
use datafusion::parquet::file::reader::{FileReader, SerializedFileReader};
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use futures::executor::block_on;
use skewer_storage::disk::RealDisk;
use skewer_storage::{
    DEFAULT_SCHEMA, Object, ROW_ID, Storage, StorageError, StorageOptions, row_ids,
};

fn create(storage: &Storage, name: &str) {
    let mut transaction = storage.begin();
    transaction
        .create_table(DEFAULT_SCHEMA, name, columns(&["a"]), false)
        .unwrap();
    transaction.commit().unwrap();
}

fn temporary() -> (tempfile::TempDir, Storage) {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path(), Arc::new(RealDisk)).unwrap();
    create(&storage, "t");
    (directory, storage)
}

#[test]
fn a_second_open_names_the_process_that_has_it() {
    let (directory, storage) = temporary();
    let error = open(directory.path(), Arc::new(RealDisk)).unwrap_err();
    let own = std::process::id();
    assert!(matches!(&error, StorageError::Locked { pid: Some(pid), .. } if *pid == own));
    let text = error.to_string();
    assert!(text.contains(&own.to_string()), "{text}");
    assert!(text.contains(directory.path().to_str().unwrap()), "{text}");
    drop(storage);
    open(directory.path(), Arc::new(RealDisk)).unwrap();
}

#[test]
fn a_snapshot_reads_the_same_rows_until_it_is_dropped_and_then_the_files_go() {
    let (directory, storage) = temporary();
    insert(&storage, "t", &[1, 2, 3, 4]).unwrap();
    let before = table(&storage, "t");
    let snapshot = storage.snapshot();
    rewrite(&storage, "t", |a| (a != 2).then_some(a)).unwrap();
    assert_eq!(
        table_rows(&storage, &table(&storage, "t")).unwrap().len(),
        3
    );
    assert_eq!(table_rows(&storage, &before).unwrap().len(), 4);
    assert_eq!(files(directory.path()).len(), 3);
    drop(before);
    assert_eq!(
        files(directory.path()).len(),
        3,
        "the snapshot still needs it"
    );
    drop(snapshot);
    assert_eq!(files(directory.path()), referenced(&storage));
    let mut transaction = storage.begin();
    transaction.drop_table(DEFAULT_SCHEMA, "t").unwrap();
    transaction.commit().unwrap();
    assert!(files(directory.path()).is_empty());
}

#[test]
fn row_ids_survive_updates_and_are_never_used_again() {
    let (directory, storage) = temporary();
    insert(&storage, "t", &[10, 11, 12, 13]).unwrap();
    rewrite(&storage, "t", |a| (a != 13).then_some(a + 100)).unwrap();
    drop(storage);
    let storage = open(directory.path(), Arc::new(RealDisk)).unwrap();
    insert(&storage, "t", &[14]).unwrap();
    let rows = table_rows(&storage, &table(&storage, "t")).unwrap();
    let rows: Vec<_> = rows
        .iter()
        .map(|(id, row)| (*id, row[0].unwrap()))
        .collect();
    assert_eq!(rows, [(0, 110), (1, 111), (2, 112), (4, 14)]);
}

#[test]
fn what_is_not_committed_leaves_no_file() {
    let (directory, storage) = temporary();
    let meta = table(&storage, "t");
    drop(write(&storage, &meta, &[1, 2, 3, 4]).unwrap());
    assert!(files(directory.path()).is_empty());
    let mut transaction = storage.begin();
    let segments = write(&storage, &meta, &[1, 2, 3, 4]).unwrap();
    transaction.add_segments(meta.id, segments).unwrap();
    drop(transaction);
    assert!(files(directory.path()).is_empty());
    let mut writer = storage.writer(&meta);
    block_on(writer.write(&support::batch(&meta, &[1, 2, 3, 4]))).unwrap();
    drop(writer);
    assert!(files(directory.path()).is_empty());
    fs::write(
        directory.path().join("segments/1/99.parquet"),
        "left by a crash",
    )
    .unwrap();
    drop(meta);
    drop(storage);
    let storage = open(directory.path(), Arc::new(RealDisk)).unwrap();
    assert!(files(directory.path()).is_empty());
    insert(&storage, "t", &[1]).unwrap();
    assert_eq!(files(directory.path()), ["100.parquet"]);
}

#[test]
fn what_a_removal_that_was_taken_back_leaves_is_removed_though_another_table_has_its_number() {
    let (directory, storage) = temporary();
    create(&storage, "u");
    insert(&storage, "u", &[1, 2]).unwrap();
    let segment = |table: &str| {
        let table = self::table(&storage, table).id;
        directory
            .path()
            .join(format!("segments/{}/1.parquet", table.0))
    };
    let (stray, kept) = (segment("t"), segment("u"));
    fs::create_dir_all(stray.parent().unwrap()).unwrap();
    fs::copy(&kept, &stray).unwrap();
    drop(storage);
    let storage = open(directory.path(), Arc::new(RealDisk)).unwrap();
    assert!(!stray.exists() && kept.exists());
    assert_eq!(files(directory.path()), referenced(&storage));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_writer_in_a_runtime_leaves_no_file() {
    let (directory, storage) = temporary();
    let meta = table(&storage, "t");
    let mut writer = storage.writer(&meta);
    for _ in 0..5 {
        writer
            .write(&support::batch(&meta, &[1, 2, 3, 4]))
            .await
            .unwrap();
    }
    drop(writer);
    for _ in 0..500 {
        if files(directory.path()).is_empty() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{:?}", files(directory.path()));
}

#[test]
fn of_two_changes_to_the_same_rows_one_conflicts() {
    let (_directory, storage) = temporary();
    insert(&storage, "t", &[1, 2]).unwrap();
    let meta = table(&storage, "t");
    let old = [meta.segments[0].id];
    let mut first = storage.begin();
    let mut second = storage.begin();
    let mut third = storage.begin();
    for (transaction, value) in [(&mut first, 3), (&mut second, 4)] {
        let added = write(&storage, &meta, &[value]).unwrap();
        transaction.replace_segments(meta.id, &old, added).unwrap();
    }
    third
        .add_segments(meta.id, write(&storage, &meta, &[5]).unwrap())
        .unwrap();
    first.commit().unwrap();
    let error = second.commit().unwrap_err();
    assert!(matches!(error, StorageError::Conflict { .. }), "{error}");
    third.commit().unwrap();
    let values = &dump(&storage).values()["t"];
    assert_eq!(values, &[[Some(3)], [Some(5)]]);

    let mut insert = storage.begin();
    let added = write(&storage, &meta, &[6]).unwrap();
    insert.add_segments(meta.id, added).unwrap();
    let mut replace = storage.begin();
    replace
        .create_table(DEFAULT_SCHEMA, "t", columns(&["a"]), true)
        .unwrap();
    replace.commit().unwrap();
    let error = insert.commit().unwrap_err();
    assert!(matches!(error, StorageError::Conflict { .. }), "{error}");
    assert_eq!(table(&storage, "t").rows(), 0);
}

#[test]
fn names_are_checked_at_once() {
    let (_directory, storage) = temporary();
    let mut transaction = storage.begin();
    let taken = transaction.create_table(DEFAULT_SCHEMA, "t", columns(&["a"]), false);
    assert!(matches!(
        taken,
        Err(StorageError::AlreadyExists {
            object: Object::Table,
            ..
        })
    ));
    let taken = transaction.create_view(DEFAULT_SCHEMA, "t", "SELECT 1", true);
    assert!(matches!(
        taken,
        Err(StorageError::AlreadyExists {
            object: Object::Table,
            ..
        })
    ));
    let unknown = transaction.drop_table(DEFAULT_SCHEMA, "nope");
    assert_eq!(
        unknown.unwrap_err().to_string(),
        "table main.nope does not exist"
    );
    let unknown = transaction.create_table("nope", "t", columns(&["a"]), false);
    assert!(matches!(
        unknown,
        Err(StorageError::NotFound {
            object: Object::Schema,
            ..
        })
    ));
    let reserved = transaction.create_table(DEFAULT_SCHEMA, "r", columns(&[ROW_ID]), false);
    assert!(matches!(reserved, Err(StorageError::Invalid { .. })));
    let twice = transaction.create_table(DEFAULT_SCHEMA, "r", columns(&["a", "a"]), false);
    assert!(matches!(
        twice,
        Err(StorageError::AlreadyExists {
            object: Object::Column,
            ..
        })
    ));
    let not_null = Field::new("b", DataType::Int64, false);
    assert!(
        transaction
            .add_column(DEFAULT_SCHEMA, "t", not_null)
            .is_err()
    );
    assert!(transaction.drop_schema(DEFAULT_SCHEMA, false).is_err());
    transaction.drop_schema(DEFAULT_SCHEMA, true).unwrap();
    let snapshot = transaction.commit().unwrap();
    assert!(snapshot.schemas().is_empty());
}

#[test]
fn query_ids_ascend_over_restarts() {
    let (directory, mut storage) = temporary();
    let mut last = 0;
    for _ in 0..3 {
        for _ in 0..1500 {
            let id = storage.next_query_id();
            assert!(id > last);
            last = id;
        }
        drop(storage);
        storage = open(directory.path(), Arc::new(RealDisk)).unwrap();
    }
    assert!(last < 10_000);
}

#[test]
fn types_that_parquet_cannot_hold_are_refused_and_all_others_round_trip() {
    let (_directory, storage) = temporary();
    let list = Field::new_list_field(DataType::Utf8, true);
    let fields: Fields = vec![
        Field::new("x", DataType::Float32, true),
        Field::new("y", DataType::Utf8View, true),
    ]
    .into();
    let types = [
        DataType::Null,
        DataType::Boolean,
        DataType::UInt8,
        DataType::UInt64,
        DataType::Float16,
        DataType::Float64,
        DataType::Decimal32(5, 2),
        DataType::Decimal128(38, 10),
        DataType::Decimal256(50, 0),
        DataType::Date32,
        DataType::Date64,
        DataType::Time64(TimeUnit::Nanosecond),
        DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
        DataType::Timestamp(TimeUnit::Second, None),
        DataType::Duration(TimeUnit::Millisecond),
        DataType::Interval(IntervalUnit::YearMonth),
        DataType::Utf8View,
        DataType::LargeUtf8,
        DataType::BinaryView,
        DataType::FixedSizeBinary(7),
        DataType::List(Arc::new(list)),
        DataType::Struct(fields),
        DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
    ];
    let fields: Vec<Field> = types
        .iter()
        .enumerate()
        .map(|(n, data_type)| Field::new(format!("c{n}"), data_type.clone(), true))
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let mut transaction = storage.begin();
    let table = transaction
        .create_table(DEFAULT_SCHEMA, "all", Arc::clone(&schema), false)
        .unwrap();
    let nulls = RecordBatch::new_empty(Arc::clone(&schema));
    let columns = nulls
        .columns()
        .iter()
        .map(|column| datafusion::arrow::array::new_null_array(column.data_type(), 2));
    let batch = RecordBatch::try_new(schema, columns.collect()).unwrap();
    let segments = block_on(async {
        let mut writer = storage.writer(&table);
        writer.write(&batch).await?;
        writer.finish().await
    })
    .unwrap();
    transaction.add_segments(table.id, segments).unwrap();
    transaction.commit().unwrap();
    let table = support::table(&storage, "all");
    let read: Vec<RecordBatch> = block_on(async {
        use futures::TryStreamExt;
        let stream = storage
            .read_segment(&table, &table.segments[0])
            .await
            .unwrap();
        stream.try_collect().await.unwrap()
    });
    assert_eq!(
        read[0]
            .project(&(0..types.len()).collect::<Vec<_>>())
            .unwrap(),
        batch
    );

    let interval = DataType::Interval(IntervalUnit::MonthDayNano);
    let schema = Arc::new(Schema::new(vec![Field::new("i", interval, true)]));
    let error = storage
        .begin()
        .create_table(DEFAULT_SCHEMA, "i", schema, false)
        .unwrap_err();
    assert!(matches!(&error, StorageError::UnsupportedType { column, .. } if column == "i"));
}

#[test]
fn rows_that_do_not_fit_are_refused_and_other_string_representations_fit() {
    let (_directory, storage) = temporary();
    let field = Field::new("s", DataType::Utf8View, false);
    let mut transaction = storage.begin();
    let table = transaction
        .create_table(
            DEFAULT_SCHEMA,
            "s",
            Arc::new(Schema::new(vec![field])),
            false,
        )
        .unwrap();
    let one = |array: ArrayRef| {
        let batch = RecordBatch::try_from_iter([("other", array)]).unwrap();
        block_on(async {
            let mut writer = storage.writer(&table);
            writer.write(&batch).await?;
            writer.finish().await
        })
    };
    one(Arc::new(StringArray::from(vec!["x"]))).unwrap();
    one(Arc::new(StringViewArray::from(vec!["x"]))).unwrap();
    let error = one(Arc::new(StringArray::from(vec![None::<&str>]))).unwrap_err();
    assert!(error.to_string().contains("NOT NULL"), "{error}");
    let error = one(Arc::new(Int64Array::from(vec![1]))).unwrap_err();
    assert!(error.to_string().contains("Int64"), "{error}");
}

#[tokio::test]
async fn segments_read_through_datafusion_prune_by_row_id() {
    let directory = tempfile::tempdir().unwrap();
    let storage = Storage::open(directory.path(), StorageOptions::default()).unwrap();
    create(&storage, "t");
    let meta = table(&storage, "t");
    let mut writer = storage.writer(&meta);
    for start in 0..50 {
        let values: Vec<i64> = (start * 1000..(start + 1) * 1000).collect();
        writer.write(&support::batch(&meta, &values)).await.unwrap();
    }
    let mut transaction = storage.begin();
    let segments = writer.finish().await.unwrap();
    assert_eq!(segments.len(), 1);
    transaction.add_segments(meta.id, segments).unwrap();
    transaction.commit().unwrap();

    let segment = Arc::clone(&table(&storage, "t").segments[0]);
    let file = SerializedFileReader::new(fs::File::open(segment.path()).unwrap()).unwrap();
    let ids = file.metadata().row_group(0).column(1);
    assert!(ids.encodings().any(|e| e == Encoding::DELTA_BINARY_PACKED));
    assert!(ids.column_index_offset().is_some());
    assert!(ids.compressed_size() < 20_000, "{}", ids.compressed_size());

    let context = SessionContext::new();
    let url = storage.object_store_url();
    context.register_object_store(url.as_ref(), storage.object_store());
    let path = format!("{}{}", url.as_str(), segment.location);
    context
        .register_parquet("t", path, ParquetReadOptions::default())
        .await
        .unwrap();
    let query = "SELECT a FROM t WHERE _row_id = 31234";
    let rows = context.sql(query).await.unwrap().collect().await.unwrap();
    assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
    let plan = format!("EXPLAIN ANALYZE {query}");
    let plan = context.sql(&plan).await.unwrap().collect().await.unwrap();
    let plan = datafusion::arrow::util::pretty::pretty_format_batches(&plan).unwrap();
    let plan = plan.to_string();
    assert!(
        plan.contains("page_index_pages_pruned=6 total → 1 matched"),
        "{plan}"
    );
    fs::write(segment.path(), "gone").unwrap();
    let error = match context.sql(query).await.unwrap().collect().await {
        Ok(_) => panic!("read a truncated file"),
        Err(error) => error.to_string(),
    };
    assert!(error.contains(segment.path().to_str().unwrap()), "{error}");
}

#[tokio::test]
async fn wide_rows_of_one_batch_fill_several_row_groups() {
    const ROWS: i64 = 200;
    let directory = tempfile::tempdir().unwrap();
    let storage = Storage::open(directory.path(), StorageOptions::default()).unwrap();
    let field = Field::new("line", DataType::Utf8, false);
    let schema = Arc::new(Schema::new(vec![field]));
    let mut transaction = storage.begin();
    let table = transaction
        .create_table(DEFAULT_SCHEMA, "wide", schema, false)
        .unwrap();
    // 40 MB that cannot be compressed.
    let mut number = 1_u64;
    let mut digits = |_| {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        format!("{number:016x}")
    };
    let lines = (0..ROWS).map(|_| (0..12_500).map(&mut digits).collect::<String>());
    let lines: ArrayRef = Arc::new(StringArray::from_iter_values(lines));
    let batch = RecordBatch::try_from_iter([("line", lines)]).unwrap();
    let mut writer = storage.writer(&table);
    writer.write(&batch).await.unwrap();
    let segments = writer.finish().await.unwrap();
    assert_eq!(segments.len(), 1);
    let file = fs::File::open(segments[0].meta().path()).unwrap();
    let file = SerializedFileReader::new(file).unwrap();
    let groups = file.metadata().row_groups();
    assert_eq!(groups.iter().map(|g| g.num_rows()).sum::<i64>(), ROWS);
    assert!(groups.len() > 2, "{} row groups", groups.len());
    for group in groups {
        let bytes = group.total_byte_size();
        assert!(bytes < 20 << 20, "a row group of {bytes} bytes");
    }
}

#[tokio::test]
async fn a_database_in_memory_works_like_one_on_disk() {
    let storage = Storage::in_memory().unwrap();
    assert_eq!(storage.path(), None);
    create(&storage, "t");
    for value in 0..8 {
        let meta = table(&storage, "t");
        let mut writer = storage.writer(&meta);
        writer
            .write(&support::batch(&meta, &[value]))
            .await
            .unwrap();
        let mut transaction = storage.begin();
        let segments = writer.finish().await.unwrap();
        transaction.add_segments(meta.id, segments).unwrap();
        transaction.commit().unwrap();
    }
    let before = dump(&storage);
    let old = Arc::clone(&table(&storage, "t").segments[0]);
    assert!(storage.compact(table(&storage, "t").id).await.unwrap());
    assert!(!storage.compact(table(&storage, "t").id).await.unwrap());
    assert_eq!(table(&storage, "t").segments.len(), 1);
    assert_eq!(dump(&storage), before);
    storage.verify(&old, true).await.unwrap();
    storage.verify_table(&table(&storage, "t")).await.unwrap();
    assert!(storage.next_query_id() > 0);
}

/// What the footers of a table's segments say of the ids.
fn consecutive(storage: &Storage) -> Vec<Option<std::ops::Range<i64>>> {
    let mut said = Vec::new();
    for segment in &table(storage, "t").segments {
        let file = SerializedFileReader::new(fs::File::open(segment.path()).unwrap()).unwrap();
        said.extend(
            file.metadata()
                .row_groups()
                .iter()
                .map(row_ids::consecutive),
        );
    }
    said
}

#[tokio::test]
async fn footers_say_where_ids_are_consecutive() {
    let (_directory, storage) = temporary();
    insert(&storage, "t", &[7, 8, 9]).unwrap();
    insert(&storage, "t", &[10]).unwrap();
    assert_eq!(consecutive(&storage), [Some(0..3), Some(3..4)]);
    // Moved rows may come in any order, and some may be missing.
    rewrite(&storage, "t", |value| (value != 8).then_some(value)).unwrap();
    assert_eq!(consecutive(&storage), [Some(3..4), None]);

    // Merged rows come in order, if the segments do not interlock.
    for value in 0..7 {
        insert(&storage, "t", &[value, value]).unwrap();
    }
    assert!(storage.compact(table(&storage, "t").id).await.unwrap());
    let rest = [4..7, 7..10, 10..13, 13..16, 16..18].map(Some);
    assert_eq!(consecutive(&storage)[0], None);
    assert_eq!(consecutive(&storage)[1..], rest);
    rewrite(&storage, "t", |value| (value > 100).then_some(value)).unwrap();
    assert_eq!(consecutive(&storage), []);

    // Two writers that took ids by turns.
    let meta = table(&storage, "t");
    let mut one = storage.writer(&meta);
    let mut other = storage.writer(&meta);
    for value in 0..2 {
        let batch = support::batch(&meta, &[value]);
        one.write(&batch).await.unwrap();
        other.write(&batch).await.unwrap();
    }
    let mut segments = one.finish().await.unwrap();
    segments.extend(other.finish().await.unwrap());
    let mut transaction = storage.begin();
    transaction.add_segments(meta.id, segments).unwrap();
    transaction.commit().unwrap();
    assert_eq!(consecutive(&storage), [None, None]);
    for _ in 0..6 {
        insert(&storage, "t", &[1, 1]).unwrap();
    }
    let before = dump(&storage);
    assert!(storage.compact(meta.id).await.unwrap());
    // 18 and 20, which are said to ascend; then 19, with which none is any more.
    assert_eq!(consecutive(&storage), [const { None }; 6]);
    assert_eq!(dump(&storage), before);
}

#[test]
fn concurrent_inserts_all_arrive_with_distinct_row_ids() {
    let (_directory, storage) = temporary();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let storage = &storage;
            scope.spawn(move || {
                for n in 0..10 {
                    insert(storage, "t", &[thread * 100 + n, -1]).unwrap();
                }
            });
        }
    });
    assert_eq!(
        table_rows(&storage, &table(&storage, "t")).unwrap().len(),
        80
    );
}

/// How long 10,000 take to open is measured in the benchmarks.
#[test]
fn many_segments_of_one_transaction_are_there_when_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let storage = open(directory.path(), skewer_storage::fault::FaultDisk::new()).unwrap();
    create(&storage, "t");
    let meta = table(&storage, "t");
    let mut transaction = storage.begin();
    for value in 0..300 {
        let segments = write(&storage, &meta, &[value]).unwrap();
        transaction.add_segments(meta.id, segments).unwrap();
    }
    transaction.commit().unwrap();
    insert(&storage, "t", &[300]).unwrap();
    drop((meta, storage));
    let storage = open(directory.path(), Arc::new(RealDisk)).unwrap();
    let table = table(&storage, "t");
    assert_eq!((table.segments.len(), table.rows()), (301, 301));
}
