//! Which hash joins collect their build side in one table that all threads probe.
//!
//! Collected, the probe side needs no exchange. DataFusion collects what it estimates at less than a mebibyte or
//! 128 Ki rows, which is far from what pays. [`collect_larger_build_sides`] raises that; [`GuardedJoinSelection`]
//! keeps to DataFusion's own thresholds where the estimate may be far off.

use std::sync::Arc;

use datafusion::common::config::{ConfigOptions, OptimizerOptions};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{ColumnStatistics, JoinType, Result, Statistics};
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::join_selection::JoinSelection;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizerContext;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, PartitionMode};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

/// Bytes of a build side that one thread collects, by estimate.
const COLLECTED_BYTES: usize = 32 << 20;

/// Rows of a build side that one thread collects, by estimate.
const COLLECTED_ROWS: usize = 2_000_000;

/// How many times the threshold a build side may have if no filter keeps any row back.
const UNFILTERED: usize = 4;

/// Entries that the arrays of one join have at most, of all partitions together, where keys are few in a wide
/// range. An entry has four bytes.
const ARRAY_ENTRIES: usize = 16_000_000;

/// The same of one partition.
const ARRAY_ENTRIES_EACH: usize = 8_000_000;

/// The share of a range's keys that a build side has, from which on a larger array pays, too. At this share the array
/// takes 80 bytes a row, a few times a hash table.
const ARRAY_DENSITY: f64 = 0.05;

/// The part of a memory limit that such arrays take, of all partitions of a join together: one in so many.
const ARRAYS_OF_LIMIT: usize = 256;

/// Raises DataFusion's thresholds for build sides that one thread collects, and for joins that find keys in an array
/// instead of a hash table. For sessions without workers, whose queries have so many `partitions`.
pub fn collect_larger_build_sides(options: &mut ConfigOptions, partitions: usize) {
    options.optimizer.hash_join_single_partition_threshold = COLLECTED_BYTES;
    options.optimizer.hash_join_single_partition_threshold_rows = COLLECTED_ROWS;
    // In each partition, keys that were divided by their hash have the whole range.
    let entries = (ARRAY_ENTRIES / partitions.max(1)).min(ARRAY_ENTRIES_EACH);
    let execution = &mut options.execution;
    let default = execution.perfect_hash_join_small_build_threshold;
    execution.perfect_hash_join_small_build_threshold = entries.max(default);
    execution.perfect_hash_join_min_key_density = ARRAY_DENSITY;
}

/// Lowers the thresholds for arrays of keys to what a memory limit of `limit` bytes can leave out of account:
/// a join that spills accounts for a hash table.
pub fn bound_key_arrays(options: &mut ConfigOptions, limit: usize) {
    let usual = ConfigOptions::default().execution;
    let partitions = options.execution.target_partitions.max(1);
    let entries = limit / ARRAYS_OF_LIMIT / partitions / size_of::<u32>();
    let entries = entries.max(usual.perfect_hash_join_small_build_threshold);
    let execution = &mut options.execution;
    let threshold = &mut execution.perfect_hash_join_small_build_threshold;
    *threshold = (*threshold).min(entries);
    let density = &mut execution.perfect_hash_join_min_key_density;
    *density = density.max(usual.perfect_hash_join_min_key_density);
}

/// DataFusion's rule that picks the build side of joins, and whether one thread collects it.
///
/// DataFusion takes every key of a join without statistics for a different one, so several joins in a row may have a
/// thousand times the estimated rows. It assumes that a filter keeps a fifth. A build side above DataFusion's default
/// thresholds is collected only if its rows are bounded without these two estimates.
#[derive(Debug)]
pub struct GuardedJoinSelection {
    inner: JoinSelection,
    /// Bytes and rows below which an estimate suffices.
    small: (usize, usize),
}

impl GuardedJoinSelection {
    /// With the thresholds that DataFusion has by default.
    pub fn new() -> Self {
        let usual = OptimizerOptions::default();
        Self {
            inner: JoinSelection::new(),
            small: (
                usual.hash_join_single_partition_threshold,
                usual.hash_join_single_partition_threshold_rows,
            ),
        }
    }

