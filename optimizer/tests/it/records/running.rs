//! Running queries with and without the profiler, and reading what it logged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray, UInt64Array,
};
use datafusion::arrow::compute::{cast, take_record_batch};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::catalog::MemTable;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::{collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use skewer_exec::{IdentifiedTable, ROW_ID};
use skewer_optimizer::plan_query;
use skewer_profiling::{
    Level, LineageMode, QueryRow, Recorder, RecorderLimits, Retention, SysTables,
};

/// Tables `a(k, v, s)` and `b(k, w)`, whose row ids are 100, 101, … and 500, 501, …
pub fn tables(rows: i64) -> BTreeMap<&'static str, RecordBatch> {
    let a: Vec<i64> = (0..rows).collect();
    let keys = |n: i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter(
            a.iter().map(|i| (i % 11 != 10).then_some((i * 7) % n)),
        ))
    };
    let values: ArrayRef = Arc::new(Float64Array::from_iter_values(
        a.iter().map(|i| ((i * 37) % 101) as f64),
    ));
    let strings: ArrayRef = Arc::new(StringArray::from_iter_values(
        a.iter().map(|i| format!("x{},y{},z", i % 5, i % 3)),
    ));
    let b: Vec<i64> = (0..rows / 2).collect();
    let b_keys: ArrayRef = Arc::new(Int64Array::from_iter_values(b.iter().map(|i| i % 9)));
    let weights: ArrayRef = Arc::new(Int64Array::from_iter_values(b.iter().map(|i| i * i % 17)));
    BTreeMap::from([
        (
            "a",
            RecordBatch::try_from_iter_with_nullable([
                ("k", keys(7), true),
                ("v", values, true),
                ("s", strings, true),
            ])
            .unwrap(),
        ),
        (
            "b",
            RecordBatch::try_from_iter_with_nullable([("k", b_keys, true), ("w", weights, true)])
                .unwrap(),
        ),
    ])
}

pub fn first_id(table: &str) -> i64 {
    if table == "a" { 100 } else { 500 }
}

/// Splits a batch into partitions of small batches, so that plans have exchanges.
pub fn partitions(batch: &RecordBatch) -> Vec<Vec<RecordBatch>> {
    let mut partitions = vec![vec![], vec![], vec![]];
    let step = 5;
    for (number, start) in (0..batch.num_rows()).step_by(step).enumerate() {
        let rows = step.min(batch.num_rows() - start);
        partitions[number % 3].push(batch.slice(start, rows));
    }
    partitions
}

pub fn with_ids(batch: &RecordBatch, first: i64) -> RecordBatch {
    let mut fields: Vec<_> = batch.schema().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(ROW_ID, DataType::Int64, false)));
    let mut columns = batch.columns().to_vec();
    let ids = first..first + batch.num_rows() as i64;
    columns.push(Arc::new(Int64Array::from_iter_values(ids)));
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

pub fn mem_table(batch: &RecordBatch) -> Arc<MemTable> {
    Arc::new(MemTable::try_new(batch.schema(), partitions(batch)).unwrap())
}

#[derive(Clone, Copy, Default)]
pub struct Options {
    pub skip_partial: bool,
    /// 16 otherwise.
    pub batch_rows: Option<usize>,
    pub memory: Option<usize>,
    /// Joins sort both sides and merge them.
    pub sort_merge: bool,
    pub sample_rate: Option<f64>,
    pub piggyback: bool,
    /// Tables say that their ids fit into 32 bits.
    pub narrow: bool,
}

impl Options {
    /// Both ways of keeping what is learned of records, with partial aggregation and without, and narrow ids.
    pub fn all() -> Vec<Options> {
        let mut all = Vec::new();
        for skip_partial in [false, true] {
            for piggyback in [false, true] {
                all.push(Options {
                    skip_partial,
                    piggyback,
                    narrow: skip_partial,
                    ..Options::default()
                });
            }
        }
        all
    }
}

