//! What the tests share: small tables of numbers, and all of a database as a plain value.

pub mod nodes;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{Array, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::TryStreamExt;
use futures::executor::block_on;
use skewer_storage::disk::Disk;
use skewer_storage::{DEFAULT_SCHEMA, NewSegment, Result, Storage, StorageOptions, TableMeta};

pub type Rows = BTreeMap<i64, Vec<Option<i64>>>;

/// Tables (columns and rows by row id) and views (name → SQL).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dump {
    pub tables: BTreeMap<String, (Vec<String>, Rows)>,
    pub views: BTreeMap<String, String>,
}

impl Dump {
    /// Without row ids, which skip numbers when statements fail.
    pub fn values(&self) -> BTreeMap<String, Vec<Vec<Option<i64>>>> {
        let sorted = |rows: &Rows| {
            let mut values: Vec<_> = rows.values().cloned().collect();
            values.sort();
            values
        };
        self.tables
            .iter()
            .map(|(name, (_, rows))| (name.clone(), sorted(rows)))
            .collect()
    }
}

/// Opens with three rows per segment, so that a few rows make several.
pub fn open(path: &Path, disk: Arc<dyn Disk>) -> Result<Storage> {
    let segment_rows = 3;
    Storage::open(path, StorageOptions { disk, segment_rows })
}

pub fn columns(names: &[&str]) -> SchemaRef {
    let field = |name: &&str| Field::new(*name, DataType::Int64, true);
    Arc::new(Schema::new(names.iter().map(field).collect::<Vec<_>>()))
}

pub fn batch(table: &TableMeta, values: &[i64]) -> RecordBatch {
    let column = |_| Arc::new(Int64Array::from(values.to_vec())) as _;
    let columns = table.schema.fields().iter().map(column).collect();
    RecordBatch::try_new(Arc::clone(&table.schema), columns).unwrap()
}

pub fn table(storage: &Storage, name: &str) -> Arc<TableMeta> {
    storage.snapshot().table(DEFAULT_SCHEMA, name).unwrap()
}

pub fn write(storage: &Storage, table: &TableMeta, values: &[i64]) -> Result<Vec<NewSegment>> {
    block_on(async {
        let mut writer = storage.writer(table);
        writer.write(&batch(table, values)).await?;
        writer.finish().await
    })
}

/// INSERT: each value goes into all columns.
pub fn insert(storage: &Storage, name: &str, values: &[i64]) -> Result<()> {
    let table = table(storage, name);
    let segments = write(storage, &table, values)?;
    let mut transaction = storage.begin();
    transaction.add_segments(table.id, segments)?;
    transaction.commit().map(drop)
}

/// UPDATE or DELETE: rewrites the first column of each row, or removes the row, copy-on-write.
pub fn rewrite(storage: &Storage, name: &str, change: impl Fn(i64) -> Option<i64>) -> Result<()> {
    let table = table(storage, name);
    let mut removed = Vec::new();
    let mut writer = storage.writer(&table);
    for segment in &table.segments {
        let rows = rows_of(storage, &table, segment)?;
        let after: Rows = rows
            .iter()
            .filter_map(|(id, row)| {
                let mut row = row.clone();
                row[0] = match row[0] {
                    None => None,
                    Some(value) => Some(change(value)?),
                };
                Some((*id, row))
            })
            .collect();
        if after != rows {
            removed.push(segment.id);
            block_on(writer.write_with_ids(&physical(&table, &after)))?;
        }
    }
    let added = block_on(writer.finish())?;
    let mut transaction = storage.begin();
    transaction.replace_segments(table.id, &removed, added)?;
    transaction.commit().map(drop)
}

fn physical(table: &TableMeta, rows: &Rows) -> RecordBatch {
    let mut columns: Vec<Arc<dyn Array>> = Vec::new();
    for index in 0..table.schema.fields().len() {
        let values = rows.values().map(|row| row[index]);
        columns.push(Arc::new(values.collect::<Int64Array>()));
    }
    columns.push(Arc::new(Int64Array::from_iter_values(rows.keys().copied())));
    RecordBatch::try_new(table.physical_schema(), columns).unwrap()
}

pub fn rows_of(
    storage: &Storage,
    table: &TableMeta,
    segment: &Arc<skewer_storage::SegmentMeta>,
) -> Result<Rows> {
    let batches: Vec<RecordBatch> = block_on(async {
        storage
            .read_segment(table, segment)
            .await?
            .try_collect()
            .await
    })?;
    let mut rows = Rows::new();
    for batch in batches {
        let column = |index: usize| {
            let column = batch.column(index).as_any();
            column.downcast_ref::<Int64Array>().unwrap()
        };
        let ids = column(batch.num_columns() - 1);
        for row in 0..batch.num_rows() {
            let value = |index| {
                let column = column(index);
                column.is_valid(row).then(|| column.value(row))
            };
            let values = (0..batch.num_columns() - 1).map(value).collect();
            let earlier = rows.insert(ids.value(row), values);
            assert!(earlier.is_none(), "row id {} twice", ids.value(row));
        }
    }
    assert_eq!(rows.len() as u64, segment.rows);
    assert_eq!(rows.keys().next(), Some(&segment.min_row_id));
    assert_eq!(rows.keys().last(), Some(&segment.max_row_id));
    Ok(rows)
}

pub fn table_rows(storage: &Storage, table: &TableMeta) -> Result<Rows> {
    let mut all = Rows::new();
    for segment in &table.segments {
        let rows = rows_of(storage, table, segment)?;
        let count = all.len() + rows.len();
        all.extend(rows);
        assert_eq!(all.len(), count, "a row id is in two segments");
    }
    Ok(all)
}

pub fn dump(storage: &Storage) -> Dump {
    let snapshot = storage.snapshot();
    let mut dump = Dump::default();
    for table in snapshot.tables(DEFAULT_SCHEMA) {
        let names = table.schema.fields().iter().map(|f| f.name().clone());
        let rows = table_rows(storage, &table).unwrap();
        dump.tables
            .insert(table.name.clone(), (names.collect(), rows));
    }
    for view in snapshot.views(DEFAULT_SCHEMA) {
        dump.views.insert(view.name.clone(), view.sql.clone());
    }
    dump
}

/// Segment files below a database directory.
pub fn files(path: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for directory in std::fs::read_dir(path.join("segments")).unwrap() {
        for file in std::fs::read_dir(directory.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            files.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
    }
    files.sort();
    files
}

/// Segment files the current snapshot refers to.
pub fn referenced(storage: &Storage) -> Vec<String> {
    let mut files = Vec::new();
    for table in storage.snapshot().tables(DEFAULT_SCHEMA) {
        let names = table.segments.iter().map(|s| format!("{}.parquet", s.id));
        files.extend(names);
    }
    files.sort();
    files
}
