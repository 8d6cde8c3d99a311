//! Row ids that a scan counts in place of reading them.
//!
//! Where nothing makes the scan leave out rows, those of a row group whose ids are consecutive have
//! the ids from its first on: no page of them has to be read and decoded, which takes 5 % of a query
//! that only adds up one column. Where rows may be left out, the reader says which rows of the file it
//! returns, and that tells their ids.
//!
//! ```text
//! CountedIds ── every file: does its footer say that its ids are consecutive?
//!   yes, no filter and no limit → ParquetSource without _row_id; the ids, counted, are put beside
//!   yes                         → ParquetSource with the rows' places in the file in place of _row_id
//!   no                          → ParquetSource with _row_id
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::datasource::listing::{FileRange, PartitionedFile};
use datafusion::datasource::physical_plan::{
    FileGroup, FileOpener, FileScanConfig, FileSource, ParquetSource,
};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::functions::core::file_row_index;
use datafusion::object_store::ObjectStore;
use datafusion::parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::{ProjectionExpr, ProjectionExprs, Projector};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{
    EquivalenceProperties, PhysicalExpr, PhysicalSortExpr, ScalarFunctionExpr,
};
use datafusion::physical_plan::filter_pushdown::FilterPushdownPropagation;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{DisplayFormatType, SortOrderPushdownResult};
use datafusion_datasource::morsel::{Morsel, MorselPlan, MorselPlanner, Morselizer};
use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use skewer_exec::ROW_ID;
use skewer_profiling::consecutive_numbers;
use skewer_storage::row_ids;

/// The ids of the rows of a file all of whose row groups have consecutive ones: an extension of a
/// [`PartitionedFile`].
#[derive(Debug, Clone)]
pub(crate) struct ConsecutiveIds(Arc<[RowGroupIds]>);

#[derive(Debug)]
struct RowGroupIds {
    /// Where it begins in the file, in bytes.
    begins: i64,
    /// How many rows of the file are before it.
    rows_before: i64,
    ids: Range<i64>,
}

impl RowGroupIds {
    /// From the place of a row in the file to its id.
    fn offset(&self) -> i64 {
        self.ids.start - self.rows_before
    }

    fn rows_end(&self) -> i64 {
        self.rows_before + self.ids.end - self.ids.start
    }
}

/// Where a row group's first page begins: it is in the part of a file where that is, as for
/// DataFusion.
pub(crate) fn begins(row_group: &RowGroupMetaData) -> i64 {
    row_group.columns().first().map_or(0, |column| {
        let dictionary = column.dictionary_page_offset();
        dictionary.unwrap_or_else(|| column.data_page_offset())
    })
}

impl ConsecutiveIds {
    /// What a segment's footer says; `None` if some ids are missing, or not in order.
    pub(crate) fn of(footer: &ParquetMetaData) -> Option<Self> {
        let mut rows_before = 0;
        let row_groups = footer.row_groups().iter().map(|row_group| {
            // Without it the reader cannot tell which rows it returns.
            row_group.ordinal()?;
            let ids = RowGroupIds {
                begins: begins(row_group),
                rows_before,
                ids: row_ids::consecutive(row_group)?,
            };
            rows_before = ids.rows_end();
            Some(ids)
        });
        row_groups.collect::<Option<_>>().map(Self)
    }

    fn of_part(&self, part: Option<&FileRange>) -> VecDeque<Range<i64>> {
        let row_groups = self.0.iter();
        row_groups
            .filter(|row_group| part.is_none_or(|part| part.contains(row_group.begins)))
            .map(|row_group| row_group.ids.clone())
            .collect()
    }

    /// The ids of the rows at these places in the file; those of a row group follow each other.
    fn at(&self, places: &Int64Array) -> Result<Int64Array> {
        let mut left = &places.values()[..];
        let mut ids = Vec::new();
        while let Some(first) = left.first() {
            let group = self.0.partition_point(|group| group.rows_end() <= *first);
            let Some(group) = self.0.get(group) else {
                return internal_err!("a segment has more rows than its footer says");
            };
            let of_group = group.rows_before..group.rows_end();
            let mut is_own = left.iter().map(|place| of_group.contains(place));
            // A batch is of one row group, but for a few.
            let own = match left.last().is_some_and(|last| of_group.contains(last)) {
                true => left.len(),
                false => is_own.by_ref().take_while(|is_own| *is_own).count(),
            };
            debug_assert!(own < left.len() || is_own.all(|is_own| is_own));
            let (own, rest) = left.split_at(own);
            let offset = group.offset();
            if offset == 0 && rest.is_empty() && ids.is_empty() {
                return Ok(places.clone());
            }
            ids.extend(own.iter().map(|place| place + offset));
            left = rest;
        }
        Ok(ids.into())
    }
}

