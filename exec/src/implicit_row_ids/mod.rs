//! Implicit row ids: a scan counts them in place of reading them.
//!
//! Where nothing makes the scan leave out rows, those of a row group whose ids are consecutive have
//! the ids from its first on: no page of them has to be read and decoded, which takes 5 % of a query
//! that only adds up one column. Where rows may be left out, or come in another order, the reader says
//! which rows of the file it returns, and that tells their ids.
//!
//! Where records are sampled, and nothing else is made of the ids, they are chosen while they are counted:
//! which of a range are traced is known without a look at each.
//!
//! ```text
//! ImplicitRowIds ── every file: does its footer say that its ids are consecutive?
//!   yes, all rows, as they are → ParquetSource without _row_id; the ids, counted, are put beside
//!   yes                        → ParquetSource with the rows' places in the file in place of _row_id
//!   no                         → ParquetSource with _row_id
//! ```

mod consecutive;
mod morsels;

use std::fmt;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::datatypes::Schema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileGroup, FileOpener, FileScanConfig, FileSource, ParquetSource,
};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::functions::core::file_row_index;
use datafusion::logical_expr::ScalarUDF;
use datafusion::object_store::ObjectStore;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::{ProjectionExpr, ProjectionExprs};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{
    EquivalenceProperties, PhysicalExpr, PhysicalSortExpr, ScalarFunctionExpr,
};
use datafusion::physical_plan::filter_pushdown::FilterPushdownPropagation;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{DisplayFormatType, SortOrderPushdownResult};
use datafusion_datasource::morsel::Morselizer;
use skewer_compat::rules::flat_source;

pub use self::consecutive::{ConsecutiveIds, first_page};
use self::morsels::{CountingMorselizer, NumberedRows};
use crate::cached_scan::CachedScan;
use crate::{ROW_ID, SampledRowId};

/// A Parquet scan with a projection of [`ROW_ID`], of files of which some have [`ConsecutiveIds`].
///
/// It shows itself as the scan that reads the ids, which it is of the other files.
#[derive(Clone)]
pub struct ImplicitRowIds {
    /// With the projection, of which the ids are a part.
    reading: Arc<dyn FileSource>,
    /// Without a projection.
    bare: Arc<dyn FileSource>,
    /// Both have been asked for an order, in which they may read row groups.
    ordered: bool,
    /// What both are to have; it is set for each partition, of which many are of few rows.
    batch_size: Option<usize>,
    /// Set when the scan begins.
    counting: Arc<OnceLock<Option<Counting>>>,
    /// The same of a scan that may leave out rows.
    indexing: Arc<OnceLock<Option<Counting>>>,
}

impl ImplicitRowIds {
    /// `bare` with `projection`, which reads [`ROW_ID`].
    ///
    /// # Errors
    /// If `bare` refuses the projection.
    pub fn try_new(bare: Arc<dyn FileSource>, projection: &ProjectionExprs) -> Result<Self> {
        let Some(reading) = bare.try_pushdown_projection(projection)? else {
            return internal_err!("a Parquet scan refuses a projection");
        };
        Ok(Self {
            reading,
            bare,
            ordered: false,
            batch_size: None,
            counting: Arc::default(),
            indexing: Arc::default(),
        })
    }

    /// The same scan after a change of what it reads.
    fn reading(&self, reading: Arc<dyn FileSource>) -> Arc<dyn FileSource> {
        Arc::new(Self {
            reading,
            counting: Arc::default(),
            indexing: Arc::default(),
            ..self.clone()
        })
    }

    /// The same scan after a request for an order, which both are to meet.
    fn in_order(&self, reading: Arc<dyn FileSource>, bare: Arc<dyn FileSource>) -> Self {
        Self {
            reading,
            bare,
            ordered: true,
            batch_size: self.batch_size,
            counting: Arc::default(),
            indexing: Arc::default(),
        }
    }

    /// With the batch size, and a condition that is not deep.
    fn sized(&self, source: &Arc<dyn FileSource>) -> Arc<dyn FileSource> {
        let source = flat_source(source).unwrap_or_else(|| Arc::clone(source));
        match self.batch_size {
            Some(batch_size) => source.with_batch_size(batch_size),
            None => source,
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
            Some(projection) => Counting::of_scan(&self.bare, &self.reading, projection, rows)?,
            None => None,
        };
        Ok(cell.get_or_init(|| counting).as_ref())
    }
}

