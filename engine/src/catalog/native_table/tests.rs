//! Scans and queries of tables whose ids are counted, or some of them.

use std::ops::Range;

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::logical_expr::{Expr, ScalarUDF, col, lit};
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use skewer_exec::{IdColumn, SampledRowId, ScansIds};
use skewer_profiling::sampling::Choice;
use skewer_profiling::{Level, Recorder, RecorderLimits};
use skewer_storage::{DEFAULT_SCHEMA, Storage, TableMeta};

use super::*;

/// A table `t` with a column `v`.
fn storage() -> Storage {
    let storage = Storage::in_memory().unwrap();
    let columns = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true)]));
    let mut transaction = storage.begin();
    transaction
        .create_table(DEFAULT_SCHEMA, "t", columns, false)
        .unwrap();
    transaction.commit().unwrap();
    storage
}

fn table(storage: &Storage) -> Arc<TableMeta> {
    storage.snapshot().table(DEFAULT_SCHEMA, "t").unwrap()
}

/// Adds a segment of rows whose values are those that their ids will be.
async fn insert(storage: &Storage, rows: Range<i64>) {
    let table = table(storage);
    let mut writer = storage.writer(&table);
    let schema = SchemaRef::clone(&table.schema);
    let values = Int64Array::from_iter_values(rows);
    let batch = RecordBatch::try_new(schema, vec![Arc::new(values)]).unwrap();
    writer.write(&batch).await.unwrap();
    let segments = writer.finish().await.unwrap();
    let mut transaction = storage.begin();
    transaction.add_segments(table.id, segments).unwrap();
    transaction.commit().unwrap();
}

/// Replaces the segment that has row 0 by one of rows with these ids, which are their values.
async fn replace_first(storage: &Storage, ids: Vec<i64>) {
    let table = table(storage);
    let mut writer = storage.writer(&table);
    let ids: ArrayRef = Arc::new(Int64Array::from(ids));
    let batch = RecordBatch::try_new(table.physical_schema(), vec![Arc::clone(&ids), ids]);
    writer.write_with_ids(&batch.unwrap()).await.unwrap();
    let segments = writer.finish().await.unwrap();
    let mut transaction = storage.begin();
    let first = table
        .segments
        .iter()
        .find(|segment| segment.min_row_id == 0);
    let removed = [first.unwrap().id];
    transaction
        .replace_segments(table.id, &removed, segments)
        .unwrap();
    transaction.commit().unwrap();
}

/// Of columns `v`, [`ROW_ID`] and `id` those of `projection`, and how many bytes were read.
async fn scan(
    storage: &Storage,
    id: Expr,
    projection: Option<Vec<usize>>,
    limit: Option<usize>,
) -> (Vec<RecordBatch>, usize) {
    // More partitions than segments: they are cut.
    let config = SessionConfig::new().with_target_partitions(5);
    let context = SessionContext::new_with_config(config);
    let url = storage.object_store_url();
    context.register_object_store(url.as_ref(), storage.object_store());
    let ids = IdColumn {
        name: "id".to_owned(),
        nullable: matches!(id, Expr::ScalarFunction(_)),
        narrow: false,
        value: id,
    };
    let rows = NativeTable::with_row_ids(&table(storage), storage);
    let rows = rows.with_id_column(ids);
    let state = context.state();
    let scan = rows
        .scan(&state, projection.as_ref(), &[], limit)
        .await
        .unwrap();
    let scan = scan
        .repartitioned(5, state.config_options())
        .unwrap()
        .unwrap_or(scan);
    let batches = collect(Arc::clone(&scan), context.task_ctx()).await;
    let bytes = scan.metrics().unwrap().sum_by_name("bytes_scanned");
    (batches.unwrap(), bytes.unwrap().as_usize())
}

fn pairs(batches: &[RecordBatch], left: usize, right: usize) -> Vec<(i64, i64)> {
    let mut pairs = Vec::new();
    for batch in batches {
        let column = |index: usize| batch.column(index).as_primitive::<Int64Type>();
        let (left, right) = (column(left).values(), column(right).values());
        pairs.extend(left.iter().copied().zip(right.iter().copied()));
    }
    pairs.sort_unstable();
    pairs
}

#[tokio::test]
async fn consecutive_ids_are_counted_and_others_read() {
    let storage = storage();
    insert(&storage, 0..300_000).await;
    insert(&storage, 300_000..400_000).await;
    let (batches, counted) = scan(&storage, col(ROW_ID), Some(vec![0, 2]), None).await;
    let expected: Vec<_> = (0..400_000).map(|id| (id, id)).collect();
    assert!(pairs(&batches, 0, 1) == expected);

    // The same rows in another order.
    replace_first(&storage, (0..300_000).rev().collect()).await;
    let (batches, read) = scan(&storage, col(ROW_ID), Some(vec![0, 2]), None).await;
    assert!(pairs(&batches, 0, 1) == expected);
    assert!(0 < counted && counted < read, "{counted} of {read} bytes");

    // Some of them.
    replace_first(&storage, (0..100_000).filter(|id| id % 3 != 1).collect()).await;
    let (batches, _) = scan(&storage, col(ROW_ID), Some(vec![0, 2]), None).await;
    let some = (0..100_000).filter(|id| id % 3 != 1);
    let some = some.chain(300_000..400_000);
    let some: Vec<_> = some.map(|id| (id, id)).collect();
    assert!(pairs(&batches, 0, 1) == some);
}