/// A Parquet scan with a projection of [`ROW_ID`], of files of which some have [`ConsecutiveIds`].
///
/// It shows itself as the scan that reads the ids, which it is of the other files.
#[derive(Clone)]
pub(crate) struct CountedIds {
    /// With the projection, of which the ids are a part.
    reading: Arc<dyn FileSource>,
    /// Without a projection.
    bare: Arc<dyn FileSource>,
    /// What both are to have; it is set for each partition, of which many are of few rows.
    batch_size: Option<usize>,
    /// Set when the scan begins.
    counting: Arc<OnceLock<Option<Counting>>>,
    /// The same of a scan that may leave out rows.
    indexing: Arc<OnceLock<Option<Counting>>>,
}

impl CountedIds {
    /// `bare` with `projection`, which reads [`ROW_ID`].
    ///
    /// # Errors
    /// If `bare` refuses the projection.
    pub(crate) fn try_new(bare: Arc<dyn FileSource>, projection: &ProjectionExprs) -> Result<Self> {
        let Some(reading) = bare.try_pushdown_projection(projection)? else {
            return internal_err!("a Parquet scan refuses a projection");
        };
        Ok(Self {
            reading,
            bare,
            batch_size: None,
            counting: Arc::default(),
            indexing: Arc::default(),
        })
    }

    /// The same scan after a change of what it reads.
    fn reading(&self, reading: Arc<dyn FileSource>) -> Arc<dyn FileSource> {
        Arc::new(Self {
            reading,
            bare: Arc::clone(&self.bare),
            batch_size: self.batch_size,
            counting: Arc::default(),
            indexing: Arc::default(),
        })
    }

    /// With the batch size.
    fn sized(&self, source: &Arc<dyn FileSource>) -> Arc<dyn FileSource> {
        match self.batch_size {
            Some(batch_size) => source.with_batch_size(batch_size),
            None => Arc::clone(source),
        }
    }

    /// How to count the ids; `None` if nothing is made of them, or they cannot be.
    fn counting(&self, rows: Rows) -> Result<Option<&Counting>> {
        let cell = match rows {
            Rows::All => &self.counting,
            Rows::Some => &self.indexing,
        };
        if let Some(counting) = cell.get() {
            return Ok(counting.as_ref());
        }
        let counting = match self.reading.projection() {
            Some(projection) => Counting::of(&self.bare, &self.reading, projection, rows)?,
            None => None,
        };
        Ok(cell.get_or_init(|| counting).as_ref())
    }
}

/// Which rows of its files a scan returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    All,
    /// Filters prune, and which rows a limit lets the reader leave out is its own affair.
    Some,
}

/// The other columns, and what becomes of them and the ids.
struct Counting {
    others: Arc<dyn FileSource>,
    rows: Arc<NumberedRows>,
}