/// Which rows of its files a scan returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    /// All, in the order of the file.
    All,
    /// Filters prune; which rows a limit lets the reader leave out, and in which order it reads row groups
    /// where one is asked for, is its own affair.
    Some,
}

/// The other columns, and what becomes of them and the ids.
struct Counting {
    others: Arc<dyn FileSource>,
    rows: Arc<NumberedRows>,
}

impl Counting {
    /// Of the scan `reading`, which is `bare` with `projection` and perhaps a filter.
    fn of_scan(
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
            if let Some(column) = made.expr.downcast_ref::<Column>()
                && column.index() < row_id
            {
                others.push(made.clone());
                continue;
            }
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
        let sampled = match of_ids[..] {
            [only] => only_sampled(projection.as_ref()[only].expr.as_ref()),
            _ => None,
        };
        let counted = ProjectionExprs::new(others.clone()).project_schema(schema)?;
        let mut fields = counted.fields().to_vec();
        let ids = schema.field(row_id).clone();
        let nullable = ids.is_nullable() || sampled.is_some();
        fields.push(Arc::new(ids.with_nullable(nullable)));
        let counted = Arc::new(Schema::new(fields));
        let mut other = 0..others.len();
        let made = projection.iter().enumerate().map(|(place, made)| {
            let expr = match of_ids.contains(&place) {
                true if sampled.is_some() => Arc::new(Column::new(ROW_ID, others.len())) as _,
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
            sampled,
        };
        Ok(Some(Self {
            others,
            rows: Arc::new(rows),
        }))
    }
}

/// What chooses among row ids, if an expression of them is that and nothing more.
fn only_sampled(expr: &dyn PhysicalExpr) -> Option<ScalarUDF> {
    let call = expr.downcast_ref::<ScalarFunctionExpr>()?;
    let of_ids = call.args().iter().all(|argument| argument.is::<Column>());
    let samples = call.fun().inner().is::<SampledRowId>();
    (of_ids && samples).then(|| call.fun().clone())
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

/// `bare` with a filter, if it is a scan of Parquet.
fn with_filter(
    bare: &Arc<dyn FileSource>,
    filter: Option<Arc<dyn PhysicalExpr>>,
) -> Option<Arc<dyn FileSource>> {
    let is_parquet = bare.is::<ParquetSource>() || bare.is::<CachedScan>();
    let Some(filter) = filter else {
        return is_parquet.then(|| Arc::clone(bare));
    };
    if let Some(cached) = bare.downcast_ref::<CachedScan>() {
        return Some(Arc::new(cached.with_predicate(filter)));
    }
    let parquet = bare.downcast_ref::<ParquetSource>()?;
    Some(Arc::new(parquet.with_predicate(filter)))
}

/// `bare` with a filter and these columns, and after them the place of each row in its file.
fn with_places(
    bare: &Arc<dyn FileSource>,
    filter: Option<Arc<dyn PhysicalExpr>>,
    mut columns: Vec<ProjectionExpr>,
) -> Result<Option<Arc<dyn FileSource>>> {
    let Some(filtered) = with_filter(bare, filter) else {
        return Ok(None);
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

impl FileSource for ImplicitRowIds {
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
        let some = self.ordered || self.reading.filter().is_some() || base_config.limit.is_some();
        let returned = if some { Rows::Some } else { Rows::All };
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
        use SortOrderPushdownResult::{Exact, Inexact};
        let reading = self.reading.try_pushdown_sort(order, properties)?;
        let bare = self.bare.try_pushdown_sort(order, properties)?;
        // An order is of the files' columns by name, which both have.
        Ok(match (reading, bare) {
            (Exact { inner }, Exact { inner: bare }) => Exact {
                inner: Arc::new(self.in_order(inner, bare)),
            },
            (Inexact { inner }, Inexact { inner: bare }) => Inexact {
                inner: Arc::new(self.in_order(inner, bare)),
            },
            // Where they differ, ids are read.
            (reading, _) => reading,
        })
    }

    fn reorder_files(&self, files: Vec<PartitionedFile>) -> Vec<PartitionedFile> {
        self.reading.reorder_files(files)
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
