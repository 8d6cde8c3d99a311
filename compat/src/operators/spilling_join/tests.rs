//! Joins with little memory return what they return without a limit.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, StringViewArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{JoinSide, JoinType, NullEquality, Result};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};
use datafusion::physical_expr::{LexOrdering, Partitioning, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExecBuilder, PartitionMode,
};
use datafusion::physical_plan::repartition::RepartitionExec;
use futures::{StreamExt, TryStreamExt};

use super::SpillingJoinExec;

const KINDS: [JoinType; 10] = [
    JoinType::Inner,
    JoinType::Left,
    JoinType::Right,
    JoinType::Full,
    JoinType::LeftSemi,
    JoinType::RightSemi,
    JoinType::LeftAnti,
    JoinType::RightAnti,
    JoinType::LeftMark,
    JoinType::RightMark,
];

fn schema(side: &str) -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new(format!("{side}_key"), DataType::Int64, true),
        Field::new(format!("{side}_number"), DataType::Int64, false),
        Field::new(format!("{side}_text"), DataType::Utf8View, true),
        Field::new(
            format!("{side}_kind"),
            DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into()),
            true,
        ),
    ]))
}

/// A side with these keys, in batches of 50 rows.
fn side(name: &str, keys: &[Option<i64>]) -> Vec<RecordBatch> {
    let batches = keys.chunks(50).enumerate().map(|(n, keys)| {
        let numbers = (n * 50..).take(keys.len());
        let numbers: Vec<i64> = numbers.map(|number| number as i64).collect();
        let texts = numbers
            .iter()
            .map(|n| (n % 7 != 0).then(|| format!("{name} number {n}, which is not short")));
        let kinds: StringArray = numbers
            .iter()
            .map(|n| Some(format!("kind {}", n % 3)))
            .collect();
        let schema = schema(name);
        let kind = datafusion::arrow::compute::cast(&kinds, schema.field(3).data_type());
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(keys.to_vec())),
            Arc::new(Int64Array::from(numbers.clone())),
            Arc::new(texts.collect::<StringViewArray>()),
            kind.unwrap(),
        ];
        RecordBatch::try_new(schema, columns).unwrap()
    });
    batches.collect()
}

/// Keys of 400 rows or so, with NULLs if `nulls`.
fn keys(of: &str, seed: i64, nulls: bool) -> Vec<Option<i64>> {
    let key = |n: i64| match of {
        "many" => (n * 37 + seed) % 311,
        "skewed" if n % 3 != 0 => 5,
        "skewed" => (n + seed) % 90,
        "one" => 5,
        "few" => n,
        // Nobody else's.
        "apart" => 1_000 + n,
        _ => unreachable!(),
    };
    let rows = match of {
        "none" => 0,
        "one" => 130,
        "few" => 60 + seed,
        _ => 400 + seed,
    };
    let keys = (0..rows).map(|n| (!nulls || n % 11 != seed % 11).then(|| key(n)));
    keys.collect()
}

fn column(schema: &SchemaRef, index: usize) -> Arc<Column> {
    Arc::new(Column::new(schema.field(index).name(), index))
}

/// The build row's number is less than the probe row's.
fn filter() -> JoinFilter {
    let (left, right) = (schema("build"), schema("probe"));
    let fields = vec![left.field(1).clone(), right.field(1).clone()];
    let schema = Arc::new(Schema::new(fields));
    let less = BinaryExpr::new(column(&schema, 0), Operator::Lt, column(&schema, 1));
    let of = |side| ColumnIndex { index: 1, side };
    let indices = vec![of(JoinSide::Left), of(JoinSide::Right)];
    JoinFilter::new(Arc::new(less), indices, schema)
}

#[derive(Debug, Clone)]
struct Case {
    kind: JoinType,
    mode: PartitionMode,
    build: &'static str,
    probe: &'static str,
    nulls: bool,
    nulls_are_equal: bool,
    filtered: bool,
    projected: bool,
    null_aware: bool,
    fetch: Option<usize>,
    /// Whether the probe side is in order.
    ordered: bool,
    /// Whether any rows are partners, but for the filter.
    keyless: bool,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            kind: JoinType::Inner,
            mode: PartitionMode::Partitioned,
            build: "many",
            probe: "skewed",
            nulls: true,
            nulls_are_equal: false,
            filtered: false,
            projected: false,
            null_aware: false,
            fetch: None,
            ordered: false,
            keyless: false,
        }
    }
}