impl Counting {
    /// Of the scan `reading`, which is `bare` with `projection` and perhaps a filter.
    fn of(
        bare: &Arc<dyn FileSource>,
        reading: &Arc<dyn FileSource>,
        projection: &ProjectionExprs,
        rows: Rows,
    ) -> Result<Option<Self>> {
        let schema = bare.table_schema().table_schema();
        let row_id = schema.index_of(ROW_ID)?;
        // What is not made of ids is read as it is, such as a part of a struct, or what only the reader
        // knows.
        let mut others = Vec::new();
        let mut of_ids = Vec::new();
        for (place, made) in projection.iter().enumerate() {
            let columns = collect_columns(&made.expr);
            if columns.iter().any(|column| column.index() > row_id) {
                // One that the reader makes; `bare` does not know of it.
                return Ok(None);
            }
            match columns.iter().any(|column| column.index() == row_id) {
                true if columns.len() > 1 => return Ok(None),
                true => of_ids.push(place),
                false => others.push(made.clone()),
            }
        }
        if of_ids.is_empty() {
            return Ok(None);
        }
        let counted = ProjectionExprs::new(others.clone()).project_schema(schema)?;
        let mut fields = counted.fields().to_vec();
        fields.push(Arc::new(schema.field(row_id).clone()));
        let counted = Arc::new(Schema::new(fields));
        let mut other = 0..others.len();
        let made = projection.iter().enumerate().map(|(place, made)| {
            let expr = match of_ids.contains(&place) {
                true => at_place(&made.expr, others.len())?,
                false => {
                    let place = other.next().unwrap_or_default();
                    Arc::new(Column::new(&made.alias, place)) as _
                }
            };
            Ok(ProjectionExpr::new(expr, &made.alias))
        });
        let made: ProjectionExprs = made.collect::<Result<Vec<_>>>()?.into();
        let read = match rows {
            Rows::All => bare.try_pushdown_projection(&others.into())?,
            Rows::Some => with_places(bare, reading.filter(), others)?,
        };
        let Some(others) = read else {
            return Ok(None);
        };
        let rows = NumberedRows {
            projector: made.make_projector(&counted)?,
            schema: counted,
        };
        Ok(Some(Self {
            others,
            rows: Arc::new(rows),
        }))
    }
}

/// An expression of row ids where these are at `place`.
fn at_place(expr: &Arc<dyn PhysicalExpr>, place: usize) -> Result<Arc<dyn PhysicalExpr>> {
    let expr = Arc::clone(expr).transform(|part| {
        Ok(match part.is::<Column>() {
            true => Transformed::yes(Arc::new(Column::new(ROW_ID, place)) as _),
            false => Transformed::no(part),
        })
    })?;
    Ok(expr.data)
}

/// `bare` with a filter and these columns, and after them the place of each row in its file.
fn with_places(
    bare: &Arc<dyn FileSource>,
    filter: Option<Arc<dyn PhysicalExpr>>,
    mut columns: Vec<ProjectionExpr>,
) -> Result<Option<Arc<dyn FileSource>>> {
    let Some(bare) = bare.downcast_ref::<ParquetSource>() else {
        return Ok(None);
    };
    let filtered = match filter {
        Some(filter) => bare.with_predicate(filter),
        None => bare.clone(),
    };
    let schema = bare.table_schema().table_schema();
    let place = ScalarFunctionExpr::try_new(
        file_row_index(),
        vec![],
        schema,
        Arc::new(ConfigOptions::default()),
    )?;
    columns.push(ProjectionExpr::new(Arc::new(place), ROW_ID));
    filtered.try_pushdown_projection(&columns.into())
}

impl FileSource for CountedIds {
    fn create_file_opener(
        &self,
        object_store: Arc<dyn ObjectStore>,
        base_config: &FileScanConfig,
        partition: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        self.reading
            .create_file_opener(object_store, base_config, partition)
    }

    fn create_morselizer(
        &self,
        object_store: Arc<dyn ObjectStore>,
        base_config: &FileScanConfig,
        partition: usize,
    ) -> Result<Box<dyn Morselizer>> {
        let begin = |source: &Arc<dyn FileSource>| {
            let store = Arc::clone(&object_store);
            self.sized(source)
                .create_morselizer(store, base_config, partition)
        };
        let returned = match self.reading.filter().is_some() || base_config.limit.is_some() {
            true => Rows::Some,
            false => Rows::All,
        };
        let Some(Counting { others, rows }) = self.counting(returned)? else {
            return begin(&self.reading);
        };
        let mut files = base_config.file_groups.iter().flat_map(FileGroup::iter);
        let all_counted = files.all(|file| file.extension::<ConsecutiveIds>().is_some());
        Ok(Box::new(CountingMorselizer {
            others: begin(others)?,
            rows: Arc::clone(rows),
            returned,
            reading: match all_counted {
                true => None,
                false => Some(begin(&self.reading)?),
            },
        }))
    }

    fn table_schema(&self) -> &TableSchema {
        self.reading.table_schema()
    }

    fn with_batch_size(&self, batch_size: usize) -> Arc<dyn FileSource> {
        Arc::new(Self {
            batch_size: Some(batch_size),
            ..self.clone()
        })
    }

    fn filter(&self) -> Option<Arc<dyn PhysicalExpr>> {
        self.reading.filter()
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        self.reading.projection()
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        self.reading.metrics()
    }

