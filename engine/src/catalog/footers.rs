//! What planning needs of the footers of segments, kept as long as the segments.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::pruning::PrunableStatistics;
use datafusion::common::stats::Precision;
use datafusion::common::{DFSchema, Result, ScalarValue, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::conjunction;
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use datafusion_datasource_parquet::metadata::DFParquetMetadata;
use parking_lot::Mutex;
use skewer_exec::implicit_row_ids::{ConsecutiveIds, first_page};
use skewer_storage::distinct_values::{EncodedSketch, place_of_sketches};
use skewer_storage::{SegmentMeta, TableMeta, row_ids};

/// So many footers a query reads that no query has read before: each takes some 50 µs, and planning should
/// not take longer than small queries.
const MOST_READ: usize = 128;

/// What planning needs of a segment's footer.
#[derive(Debug)]
pub(crate) struct Footer {
    /// The columns that the statistics are of, row ids last.
    schema: SchemaRef,
    with_row_ids: Arc<Statistics>,
    without_row_ids: Arc<Statistics>,
    /// Where in the file its row groups begin.
    pub(crate) row_groups: Vec<i64>,
    pub(crate) ids: Option<ConsecutiveIds>,
    /// Where in the file the sketches of distinct values are.
    pub(crate) sketches: Option<Range<u64>>,
    /// What the order of joins asks for, read when it first does.
    pub(crate) read: Mutex<ReadForJoins>,
}

/// What has been read of a segment to find the order of joins.
#[derive(Debug, Default)]
pub(crate) struct ReadForJoins {
    /// Sketches of distinct values by column; none in segments that were written without.
    pub(crate) distinct: Option<Arc<HashMap<String, EncodedSketch>>>,
    /// Values of sampled rows by column and number of runs.
    pub(crate) samples: HashMap<(String, usize), ArrayRef>,
}

/// A segment to read, and its footer if that is known.
#[derive(Debug, Clone)]
pub(crate) struct Read<'a> {
    pub(crate) segment: &'a Arc<SegmentMeta>,
    pub(crate) footer: Option<Arc<Footer>>,
}

impl Footer {
    /// Reads the footer of a segment of `table`. One that cannot be read is the scan's to report.
    async fn read(
        table: &TableMeta,
        segment: &SegmentMeta,
        store: &ObjectStoreUrl,
        state: &dyn Session,
    ) -> Option<Self> {
        let schema = table.physical_schema();
        let runtime = state.runtime_env();
        let store = runtime.object_store(store).ok()?;
        // Where the scan finds it again.
        let cache = runtime.cache_manager.get_file_metadata_cache();
        let file = PartitionedFile::new(segment.location.to_string(), segment.bytes);
        let read =
            DFParquetMetadata::new(&store, &file.object_meta).with_file_metadata_cache(Some(cache));
        let footer = read.fetch_metadata().await.ok()?;
        let of = |schema| DFParquetMetadata::statistics_from_parquet_metadata(&footer, schema).ok();
        Some(Self {
            with_row_ids: Arc::new(of(&schema)?),
            without_row_ids: Arc::new(of(&table.schema)?),
            row_groups: footer.row_groups().iter().map(first_page).collect(),
            ids: ConsecutiveIds::from_footer(&footer, row_ids::consecutive),
            sketches: place_of_sketches(footer.file_metadata()),
            read: Mutex::default(),
            schema,
        })
    }

    /// Statistics of the columns of `schema`, which are the table's with the row ids or without, with any zones.
    pub(crate) fn statistics(&self, schema: &SchemaRef) -> Arc<Statistics> {
        let statistics = match schema.fields().len() == self.schema.fields().len() {
            true => &self.with_row_ids,
            false => &self.without_row_ids,
        };
        let types = schema.fields().iter().map(|field| field.data_type());
        let kept = self.schema.fields().iter().map(|field| field.data_type());
        match types.clone().zip(kept).all(|(one, other)| one == other) {
            true => Arc::clone(statistics),
            false => Arc::new(converted(Statistics::clone(statistics), types)),
        }
    }
}