const PARTITIONS: usize = 3;

impl Case {
    fn plan(&self) -> Arc<dyn ExecutionPlan> {
        let join = self.hash_join();
        if !self.keyless {
            return Arc::new(join);
        }
        let (left, right) = (Arc::clone(join.left()), Arc::clone(join.right()));
        if self.kind == JoinType::Inner && !self.filtered && !self.projected {
            return Arc::new(CrossJoinExec::new(left, right));
        }
        let join = NestedLoopJoinExecBuilder::new(left, right, self.kind)
            .with_filter(self.filtered.then(filter))
            .with_projection_ref(join.projection.clone());
        Arc::new(join.build().unwrap())
    }

    fn hash_join(&self) -> HashJoinExec {
        let (left, right) = (schema("build"), schema("probe"));
        let build = side("build", &keys(self.build, 0, self.nulls));
        let probe = side(
            "probe",
            &keys(self.probe, 7, self.nulls && !self.null_aware),
        );
        let mut left_plan: Arc<dyn ExecutionPlan> =
            MemorySourceConfig::try_new_exec(&[build], Arc::clone(&left), None).unwrap();
        let partitions: Vec<Vec<RecordBatch>> = match self.mode {
            PartitionMode::CollectLeft => (0..PARTITIONS)
                .map(|n| probe.iter().skip(n).step_by(PARTITIONS).cloned().collect())
                .collect(),
            _ => vec![probe],
        };
        let mut source =
            MemorySourceConfig::try_new(&partitions, Arc::clone(&right), None).unwrap();
        if self.ordered {
            let by_number = PhysicalSortExpr::new_default(column(&right, 1) as _);
            let order = LexOrdering::new([by_number]).unwrap();
            source = source.try_with_sort_information(vec![order]).unwrap();
        }
        let mut right_plan: Arc<dyn ExecutionPlan> = DataSourceExec::from_data_source(source);
        if self.mode == PartitionMode::Partitioned && !self.ordered {
            for (plan, schema) in [(&mut left_plan, &left), (&mut right_plan, &right)] {
                let hashed = Partitioning::Hash(vec![column(schema, 0) as _], PARTITIONS);
                *plan = Arc::new(RepartitionExec::try_new(Arc::clone(plan), hashed).unwrap());
            }
        }
        let join = HashJoinExec::try_new(
            left_plan,
            right_plan,
            vec![(column(&left, 0) as _, column(&right, 0) as _)],
            self.filtered.then(filter),
            &self.kind,
            None,
            self.mode,
            match self.nulls_are_equal {
                true => NullEquality::NullEqualsNull,
                false => NullEquality::NullEqualsNothing,
            },
            self.null_aware,
        )
        .unwrap();
        let fields = join.schema().fields().len();
        let shown = self.projected.then(|| vec![fields - 1, 0]);
        let join = join.with_projection(shown).unwrap();
        join.builder().with_fetch(self.fetch).build().unwrap()
    }

    /// The rows of each partition with so much memory, and what was spilled.
    async fn run(&self, memory: Option<usize>) -> Result<(Vec<Vec<String>>, usize)> {
        let mut runtime = RuntimeEnvBuilder::new();
        if let Some(memory) = memory {
            runtime = runtime.with_memory_pool(Arc::new(GreedyMemoryPool::new(memory)));
        }
        let runtime = runtime.build_arc()?;
        let context = Arc::new(TaskContext::default().with_runtime(Arc::clone(&runtime)));
        let join = SpillingJoinExec::new(self.plan(), Arc::new(|rows, _| rows))?;
        let schema = join.schema();
        let partitions = join.properties().partitioning.partition_count();
        let streams: Vec<_> = (0..partitions)
            .map(|partition| join.execute(partition, Arc::clone(&context)))
            .collect::<Result<_>>()?;
        let rows = streams.into_iter().map(|stream| async {
            let batches: Vec<RecordBatch> = stream.try_collect().await?;
            for batch in &batches {
                assert_eq!(batch.schema(), schema);
            }
            Ok::<_, datafusion::common::DataFusionError>(batches.iter().flat_map(lines).collect())
        });
        let rows = futures::future::try_join_all(rows).await?;
        let spilled = join.metrics().and_then(|metrics| metrics.spilled_bytes());
        drop(join);
        assert_eq!(runtime.memory_pool.reserved(), 0);
        if self.fetch.is_none() {
            assert_eq!(runtime.disk_manager.used_disk_space(), 0);
        }
        Ok((rows, spilled.unwrap_or(0)))
    }