pub fn context(tables: &BTreeMap<&'static str, RecordBatch>, options: Options) -> SessionContext {
    let mut config = SessionConfig::new()
        .with_target_partitions(3)
        .with_batch_size(options.batch_rows.unwrap_or(16));
    let execution = &mut config.options_mut().execution;
    if options.skip_partial {
        execution.skip_partial_aggregation_probe_rows_threshold = 0;
        execution.skip_partial_aggregation_probe_ratio_threshold = 0.0;
    }
    if options.memory.is_some() {
        execution.sort_spill_reservation_bytes = 1024;
    }
    config.options_mut().optimizer.prefer_hash_join = !options.sort_merge;
    let mut runtime = RuntimeEnvBuilder::new();
    if let Some(bytes) = options.memory {
        runtime = runtime.with_memory_pool(Arc::new(FairSpillPool::new(bytes)));
    }
    let context = SessionContext::new_with_config_rt(config, runtime.build_arc().unwrap());
    for (name, batch) in tables {
        let table = IdentifiedTable::new(
            mem_table(batch),
            mem_table(&with_ids(batch, first_id(name))),
            *name,
        );
        let table = table.with_int32_ids(options.narrow);
        context.register_table(*name, Arc::new(table)).unwrap();
    }
    context
}

pub fn rows(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let cells: Vec<String> = columns.iter().map(|c| c.value(row).to_string()).collect();
            rows.push(cells.join("|"));
        }
    }
    rows
}

/// What a profiled run gave.
pub struct Profiled {
    pub rows: Vec<String>,
    /// For each result row, the base rows in its lineage.
    pub lineage: Vec<BTreeSet<(String, i64)>>,
    /// Where no lineage is kept: the base rows that result rows come from, and of how many.
    pub sources: BTreeMap<(String, i64), i64>,
    pub plan: String,
    /// The operators that have spilled.
    pub spilled: BTreeSet<String>,
}