#[tokio::test]
async fn what_is_made_of_counted_ids_is_what_is_made_of_ids() {
    let storage = storage();
    insert(&storage, 0..200_000).await;
    let id = col(ROW_ID) * lit(10_i64) + lit(3_i64);
    let made: Vec<_> = (0..200_000).map(|id| (id, 10 * id + 3)).collect();
    let (batches, _) = scan(&storage, id.clone(), None, None).await;
    assert!(pairs(&batches, 0, 2) == made);
    let (batches, _) = scan(&storage, id.clone(), Some(vec![2, 1]), None).await;
    assert!(pairs(&batches, 1, 0) == made);
    // Nothing else is read, not a byte.
    let (batches, bytes) = scan(&storage, id.clone(), Some(vec![2]), None).await;
    let rows: Vec<_> = made.iter().map(|(_, id)| (*id, *id)).collect();
    assert!(pairs(&batches, 0, 0) == rows);
    assert_eq!(bytes, 0);
    let (batches, _) = scan(&storage, id, Some(vec![0, 2]), Some(7)).await;
    let pairs = pairs(&batches, 0, 1);
    assert!(pairs.len() >= 7);
    assert!(pairs.iter().all(|(v, id)| *id == 10 * v + 3));
}

#[tokio::test]
async fn counted_ids_are_sampled_as_those_that_are_read() {
    let storage = storage();
    insert(&storage, 0..200_000).await;
    let (rate, limits) = (0.01, RecorderLimits::default());
    let recorder = Recorder::new(1, Level::Records, rate, limits);
    let sampled = ScalarUDF::from(SampledRowId::new(recorder)).call(vec![col(ROW_ID)]);
    let choice = Choice::of_rate(rate);
    let expected: Vec<_> = (0..200_000).filter(|id| choice.traces(*id)).collect();
    let ids_of_scan = async |projection: Vec<usize>, limit| {
        let (batches, bytes) = scan(&storage, sampled.clone(), Some(projection), limit).await;
        let mut chosen = Vec::new();
        for batch in &batches {
            let columns = batch.columns().iter();
            let [values, ids] = [columns.clone().next(), columns.last()]
                .map(|c| c.unwrap().as_primitive::<Int64Type>());
            let rows = ids.iter().enumerate();
            let rows = rows.filter_map(|(row, id)| Some((values.value(row), id?)));
            chosen.extend(rows.map(|(value, id)| {
                assert!(batch.num_columns() == 1 || value == id);
                id
            }));
        }
        chosen.sort_unstable();
        (chosen, bytes)
    };
    let (chosen, counted) = ids_of_scan(vec![0, 2], None).await;
    assert!(chosen == expected);
    let (chosen, bytes) = ids_of_scan(vec![2], None).await;
    assert!(chosen == expected);
    assert_eq!(bytes, 0);
    // Which rows come is the reader's affair.
    let (chosen, _) = ids_of_scan(vec![0, 2], Some(150_000)).await;
    assert!(!chosen.is_empty() && chosen.iter().all(|id| choice.traces(*id)));

    replace_first(&storage, (0..200_000).rev().collect()).await;
    let (chosen, read) = ids_of_scan(vec![0, 2], None).await;
    assert!(chosen == expected);
    assert!(counted < read, "{counted} of {read} bytes");
}

#[tokio::test]
async fn a_table_says_whether_its_ids_fit_into_32_bits() {
    let storage = storage();
    let are_narrow =
        || NativeTable::identified(&table(&storage), &storage, false, "+00:00").has_int32_ids();
    assert!(are_narrow());
    insert(&storage, 0..10).await;
    assert!(are_narrow());
    let last = i64::from(i32::MAX);
    replace_first(&storage, vec![0, last]).await;
    assert!(are_narrow());
    replace_first(&storage, vec![0, last + 1]).await;
    assert!(!are_narrow());
}