    async fn check(&self) {
        let (expected, spilled) = self.run(None).await.unwrap();
        assert_eq!(spilled, 0);
        let all = |rows: &Vec<Vec<String>>| {
            let mut rows: Vec<String> = rows.iter().flatten().cloned().collect();
            rows.sort();
            rows
        };
        for memory in [1, 3_000, 10_000_000] {
            let (rows, spilled) = self.run(Some(memory)).await.unwrap();
            match memory {
                _ if self.build == "none" => assert_eq!(spilled, 0, "{self:?} in {memory}"),
                ..4_000 => assert!(spilled > 0, "{self:?} in {memory}"),
                1_000_000.. => assert_eq!(spilled, 0, "{self:?} in {memory}"),
                _ => {}
            }
            if self.fetch.is_some() {
                let count = |rows: &Vec<Vec<String>>| rows.iter().map(Vec::len).collect::<Vec<_>>();
                assert_eq!(count(&rows), count(&expected), "{self:?} in {memory}");
            } else if self.ordered {
                let numbers = |rows: &Vec<Vec<String>>| -> Vec<Vec<i64>> {
                    let number = |row: &String| row.split('|').rev().nth(2)?.parse().ok();
                    let numbers = rows
                        .iter()
                        .map(|rows| rows.iter().filter_map(number).collect());
                    numbers.collect()
                };
                assert_eq!(numbers(&rows), numbers(&expected), "{self:?} in {memory}");
                assert_eq!(all(&rows), all(&expected), "{self:?} in {memory}");
            } else {
                assert_eq!(all(&rows), all(&expected), "{self:?} in {memory}");
            }
        }
    }
}