pub async fn run_profiled(context: &SessionContext, sql: &str, options: Options) -> Profiled {
    let profiled = try_profiled(context, sql, options).await;
    profiled.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// An error if the query fails: memory may not suffice.
pub async fn try_profiled(
    context: &SessionContext,
    sql: &str,
    options: Options,
) -> Result<Profiled, String> {
    let state = context.state();
    let logical = state.create_logical_plan(sql).await.unwrap();
    let optimized = state.optimize(&logical).unwrap();
    let rate = options.sample_rate.unwrap_or(1.0);
    let recorder = Recorder::new(1, Level::Records, rate, RecorderLimits::default());
    if options.piggyback {
        recorder.set_lineage_mode(LineageMode::Piggyback);
    }
    let plan = plan_query(&optimized, &state, &recorder)
        .await
        .unwrap_or_else(|e| panic!("{sql}: {e}"));
    let text = displayable(plan.as_ref()).indent(false).to_string();
    assert_eq!(
        plan.schema().as_ref(),
        optimized.schema().as_arrow(),
        "{sql}"
    );
    let batches = collect(plan, state.task_ctx()).await;
    let batches = batches.map_err(|error| format!("{error}\n{text}"))?;
    // Tasks of exchanges end a moment after the result; nothing else may keep the recorder.
    for _ in 0..1000 {
        if Arc::strong_count(&recorder) == 1 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert_eq!(
        Arc::strong_count(&recorder),
        1,
        "{sql}: something keeps the recorder"
    );
    let sys = SysTables::open(None, Retention::default());
    sys.finish(
        &recorder,
        QueryRow {
            sql: sql.to_owned(),
            fingerprint: String::new(),
            status: "finished".to_owned(),
            error: None,
            started_at: 0,
            ended_at: Some(0),
            planning_ns: None,
            execution_ns: None,
            rows_returned: None,
            tables_read: None,
            quarantines: None,
            imported_from: None,
            first_row_at: None,
            queued_ns: None,
            user_name: None,
            trace_id: None,
            parent_span_id: None,
        },
    );
    let rows = rows(&batches);
    let lineage = lineage(&sys, rows.len()).await;
    let sql = "SELECT o.name, o.operator_id FROM sys.operators o JOIN sys.operator_stats s
               ON o.operator_id = s.operator_id WHERE s.spilled_bytes > 0";
    let spilled = int_rows(&sys, sql).await.into_iter();
    let spilled = spilled.map(|(_, name)| name.unwrap()).collect();
    let sql = "SELECT table_name, row_id, outputs FROM sys.expensive_inputs WHERE query_id = 1";
    let sources = match options.piggyback {
        true => int_rows(&sys, sql).await,
        false => Vec::new(),
    };
    let sources = sources.into_iter();
    let sources = sources.map(|(numbers, table)| ((table.unwrap(), numbers[0]), numbers[1]));
    Ok(Profiled {
        rows,
        lineage,
        sources: sources.collect(),
        plan: text,
        spilled,
    })
}

pub async fn int_rows(sys: &Arc<SysTables>, sql: &str) -> Vec<(Vec<i64>, Option<String>)> {
    let context = SessionContext::new();
    context
        .catalog("datafusion")
        .unwrap()
        .register_schema("sys", sys.schema_provider())
        .unwrap();
    let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
    let mut rows = Vec::new();
    for batch in &batches {
        let table = cast(batch.column(0), &DataType::Utf8).unwrap();
        let table = table.as_string::<i32>();
        for row in 0..batch.num_rows() {
            let numbers = batch.columns()[1..]
                .iter()
                .map(|c| c.as_primitive::<Int64Type>().value(row))
                .collect();
            let name = table.is_valid(row).then(|| table.value(row).to_owned());
            rows.push((numbers, name));
        }
    }
    rows
}

type Record = (i64, i64);

pub async fn lineage(sys: &Arc<SysTables>, result_rows: usize) -> Vec<BTreeSet<(String, i64)>> {
    let mut edges: BTreeMap<Record, Vec<(Record, Option<String>)>> = BTreeMap::new();
    let sql = "SELECT table_name, operator_id, output_id, input_operator_id, input_id \
               FROM sys.lineage";
    for (numbers, table) in int_rows(sys, sql).await {
        if let Some(table) = &table {
            assert!(numbers[2] >= 0, "no operator scans {table}");
        }
        edges
            .entry((numbers[0], numbers[1]))
            .or_default()
            .push(((numbers[2], numbers[3]), table));
    }
    let mut lineage = vec![BTreeSet::new(); result_rows];
    let sql = "SELECT table_name, output_row, operator_id, record_id FROM sys.output_records \
               WHERE record_id IS NOT NULL";
    for (numbers, table) in int_rows(sys, sql).await {
        let mut open = vec![((numbers[1], numbers[2]), table)];
        while let Some((record, table)) = open.pop() {
            match table {
                Some(table) => {
                    lineage[numbers[0] as usize].insert((table, record.1));
                }
                None => open.extend(edges.get(&record).cloned().unwrap_or_default()),
            }
        }
    }
    lineage
}

pub async fn run_plain(context: &SessionContext, sql: &str) -> Vec<String> {
    rows(&context.sql(sql).await.unwrap().collect().await.unwrap())
}

/// The tables with only the rows of a lineage.
pub fn only(
    tables: &BTreeMap<&'static str, RecordBatch>,
    lineage: &BTreeSet<(String, i64)>,
) -> BTreeMap<&'static str, RecordBatch> {
    tables
        .iter()
        .map(|(name, batch)| {
            let indices: UInt64Array = lineage
                .iter()
                .filter(|(table, _)| table == name)
                .map(|(_, id)| (id - first_id(name)) as u64)
                .collect();
            (*name, take_record_batch(batch, &indices).unwrap())
        })
        .collect()
}

pub fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}