    fn guarded(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let optimizer = &config.optimizer;
        let (bytes, rows) = self.small;
        let is_raised = optimizer.hash_join_single_partition_threshold > bytes
            || optimizer.hash_join_single_partition_threshold_rows > rows;
        // Otherwise, joins collect whatever they have.
        let chooses = config.execution.target_partitions > 1 && optimizer.repartition_joins;
        if !is_raised || !chooses {
            return Ok(plan);
        }
        let most = optimizer.hash_join_single_partition_threshold_rows;
        let most = most.saturating_mul(UNFILTERED);
        plan.transform_up(|plan| {
            let Some(join) = plan.downcast_ref::<HashJoinExec>() else {
                return Ok(Transformed::no(plan));
            };
            let collects = *join.partition_mode() == PartitionMode::CollectLeft;
            if !collects || join.null_aware {
                return Ok(Transformed::no(plan));
            }
            // The context knows nodes by their addresses, which others have in the next plan.
            let statistics = StatisticsContext::new();
            let build = join.left().as_ref();
            let known = statistics.compute(build, &StatisticsArgs::new())?;
            if self.is_small(&known) {
                return Ok(Transformed::no(plan));
            }
            if unfiltered_rows(build, &statistics)?.is_some_and(|rows| rows <= most) {
                return Ok(Transformed::no(plan));
            }
            let join = join
                .builder()
                .with_partition_mode(PartitionMode::Partitioned)
                .build()?;
            Ok(Transformed::yes(Arc::new(join) as _))
        })
        .data()
    }

    /// Whether DataFusion would collect it with its default thresholds.
    fn is_small(&self, statistics: &Statistics) -> bool {
        let (bytes, rows) = self.small;
        match statistics.total_byte_size.get_value() {
            Some(estimate) => *estimate < bytes,
            None => statistics
                .num_rows
                .get_value()
                .is_some_and(|estimate| *estimate < rows),
        }
    }
}

impl Default for GuardedJoinSelection {
    fn default() -> Self {
        Self::new()
    }
}

impl PhysicalOptimizerRule for GuardedJoinSelection {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.guarded(self.inner.optimize(plan, config)?, config)
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = self.inner.optimize_with_context(plan, context)?;
        self.guarded(plan, context.config_options())
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn schema_check(&self) -> bool {
        self.inner.schema_check()
    }
}

/// How many rows a plan has if no filter keeps any back. `None` if that is not known: a source does not tell, a
/// join has no statistics of its keys, or an operator may have more rows than its input.
fn unfiltered_rows(
    plan: &dyn ExecutionPlan,
    statistics: &StatisticsContext,
) -> Result<Option<usize>> {
    let rows_of = |plan: &Arc<dyn ExecutionPlan>| unfiltered_rows(plan.as_ref(), statistics);
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return joined_rows(join, statistics);
    }
    let inputs = plan.children();
    if plan.is::<UnionExec>() {
        let rows = inputs
            .into_iter()
            .map(rows_of)
            .collect::<Result<Vec<_>>>()?;
        let rows = rows.into_iter().collect::<Option<Vec<_>>>();
        return Ok(rows.map(|rows| rows.into_iter().fold(0, usize::saturating_add)));
    }
    match inputs[..] {
        [] => {
            let known = statistics.compute(plan, &StatisticsArgs::new())?;
            Ok(known.num_rows.get_value().copied())
        }
        [left, right] if plan.is::<CrossJoinExec>() => {
            let sides = rows_of(left)?.zip(rows_of(right)?);
            Ok(sides.map(|(left, right)| left.saturating_mul(right)))
        }
        [input] => match plan.cardinality_effect() {
            CardinalityEffect::Equal | CardinalityEffect::LowerEqual => {
                let rows = rows_of(input)?;
                let partitions = plan.output_partitioning().partition_count();
                let fetched = plan.fetch().map(|fetch| fetch.saturating_mul(partitions));
                Ok(match (rows, fetched) {
                    (Some(rows), Some(fetched)) => Some(rows.min(fetched)),
                    (rows, fetched) => rows.or(fetched),
                })
            }
            CardinalityEffect::GreaterEqual | CardinalityEffect::Unknown => Ok(None),
        },
        _ => Ok(None),
    }
}