    fn file_type(&self) -> &str {
        self.reading.file_type()
    }

    fn fmt_extra(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reading.fmt_extra(format, f)
    }

    fn supports_repartitioning(&self) -> bool {
        self.reading.supports_repartitioning()
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn FileSource>>> {
        let mut pushed = self.reading.try_pushdown_filters(filters, config)?;
        pushed.updated_node = pushed.updated_node.map(|reading| self.reading(reading));
        Ok(pushed)
    }

    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
        properties: &EquivalenceProperties,
    ) -> Result<SortOrderPushdownResult<Arc<dyn FileSource>>> {
        self.reading.try_pushdown_sort(order, properties)
    }

    fn try_pushdown_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn FileSource>>> {
        let reading = self.reading.try_pushdown_projection(projection)?;
        Ok(reading.map(|reading| self.reading(reading)))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.reading.apply_expressions(f)
    }
}

/// Makes the rows that are asked for of other columns and ids.
#[derive(Debug)]
struct NumberedRows {
    /// Of the other columns, and the ids after them.
    schema: SchemaRef,
    projector: Projector,
}

impl NumberedRows {
    /// Of columns that end with the ids.
    fn of(&self, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
        let rows = RecordBatch::try_new(SchemaRef::clone(&self.schema), columns)?;
        self.projector.project_batch(&rows)
    }
}

/// Opens the files of a partition.
#[derive(Debug)]
struct CountingMorselizer {
    others: Box<dyn Morselizer>,
    rows: Arc<NumberedRows>,
    returned: Rows,
    /// Of the files whose ids cannot be counted, if there are any.
    reading: Option<Box<dyn Morselizer>>,
}

impl Morselizer for CountingMorselizer {
    fn plan_file(&self, file: PartitionedFile) -> Result<Box<dyn MorselPlanner>> {
        let ids = file.extension::<ConsecutiveIds>();
        let ids = ids.map(|ids| match self.returned {
            Rows::All => Ids::Next(Arc::new(Mutex::new(ids.of_part(file.range.as_ref())))),
            Rows::Some => Ids::At(ids.clone()),
        });
        match (ids, &self.reading) {
            (Some(ids), _) => Ok(Box::new(CountingPlanner {
                others: self.others.plan_file(file)?,
                ids,
                rows: Arc::clone(&self.rows),
            })),
            (None, Some(reading)) => reading.plan_file(file),
            (None, None) => internal_err!("a file's row ids are not known"),
        }
    }
}

/// The ids of a file's rows.
#[derive(Debug, Clone)]
enum Ids {
    /// Of the rows that have not come yet, in order.
    Next(Arc<Mutex<VecDeque<Range<i64>>>>),
    /// Of the rows at the places that the last column has.
    At(ConsecutiveIds),
}

impl Ids {
    /// The columns of a batch, and the ids of its rows after them.
    fn beside(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let mut columns = batch.columns().to_vec();
        let ids = match self {
            Self::Next(left) => next_ids(&mut left.lock(), batch.num_rows())?,
            Self::At(ids) => {
                let places = columns.pop();
                let places = places.as_ref().map(|places| places.as_primitive_opt());
                let Some(Some(places)) = places else {
                    return internal_err!("a segment's reader does not say which rows it returns");
                };
                ids.at(places)?
            }
        };
        columns.push(Arc::new(ids));
        Ok(columns)
    }
}

/// Plans what reads the other columns of a file, and has the ids put beside.
#[derive(Debug)]
struct CountingPlanner {
    others: Box<dyn MorselPlanner>,
    ids: Ids,
    rows: Arc<NumberedRows>,
}

impl CountingPlanner {
    fn around(others: Box<dyn MorselPlanner>, ids: &Ids, rows: &Arc<NumberedRows>) -> Self {
        Self {
            others,
            ids: ids.clone(),
            rows: Arc::clone(rows),
        }
    }
}

