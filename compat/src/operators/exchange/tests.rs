//! Exchanges that spill every batch.

use std::collections::BTreeSet;
use std::time::Duration;

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, StringViewArray};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::catalog::memory::{DataSourceExec, MemorySourceConfig};
use datafusion::execution::disk_manager::DiskManager;
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::Partitioning;
use datafusion::physical_plan::expressions::Column;
use tokio::time::timeout;

use super::*;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};

const INPUTS: i64 = 4;
const OUTPUTS: usize = 3;
const BATCHES: i64 = 30;
const ROWS: i64 = 64;

/// Nothing here takes a hundredth of it.
const BOUND: Duration = Duration::from_secs(60);

fn column(index: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(["n", "text"][index], index))
}

/// Numbers, each once, and texts, in four partitions; each partition is in the order of its numbers.
fn numbers() -> Arc<dyn ExecutionPlan> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("text", DataType::Utf8View, false),
    ]));
    let batch = |input: i64, batch: i64| {
        let rows = (0..ROWS).map(|row| (batch * ROWS + row) * INPUTS + input);
        let texts = rows
            .clone()
            .map(|n| format!("a text that is no view by itself: {n}"));
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(rows));
        RecordBatch::try_new(Arc::clone(&schema), vec![numbers, texts]).unwrap()
    };
    let partitions: Vec<Vec<_>> = (0..INPUTS)
        .map(|input| (0..BATCHES).map(|n| batch(input, n)).collect())
        .collect();
    let order = LexOrdering::new([PhysicalSortExpr::new_default(column(0))]);
    let source = MemorySourceConfig::try_new(&partitions, Arc::clone(&schema), None).unwrap();
    let source = source.try_with_sort_information(order.into_iter().collect());
    DataSourceExec::from_data_source(source.unwrap())
}

fn by_hash() -> RepartitionExec {
    let partitioning = Partitioning::Hash(vec![column(0)], OUTPUTS);
    RepartitionExec::try_new(numbers(), partitioning).unwrap()
}

fn own(exchange: RepartitionExec) -> Arc<dyn ExecutionPlan> {
    with_own_exchange(Arc::new(exchange))
}

/// Memory that operators which can spill get `limit` bytes of, and others as much as they want.
#[derive(Debug)]
struct ForSpilling {
    limit: usize,
    used: AtomicUsize,
}

impl ForSpilling {
    fn new(limit: usize) -> Arc<Self> {
        let used = AtomicUsize::new(0);
        Arc::new(Self { limit, used })
    }
}

impl fmt::Display for ForSpilling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "for spilling: {}", self.limit)
    }
}

impl MemoryPool for ForSpilling {
    fn name(&self) -> &str {
        "for spilling"
    }

    fn grow(&self, _: &MemoryReservation, additional: usize) {
        self.used.fetch_add(additional, Ordering::SeqCst);
    }

    fn shrink(&self, _: &MemoryReservation, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::SeqCst);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        if reservation.consumer().can_spill() && self.reserved() + additional > self.limit {
            return Err(DataFusionError::ResourcesExhausted("spill".to_owned()));
        }
        self.grow(reservation, additional);
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.used.load(Ordering::SeqCst)
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit)
    }
}

/// Memory for so many bytes of batches.
fn environment(bytes: usize) -> (Arc<RuntimeEnv>, Arc<dyn MemoryPool>) {
    let pool: Arc<dyn MemoryPool> = ForSpilling::new(bytes);
    let builder = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool));
    (builder.build_arc().unwrap(), pool)
}

fn context(environment: &Arc<RuntimeEnv>) -> Arc<TaskContext> {
    Arc::new(TaskContext::default().with_runtime(Arc::clone(environment)))
}

/// The numbers of all outputs, which are read at the same time.
async fn read(plan: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>) -> Result<Vec<Vec<i64>>> {
    let outputs = plan.output_partitioning().partition_count();
    let outputs: Vec<_> = (0..outputs)
        .map(|output| {
            let mut rows = plan.execute(output, Arc::clone(context)).unwrap();
            tokio::spawn(async move {
                let mut read = Vec::new();
                while let Some(batch) = rows.next().await.transpose()? {
                    let texts = batch.column(1).as_string_view();
                    for (n, text) in batch
                        .column(0)
                        .as_primitive::<Int64Type>()
                        .values()
                        .iter()
                        .zip(texts)
                    {
                        assert!(text.unwrap().ends_with(&format!(": {n}")));
                        read.push(*n);
                    }
                }
                Ok(read)
            })
        })
        .collect();
    let mut read = Vec::new();
    for output in outputs {
        let numbers: Result<Vec<i64>> = timeout(BOUND, output).await.expect("it ends").unwrap();
        read.push(numbers?);
    }
    Ok(read)
}