fn joined_rows(join: &HashJoinExec, statistics: &StatisticsContext) -> Result<Option<usize>> {
    let left = unfiltered_rows(join.left().as_ref(), statistics)?;
    let right = unfiltered_rows(join.right().as_ref(), statistics)?;
    let keys = match join.join_type() {
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => return Ok(left),
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => return Ok(right),
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
            distinct_keys(join, statistics)?
        }
    };
    let (Some(left), Some(right), Some(keys)) = (left, right, keys) else {
        return Ok(None);
    };
    let pairs = left as u128 * right as u128 / keys.max(1) as u128;
    let pairs = usize::try_from(pairs).unwrap_or(usize::MAX);
    Ok(Some(match join.join_type() {
        JoinType::Left => pairs.max(left),
        JoinType::Right => pairs.max(right),
        JoinType::Full => pairs.saturating_add(left).saturating_add(right),
        _ => pairs,
    }))
}

/// The number of different keys, of the side and the column that has most; `None` if there are no statistics of it.
fn distinct_keys(join: &HashJoinExec, statistics: &StatisticsContext) -> Result<Option<usize>> {
    let args = StatisticsArgs::new();
    let left = statistics.compute(join.left().as_ref(), &args)?;
    let right = statistics.compute(join.right().as_ref(), &args)?;
    let keys = join.on().iter().filter_map(|(one, other)| {
        let one = left
            .column_statistics
            .get(one.downcast_ref::<Column>()?.index())?;
        let other = right
            .column_statistics
            .get(other.downcast_ref::<Column>()?.index())?;
        Some(distinct_values(one)?.max(distinct_values(other)?))
    });
    Ok(keys.max())
}