impl MorselPlanner for CountingPlanner {
    fn plan(self: Box<Self>) -> Result<Option<MorselPlan>> {
        let Self { others, ids, rows } = *self;
        let Some(mut plan) = others.plan()? else {
            return Ok(None);
        };
        let morsels = plan.take_morsels().into_iter().map(|others| {
            let (ids, rows) = (ids.clone(), Arc::clone(&rows));
            Box::new(CountedMorsel { others, ids, rows }) as Box<dyn Morsel>
        });
        let planners = plan.take_ready_planners().into_iter();
        let planners = planners
            .map(|others| Box::new(Self::around(others, &ids, &rows)) as Box<dyn MorselPlanner>);
        let mut counted = MorselPlan::new()
            .with_morsels(morsels.collect())
            .with_planners(planners.collect());
        if let Some(pending) = plan.take_pending_planner() {
            counted.set_pending_planner(async move {
                let others = pending.await?;
                Ok(Box::new(Self::around(others, &ids, &rows)) as Box<dyn MorselPlanner>)
            });
        }
        Ok(Some(counted))
    }
}

#[derive(Debug)]
struct CountedMorsel {
    others: Box<dyn Morsel>,
    ids: Ids,
    rows: Arc<NumberedRows>,
}

impl Morsel for CountedMorsel {
    fn into_stream(self: Box<Self>) -> BoxStream<'static, Result<RecordBatch>> {
        let Self { others, ids, rows } = *self;
        let counted = others
            .into_stream()
            .map(move |others| rows.of(ids.beside(&others?)?));
        counted.boxed()
    }
}

/// Takes the ids of the next `rows` rows.
fn next_ids(left: &mut VecDeque<Range<i64>>, rows: usize) -> Result<Int64Array> {
    let mut ids = Vec::new();
    while ids.len() < rows {
        let Some(next) = left.front_mut() else {
            return internal_err!("a segment has more rows than its footer says");
        };
        let missing = (rows - ids.len()) as i64;
        let end = next.end.min(next.start.saturating_add(missing));
        consecutive_numbers(next.start..end, &mut ids);
        next.start = end;
        if next.is_empty() {
            left.pop_front();
        }
    }
    Ok(ids.into())
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field, Int64Type};
    use datafusion::logical_expr::{Expr, col, lit};
    use datafusion::physical_plan::collect;
    use datafusion::prelude::{SessionConfig, SessionContext};
    use skewer_exec::{IdColumn, ScansIds};
    use skewer_storage::{DEFAULT_SCHEMA, Storage, TableMeta};

    use super::*;
    use crate::catalog::native_table::NativeTable;

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
            value: id,
            nullable: false,
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
        (pairs(&batches.unwrap(), 0, 1), bytes.unwrap().as_usize())
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

        // Some ids of the first segment are missing.
        replace_first(&storage, (0..100_000).filter(|id| id % 3 != 1).collect()).await;
        for (predicate, _) in &queries {
            let sql = format!("SELECT v, id FROM t WHERE {predicate}");
            let (rows, _) = queried(&storage, &sql).await;
            assert!(rows.iter().all(|(v, id)| v == id), "{predicate}");
        }
    }

    #[test]
    fn places_become_ids_by_the_row_group_that_they_are_in() {
        let group = |rows_before, ids| RowGroupIds {
            begins: 0,
            rows_before,
            ids,
        };
        let ids = |groups: Vec<RowGroupIds>, places: Vec<i64>| {
            let ids = ConsecutiveIds(groups.into()).at(&places.into());
            ids.map(|ids| ids.values().to_vec())
        };
        let two = || vec![group(0, 0..3), group(3, 10..14)];
        assert_eq!(ids(two(), vec![]).unwrap(), [0; 0]);
        assert_eq!(ids(two(), vec![0, 2]).unwrap(), [0, 2]);
        assert_eq!(ids(two(), vec![1, 2, 3, 6]).unwrap(), [1, 2, 10, 13]);
        assert_eq!(ids(two(), vec![4, 5, 0, 1]).unwrap(), [11, 12, 0, 1]);
        let error = ids(two(), vec![2, 7]).unwrap_err().to_string();
        assert!(error.contains("more rows"), "{error}");
    }

    #[test]
    fn more_rows_than_ids_are_an_error() {
        let mut left = VecDeque::from([5..8, 10..12]);
        assert_eq!(next_ids(&mut left, 0).unwrap().len(), 0);
        let ids = next_ids(&mut left, 4).unwrap();
        assert_eq!(ids.values(), &[5, 6, 7, 10]);
        let error = next_ids(&mut left, 2).unwrap_err();
        assert!(error.to_string().contains("more rows"), "{error}");
    }
}