fn lines(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let columns: Vec<_> = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap())
        .collect();
    let line = |row| {
        let values: Vec<String> = columns.iter().map(|c| c.value(row).to_string()).collect();
        values.join("|")
    };
    (0..batch.num_rows()).map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_join_returns_the_same_from_disk() {
    for kind in KINDS {
        for mode in [PartitionMode::Partitioned, PartitionMode::CollectLeft] {
            for (build, probe, filtered, nulls_are_equal) in [
                ("many", "skewed", false, false),
                ("skewed", "many", true, false),
                ("skewed", "skewed", false, true),
                ("one", "one", true, true),
            ] {
                let case = Case {
                    kind,
                    mode,
                    build,
                    probe,
                    filtered,
                    nulls_are_equal,
                    ..Case::default()
                };
                case.check().await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_side_may_be_empty() {
    for kind in KINDS {
        for mode in [PartitionMode::Partitioned, PartitionMode::CollectLeft] {
            for (build, probe) in [("none", "skewed"), ("skewed", "none"), ("none", "none")] {
                let case = Case {
                    kind,
                    mode,
                    build,
                    probe,
                    ..Case::default()
                };
                case.check().await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn joins_without_keys_return_the_same_from_disk() {
    for kind in KINDS {
        for (filtered, projected) in [(true, false), (true, true), (false, false)] {
            for build in ["few", "none"] {
                let case = Case {
                    kind,
                    mode: PartitionMode::CollectLeft,
                    build,
                    probe: "few",
                    filtered,
                    projected,
                    keyless: true,
                    ..Case::default()
                };
                case.check().await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_projection_is_kept() {
    for kind in KINDS {
        for build in ["many", "one"] {
            let case = Case {
                kind,
                build,
                projected: true,
                filtered: true,
                ..Case::default()
            };
            case.check().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_order_of_the_probe_side_is_kept() {
    let kinds = [
        JoinType::Inner,
        JoinType::Right,
        JoinType::RightSemi,
        JoinType::RightAnti,
    ];
    for kind in kinds {
        for mode in [PartitionMode::Partitioned, PartitionMode::CollectLeft] {
            // Keys that meet none on the other side leave inner joins without a row to put in order.
            for build in ["many", "skewed", "one", "apart"] {
                let case = Case {
                    kind,
                    mode,
                    build,
                    ordered: true,
                    nulls: build != "apart",
                    ..Case::default()
                };
                case.check().await;
            }
        }
    }
    // A mark is behind the numbers that keep the order.
    let case = Case {
        kind: JoinType::RightMark,
        ordered: true,
        projected: true,
        ..Case::default()
    };
    case.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_outside_a_list_with_null() {
    for probe in ["many", "skewed", "none"] {
        for nulls in [false, true] {
            let case = Case {
                kind: JoinType::LeftAnti,
                mode: PartitionMode::CollectLeft,
                probe,
                nulls,
                null_aware: true,
                ..Case::default()
            };
            case.check().await;
        }
    }
    let mut keys = keys("skewed", 7, false);
    keys[77] = None;
    let case = Case {
        kind: JoinType::LeftAnti,
        mode: PartitionMode::CollectLeft,
        null_aware: true,
        ..Case::default()
    };
    let with_null = side("probe", &keys);
    let plan = case.hash_join();
    let right: Arc<dyn ExecutionPlan> =
        MemorySourceConfig::try_new_exec(&[with_null], schema("probe"), None).unwrap();
    let plan = plan
        .builder()
        .with_new_children(vec![Arc::clone(plan.left()), right]);
    let join = SpillingJoinExec::new(
        plan.unwrap().build_exec().unwrap(),
        Arc::new(|rows, _| rows),
    )
    .unwrap();
    let pool = Arc::new(GreedyMemoryPool::new(6_000));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc();
    let context = TaskContext::default().with_runtime(runtime.unwrap());
    let rows = join.execute(0, Arc::new(context)).unwrap();
    let rows: usize = rows
        .map(|batch| batch.unwrap().num_rows())
        .fold(0, |a, b| async move { a + b })
        .await;
    assert_eq!(rows, 0);
    assert!(join.metrics().unwrap().spilled_bytes().unwrap() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_rows_are_returned_than_asked_for() {
    for fetch in [1, 40, 100_000] {
        let case = Case {
            fetch: Some(fetch),
            nulls: false,
            build: "skewed",
            ..Case::default()
        };
        case.check().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_directory_for_temporary_files_is_an_error() {
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(GreedyMemoryPool::new(6_000)))
        .with_max_temp_directory_size(1_000)
        .build_arc();
    let context = Arc::new(TaskContext::default().with_runtime(runtime.unwrap()));
    let case = Case {
        mode: PartitionMode::CollectLeft,
        ..Case::default()
    };
    let join = SpillingJoinExec::new(case.plan(), Arc::new(|rows, _| rows)).unwrap();
    let rows: Result<Vec<RecordBatch>> = join.execute(0, context).unwrap().try_collect().await;
    let error = rows.unwrap_err().to_string();
    assert!(error.contains("max_temp_directory_size"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_that_is_dropped_leaves_nothing_behind() {
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(GreedyMemoryPool::new(6_000)))
        .build_arc()
        .unwrap();
    let context = Arc::new(TaskContext::default().with_runtime(Arc::clone(&runtime)));
    let case = Case {
        mode: PartitionMode::CollectLeft,
        build: "one",
        probe: "one",
        ..Case::default()
    };
    let join = SpillingJoinExec::new(case.plan(), Arc::new(|rows, _| rows)).unwrap();
    let streams: Vec<_> = (0..PARTITIONS)
        .map(|partition| join.execute(partition, Arc::clone(&context)).unwrap())
        .collect();
    for mut stream in streams {
        assert!(stream.next().await.unwrap().unwrap().num_rows() > 0);
    }
    // Reading ahead may be under way.
    for _ in 0..1000 {
        if runtime.disk_manager.used_disk_space() == 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(runtime.memory_pool.reserved(), 0);
    assert_eq!(runtime.disk_manager.used_disk_space(), 0);
}

#[test]
fn arrays_of_keys_are_small_where_memory_has_a_limit() {
    use super::stage::unaccounted;
    use crate::rules::collect_larger_build_sides;
    use datafusion::prelude::SessionConfig;
    let mut config = SessionConfig::new().with_target_partitions(2);
    collect_larger_build_sides(config.options_mut(), 2);
    let pool = Arc::new(GreedyMemoryPool::new(100 << 20));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool);
    let limited = TaskContext::default()
        .with_session_config(config.clone())
        .with_runtime(Arc::new(runtime.build().unwrap()));
    let unlimited = TaskContext::default().with_session_config(config);
    let bytes = |context: &TaskContext| {
        let context = unaccounted(context);
        let execution = context.session_config().options().execution.clone();
        execution.perfect_hash_join_small_build_threshold * size_of::<u32>()
    };
    assert!(bytes(&limited) < 1 << 20);
    assert_eq!(bytes(&unlimited), 32_000_000);
}