/// The number of different values of a column: counted, or as many as there are between its bounds.
fn distinct_values(column: &ColumnStatistics) -> Option<usize> {
    if let Precision::Exact(count) | Precision::Inexact(count) = column.distinct_count {
        return Some(count);
    }
    let (least, greatest) = (column.min_value.get_value()?, column.max_value.get_value()?);
    let range = Interval::try_new(least.clone(), greatest.clone()).ok()?;
    range.cardinality().map(|count| count as usize)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int64Array, RecordBatch};
    use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
    use datafusion::catalog::streaming::StreamingTable;
    use datafusion::datasource::MemTable;
    use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder, TaskContext};
    use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
    use datafusion::physical_plan::displayable;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use datafusion::physical_plan::streaming::PartitionStream;
    use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};

    use super::*;

    fn schema() -> SchemaRef {
        let fields = ["k", "v"].map(|name| Field::new(name, DataType::Int64, true));
        Arc::new(Schema::new(fields.to_vec()))
    }

    /// A source that does not tell how many rows it has.
    #[derive(Debug)]
    struct Silent(SchemaRef);

    impl PartitionStream for Silent {
        fn schema(&self) -> &SchemaRef {
            &self.0
        }

        fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
            let rows = futures::stream::empty();
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.0), rows))
        }
    }

    /// `silent` does not tell how many rows it has, `a` with 100, `b` with 500 and `c` with 5,000 tell no more. `fa`,
    /// `fb` and `fc` are files with as many, and have bounds of their columns.
    async fn context(directory: &std::path::Path) -> SessionContext {
        let mut config = SessionConfig::new().with_target_partitions(2);
        let options = &mut config.options_mut().optimizer;
        options.hash_join_single_partition_threshold = 1 << 30;
        options.hash_join_single_partition_threshold_rows = 1_000;
        let mut rules = PhysicalOptimizer::new().rules;
        for rule in &mut rules {
            if rule.name() == JoinSelection::new().name() {
                *rule = Arc::new(GuardedJoinSelection {
                    small: (0, 0),
                    ..GuardedJoinSelection::new()
                });
            }
        }
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_default_features()
            .with_physical_optimizer_rules(rules)
            .build();
        let context = SessionContext::new_with_state(state);
        let silent = StreamingTable::try_new(schema(), vec![Arc::new(Silent(schema()))]).unwrap();
        context.register_table("silent", Arc::new(silent)).unwrap();
        for (name, rows) in [("a", 100), ("b", 500), ("c", 5_000)] {
            let column = || Arc::new(Int64Array::from_iter_values(0..rows));
            let batch = RecordBatch::try_new(schema(), vec![column(), column()]).unwrap();
            let table = MemTable::try_new(schema(), vec![vec![batch]]).unwrap();
            context.register_table(name, Arc::new(table)).unwrap();
            let file = directory.join(format!("{name}.parquet"));
            let file = file.to_str().unwrap();
            let write = format!("COPY {name} TO '{file}' STORED AS PARQUET");
            context.sql(&write).await.unwrap().collect().await.unwrap();
            let options = ParquetReadOptions::default();
            let name = format!("f{name}");
            context
                .register_parquet(&name, file, options)
                .await
                .unwrap();
        }
        context
    }

    /// How many joins of a query's plan collect their build side, and how many do not.
    async fn modes(context: &SessionContext, sql: &str) -> (usize, usize) {
        let plan = context.sql(sql).await.unwrap();
        let plan = plan.create_physical_plan().await.unwrap();
        let text = displayable(plan.as_ref()).indent(false).to_string();
        let count = |mode: &str| text.matches(&format!("mode={mode}")).count();
        (count("CollectLeft"), count("Partitioned, join_type"))
    }

    #[tokio::test]
    async fn only_build_sides_of_known_size_are_collected() {
        let directory = tempfile::tempdir().unwrap();
        let context = context(directory.path()).await;
        for (sql, expected) in [
            // Rows that are counted.
            ("SELECT * FROM a JOIN c ON a.k = c.k", (1, 0)),
            ("SELECT * FROM c JOIN a ON a.k = c.k", (1, 0)),
            ("SELECT * FROM a JOIN silent s ON a.k = s.k", (1, 0)),
            // Nothing is known of either side, or only that one is large.
            ("SELECT * FROM silent s JOIN silent t ON s.k = t.k", (0, 1)),
            ("SELECT * FROM silent s JOIN c ON s.k = c.k", (0, 1)),
            (
                "SELECT * FROM (SELECT k, count(*) FROM silent GROUP BY k) s JOIN c ON s.k = c.k",
                (0, 1),
            ),
            // Without statistics of the keys, nobody knows how many rows the first join has.
            (
                "SELECT * FROM a JOIN b ON a.v = b.v JOIN c ON b.k = c.k",
                (1, 1),
            ),
            (
                "SELECT * FROM fa a JOIN fb b ON a.v = b.v JOIN fc c ON b.k = c.k",
                (2, 0),
            ),
            // A join that only keeps rows of one side has no more than that.
            (
                "SELECT * FROM c JOIN (SELECT * FROM b WHERE k IN (SELECT v FROM silent)) s \
                 ON c.k = s.k",
                (2, 0),
            ),
        ] {
            assert_eq!(modes(&context, sql).await, expected, "{sql}");
        }
    }

    #[tokio::test]
    async fn what_a_filter_is_said_to_leave_is_not_relied_on() {
        let directory = tempfile::tempdir().unwrap();
        let context = context(directory.path()).await;
        let sql = "SELECT * FROM (SELECT * FROM c WHERE v % 7 = 1) s JOIN c ON s.k = c.k \
                   JOIN c d ON s.k = d.k";
        let (collected, _) = modes(&context, sql).await;
        assert_eq!(collected, 0);
        // Unless it cannot be much more.
        let more = "SET datafusion.optimizer.hash_join_single_partition_threshold_rows = 1300";
        context.sql(more).await.unwrap();
        let (collected, _) = modes(&context, sql).await;
        assert!(collected > 0);
    }

    #[test]
    fn key_arrays_are_bounded() {
        let threshold = |partitions: usize, limit: Option<usize>| {
            let mut options = ConfigOptions::default();
            options.execution.target_partitions = partitions;
            collect_larger_build_sides(&mut options, partitions);
            if let Some(limit) = limit {
                bound_key_arrays(&mut options, limit);
            }
            (
                options.execution.perfect_hash_join_small_build_threshold,
                options.execution.perfect_hash_join_min_key_density,
            )
        };
        assert_eq!(threshold(2, None), (8_000_000, 0.05));
        assert_eq!(threshold(64, None), (250_000, 0.05));
        assert_eq!(threshold(100_000, None), (1_024, 0.05));
        // 100 MB: 200 kB in each of two partitions.
        assert_eq!(threshold(2, Some(102_400_000)), (50_000, 0.15));
        assert_eq!(threshold(2, Some(1_000)), (1_024, 0.15));
    }
}