/// Bounds as values of `types`: the same instants in another zone.
fn converted<'a>(
    mut statistics: Statistics,
    types: impl Iterator<Item = &'a DataType>,
) -> Statistics {
    for (column, data_type) in statistics.column_statistics.iter_mut().zip(types) {
        for bound in [&mut column.min_value, &mut column.max_value] {
            let converted: Result<Precision<ScalarValue>> = bound.cast_to(data_type);
            *bound = converted.unwrap_or(Precision::Absent);
        }
    }
    statistics
}

/// `segments` of `table` with their footers, as far as they are known or can be read at once.
pub(crate) async fn read<'a>(
    table: &TableMeta,
    segments: &'a [Arc<SegmentMeta>],
    store: &ObjectStoreUrl,
    state: &dyn Session,
) -> Vec<Read<'a>> {
    let schema = table.physical_schema();
    let mut left = MOST_READ;
    let mut read = Vec::with_capacity(segments.len());
    for segment in segments {
        let known = segment.kept.get::<Footer>();
        // The table may have got other columns since.
        let is_current =
            |footer: &Arc<Footer>| Arc::ptr_eq(&footer.schema, &schema) || footer.schema == schema;
        let mut footer = known.filter(is_current);
        if footer.is_none() && left > 0 {
            left -= 1;
            footer = Footer::read(table, segment, store, state)
                .await
                .map(Arc::new);
            if let Some(footer) = &footer {
                segment.kept.put(Arc::clone(footer));
            }
        }
        read.push(Read { segment, footer });
    }
    read
}

/// For each of the segments with these statistics, whether there may be rows for which all of `filters` hold.
/// `None` if that cannot be told of any.
pub(crate) fn may_hold(
    statistics: Vec<Arc<Statistics>>,
    filters: &[Expr],
    schema: &SchemaRef,
    state: &dyn Session,
) -> Option<Vec<bool>> {
    if filters.is_empty() || statistics.is_empty() {
        return None;
    }
    let columns = DFSchema::try_from(Arc::clone(schema)).ok()?;
    // What is about a column that is made of others is for the filter above.
    let filters = filters.iter();
    let filters =
        filters.filter_map(|filter| state.create_physical_expr(filter.clone(), &columns).ok());
    let builder = PruningPredicateBuilder::new().with_file_schema(Arc::clone(schema));
    let predicate = builder.build(conjunction(filters))?;
    let statistics = PrunableStatistics::new(statistics, Arc::clone(schema));
    predicate.prune(&statistics).ok()
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::pretty::pretty_format_batches;

    use crate::{Database, Session};

    /// How many files the plan of a query reads.
    async fn files(session: &Session, query: &str) -> usize {
        let stream = session.sql(&format!("EXPLAIN {query}")).await.unwrap();
        let plan = pretty_format_batches(&stream.collect().await.unwrap()).unwrap();
        plan.to_string().matches(".parquet").count()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn planning_leaves_out_segments_without_a_row_that_is_asked_for() {
        let session = Database::in_memory().unwrap().session();
        session
            .execute_script(
                "CREATE TABLE t (id BIGINT, at TIMESTAMP WITH TIME ZONE, f DOUBLE);
                 INSERT INTO t VALUES (1, '2026-01-01 00:00:00Z', 1), (2, '2026-01-02 00:00:00Z', 2);
                 INSERT INTO t VALUES (3, '2026-02-01 00:00:00Z', 'NaN');
                 INSERT INTO t VALUES (4, '2026-03-01 00:00:00Z', 4);
                 SET timezone = 'Asia/Tokyo'",
            )
            .await
            .unwrap();
        for (condition, expected) in [
            ("true", 3),
            ("id = 2", 1),
            ("id > 2", 2),
            ("id > 9", 0),
            ("at >= '2026-03-01 09:00:00'", 1),
            // NaN is greater than all other numbers, and no bound knows of it. DataFusion 55.2 prunes nothing by
            // a column that has no bounds in one of the segments.
            ("f > 3", 3),
        ] {
            let query = format!("SELECT id, at, f FROM t WHERE {condition}");
            assert_eq!(files(&session, &query).await, expected, "{condition}");
        }
    }
}