/// Each number is in one output, once.
fn assert_complete(read: &[Vec<i64>]) {
    let all: BTreeSet<i64> = read.iter().flatten().copied().collect();
    assert_eq!(all.len(), read.iter().map(Vec::len).sum::<usize>());
    assert_eq!(all, (0..INPUTS * BATCHES * ROWS).collect());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_exchange_whose_inputs_spill_at_the_same_time_ends_with_all_rows() {
    for bytes in [0, 20_000, 100_000] {
        for _ in 0..20 {
            let (environment, pool) = environment(bytes);
            let plan = own(by_hash());
            let read = read(&plan, &context(&environment)).await.unwrap();
            assert_complete(&read);
            let metrics = plan.metrics().unwrap();
            let all = (INPUTS * BATCHES * ROWS) as usize;
            assert_eq!(metrics.output_rows(), Some(all));
            if bytes == 0 {
                assert_eq!(metrics.spilled_rows(), Some(all));
                assert!(metrics.spilled_bytes() > Some(0));
            }
            drop(plan);
            assert_eq!(pool.reserved(), 0);
            assert_eq!(environment.disk_manager.used_disk_space(), 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rows_that_are_dealt_out_are_complete() {
    let (environment, _) = environment(0);
    let dealt = Partitioning::RoundRobinBatch(OUTPUTS);
    let plan = own(RepartitionExec::try_new(numbers(), dealt).unwrap());
    let read = read(&plan, &context(&environment)).await.unwrap();
    assert_complete(&read);
    assert!(read.iter().all(|output| !output.is_empty()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_order_is_preserved_across_memory_and_disk() {
    for bytes in [0, 20_000, 60_000, 10_000_000] {
        let (environment, _) = environment(bytes);
        let plan = own(by_hash().with_preserve_order());
        assert!(plan.output_ordering().is_some());
        let read = read(&plan, &context(&environment)).await.unwrap();
        assert_complete(&read);
        assert!(read.iter().all(|output| output.is_sorted()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_output_that_is_read_late_does_not_hold_up_the_others() {
    let (environment, _) = environment(0);
    let plan = own(by_hash());
    let context = context(&environment);
    let mut read = Vec::new();
    // Each is read to its end before the next is asked for a row.
    let outputs: Vec<_> = (0..OUTPUTS)
        .map(|output| plan.execute(output, Arc::clone(&context)).unwrap())
        .collect();
    for mut output in outputs {
        let mut rows = 0;
        while let Some(batch) = timeout(BOUND, output.next()).await.expect("it ends") {
            rows += batch.unwrap().num_rows() as i64;
        }
        read.push(rows);
    }
    assert_eq!(read.iter().sum::<i64>(), INPUTS * BATCHES * ROWS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_output_that_is_not_read_any_more_does_not_hold_up_the_others() {
    let (environment, pool) = environment(40_000);
    let plan = own(by_hash());
    let context = context(&environment);
    let mut outputs: Vec<_> = (0..OUTPUTS)
        .map(|output| plan.execute(output, Arc::clone(&context)).unwrap())
        .collect();
    let first = outputs.remove(0).next().await;
    assert!(first.unwrap().unwrap().num_rows() > 0);
    for mut output in outputs {
        while let Some(batch) = timeout(BOUND, output.next()).await.expect("it ends") {
            batch.unwrap();
        }
    }
    drop(plan);
    assert_eq!(pool.reserved(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_exchange_that_cannot_spill_says_so() {
    let disk = DiskManager::builder().with_max_temp_directory_size(1);
    let environment = RuntimeEnvBuilder::new()
        .with_memory_pool(ForSpilling::new(0))
        .with_disk_manager_builder(disk)
        .build_arc()
        .unwrap();
    for exchange in [by_hash(), by_hash().with_preserve_order()] {
        let plan = own(exchange);
        let error = read(&plan, &context(&environment)).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("max_temp_directory_size"), "{text}");
    }
}

#[test]
fn an_exchange_passes_for_the_operator_whose_rows_it_moves() {
    let plan = own(by_hash());
    assert!(plan.is::<RepartitionExec>());
    assert!((plan.as_ref() as &dyn Any).is::<ExchangeExec>());
    let child = Arc::clone(plan.children()[0]);
    let recompute = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    let again = Arc::clone(&plan)
        .replace_children(vec![child], recompute)
        .unwrap();
    assert!((again.as_ref() as &dyn Any).is::<ExchangeExec>());
    assert_eq!(plan.name(), "RepartitionExec");
    let other = with_own_exchange(numbers());
    assert!(other.is::<DataSourceExec>());
}