/// What a query of `t` with the column `id` returns, and how many bytes were read for it.
async fn queried(storage: &Storage, sql: &str) -> (Vec<(i64, i64)>, usize) {
    let config = SessionConfig::new().with_target_partitions(2);
    let context = SessionContext::new_with_config(config);
    let url = storage.object_store_url();
    context.register_object_store(url.as_ref(), storage.object_store());
    let ids = IdColumn {
        name: "id".to_owned(),
        value: col(ROW_ID),
        nullable: false,
        narrow: false,
    };
    let rows = NativeTable::with_row_ids(&table(storage), storage);
    context
        .register_table("t", rows.with_id_column(ids))
        .unwrap();
    let plan = context.sql(sql).await.unwrap();
    let plan = plan.create_physical_plan().await.unwrap();
    let batches = collect(Arc::clone(&plan), context.task_ctx()).await;
    let mut scan = plan;
    while let Some(below) = scan.children().first().map(|child| Arc::clone(child)) {
        scan = below;
    }
    let bytes = scan.metrics().unwrap().sum_by_name("bytes_scanned");
    // None where planning has left out all segments.
    let bytes = bytes.map_or(0, |bytes| bytes.as_usize());
    (pairs(&batches.unwrap(), 0, 1), bytes)
}

#[tokio::test]
async fn ids_of_rows_that_a_filter_or_a_limit_leaves_are_counted_too() {
    let storage = storage();
    insert(&storage, 0..300_000).await;
    insert(&storage, 300_000..400_000).await;
    let queries = [
        // Row groups, files, and pages are left out.
        ("v >= 290000", 290_000..400_000),
        ("v < 5000 OR v > 390000", 0..0),
        ("v BETWEEN 200000 AND 200010", 200_000..200_011),
        ("v % 1000 = 7", 0..0),
        ("v < 0", 0..0),
    ];
    // The first query reads the footers while it is planned, later ones while they run.
    queried(&storage, "SELECT v, id FROM t LIMIT 1").await;
    for (predicate, expected) in &queries {
        let sql = format!("SELECT v, id FROM t WHERE {predicate}");
        let (rows, counted) = queried(&storage, &sql).await;
        assert!(rows.iter().all(|(v, id)| v == id), "{predicate}");
        let sql = format!("SELECT v, v FROM t WHERE {predicate}");
        let (same, bytes) = queried(&storage, &sql.replace("v, v", "v, v AS w")).await;
        assert!(rows == same, "{predicate}");
        assert_eq!(counted, bytes, "{predicate}: no id is read");
        if !expected.is_empty() {
            let expected: Vec<_> = expected.clone().map(|id| (id, id)).collect();
            assert!(rows == expected, "{predicate}");
        }
    }
    // What only the reader knows.
    let sql = "SELECT file_row_index() AS place, id FROM t WHERE v >= 390000";
    let (rows, _) = queried(&storage, sql).await;
    let expected: Vec<_> = (90_000..100_000).map(|row| (row, row + 300_000)).collect();
    assert!(rows == expected);
    let sql = "SELECT v, id, v + 1 AS next FROM t WHERE v >= 399999";
    assert_eq!(queried(&storage, sql).await.0, [(399_999, 399_999)]);
    let sql = "SELECT v, id FROM t LIMIT 140000";
    let (rows, _) = queried(&storage, sql).await;
    assert_eq!(rows.len(), 140_000);
    assert!(rows.iter().all(|(v, id)| v == id));

    // The first rows in some order: row groups are read in that order, and pruned by what has been found.
    let mut ordered = Vec::new();
    for order in ["v DESC", "v", "v % 1000, v DESC", "v, id"] {
        let sql = format!("SELECT v, id FROM t ORDER BY {order} LIMIT 7");
        let (rows, counted) = queried(&storage, &sql).await;
        assert!(
            rows.len() == 7 && rows.iter().all(|(v, id)| v == id),
            "{order}"
        );
        let sql = sql
            .replace("v, id FROM", "v, v AS w FROM")
            .replace("v, id", "v, w");
        let (same, bytes) = queried(&storage, &sql).await;
        assert!(rows == same, "{order}");
        ordered.push((order, rows, counted == bytes));
    }
    assert!(ordered[0].1.iter().map(|(v, _)| *v).eq(399_993..400_000));
    let counted: Vec<bool> = ordered.iter().map(|(.., counted)| *counted).collect();
    assert_eq!(counted, [true; 4]);

    // Row groups of one file, the last one first.
    let sql = "SELECT v, id FROM t WHERE v < 290000 ORDER BY v DESC LIMIT 7";
    let (rows, _) = queried(&storage, sql).await;
    assert!(rows.into_iter().eq((289_993..290_000).map(|id| (id, id))));

    // Some ids of the first segment are missing.
    replace_first(&storage, (0..100_000).filter(|id| id % 3 != 1).collect()).await;
    for (order, rows, _) in &ordered[..2] {
        let sql = format!("SELECT v, id FROM t ORDER BY {order} LIMIT 7");
        let (read, _) = queried(&storage, &sql).await;
        assert!(read.iter().all(|(v, id)| v == id), "{order}");
        assert_eq!(read == *rows, *order == "v DESC");
    }
    for (predicate, _) in &queries {
        let sql = format!("SELECT v, id FROM t WHERE {predicate}");
        let (rows, _) = queried(&storage, &sql).await;
        assert!(rows.iter().all(|(v, id)| v == id), "{predicate}");
    }
}
