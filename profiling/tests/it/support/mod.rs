//! A database without an engine: schema `sys` in a DataFusion context, and queries that are
//! recorded by hand.

pub mod processes;

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::catalog::CatalogProvider;
use datafusion::catalog::MemoryCatalogProvider;
use datafusion::error::DataFusionError;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use skewer_compat::session::repaired;
use skewer_profiling::operator_kind::kind_by_name;
use skewer_profiling::{
    Ids, Latencies, Level, LineageChunk, Operator, OperatorStats, OutputChunk, QueryRow, Recorder,
    RecorderLimits, SysTables,
};

/// A session in which `sys` is the schema of these tables.
pub fn session(tables: &SysTables) -> SessionContext {
    session_of(tables, SessionConfig::new())
}

/// The same with other settings.
pub fn session_of(tables: &SysTables, config: SessionConfig) -> SessionContext {
    let config = config.with_default_catalog_and_schema("main", "public");
    let builder = SessionStateBuilder::new().with_config(config.with_target_partitions(2));
    let context = repaired(builder);
    let catalog = MemoryCatalogProvider::new();
    catalog
        .register_schema("sys", tables.schema_provider())
        .unwrap();
    context.register_catalog("main", Arc::new(catalog));
    tables.register_functions(&context);
    context
}

/// Rows of a query as texts; NULL is an empty text.
pub async fn rows(context: &SessionContext, sql: &str) -> Vec<Vec<String>> {
    match try_rows(context, sql).await {
        Ok(rows) => rows,
        Err(error) => panic!("{sql}\n{error}"),
    }
}

/// Rows of a query as texts, or why there are none.
pub async fn try_rows(
    context: &SessionContext,
    sql: &str,
) -> Result<Vec<Vec<String>>, DataFusionError> {
    let batches = context.sql(sql).await?.collect().await?;
    Ok(batches.iter().flat_map(texts).collect())
}

fn texts(batch: &RecordBatch) -> Vec<Vec<String>> {
    let options = FormatOptions::default();
    let columns: Vec<ArrayFormatter<'_>> = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
        .collect();
    (0..batch.num_rows())
        .map(|row| {
            columns
                .iter()
                .map(|column| column.value(row).to_string())
                .collect()
        })
        .collect()
}

/// The single value of a query.
pub async fn value(context: &SessionContext, sql: &str) -> String {
    let rows = rows(context, sql).await;
    assert_eq!(rows.len(), 1, "{sql}");
    rows[0][0].clone()
}

/// A recorder for everything.
pub fn recorder(query_id: i64) -> Arc<Recorder> {
    Recorder::new(query_id, Level::Records, 1.0, RecorderLimits::default())
}

/// The row of a query that finished.
pub fn finished(sql: &str) -> QueryRow {
    QueryRow {
        sql: sql.to_owned(),
        fingerprint: sql.to_owned(),
        status: "finished".to_owned(),
        error: None,
        started_at: 1_000_000_000,
        ended_at: Some(3_000_000_000),
        planning_ns: Some(500_000_000),
        execution_ns: Some(1_500_000_000),
        rows_returned: Some(1),
        tables_read: None,
        quarantines: None,
        imported_from: None,
        first_row_at: None,
        queued_ns: None,
        user_name: None,
        trace_id: None,
        parent_span_id: None,
    }
}

/// An operator of fragment 0.
pub fn operator(operator_id: i64, parent: Option<i64>, name: &str, captures: bool) -> Operator {
    let operator = Operator {
        fragment_id: 0,
        operator_id,
        parent_operator_id: parent,
        name: name.to_owned(),
        details: String::new(),
        estimated_rows: None,
        sql_span: None,
        captures,
        table_name: None,
        kind: None,
        is_internal: None,
        captured_records: None,
        routing: None,
        remedies: None,
        relation: None,
    };
    operator.with_kind(kind_by_name(name, ""))
}

/// Totals of an operator that did nothing but take time.
pub fn stats(operator_id: i64, partition: i64, self_ns: i64) -> OperatorStats {
    OperatorStats {
        fragment_id: 0,
        operator_id,
        partition,
        calls: 1,
        rows_in: 0,
        rows_out: 0,
        bytes_out: 0,
        self_ns,
        total_ns: self_ns,
        input_wait_ns: 0,
        output_wait_ns: 0,
        peak_memory_bytes: 0,
        spilled_bytes: 0,
        first_call_at: Some(1_500_000_000),
        last_call_at: Some(3_000_000_000),
    }
}

/// Edges (output, input, nanoseconds) of an operator in a partition. The inputs are records of
/// a table if there is one.
pub fn lineage(
    recorder: &Recorder,
    (operator_id, partition): (i64, i64),
    (input_operator_id, table): (i64, Option<&str>),
    edges: &[(i64, i64, i64)],
) {
    let column = |value: fn(&(i64, i64, i64)) -> i64| edges.iter().map(value).collect::<Vec<_>>();
    recorder.lineage(LineageChunk {
        fragment_id: 0,
        operator_id,
        partition,
        input_operator_id,
        table_name: table.map(Into::into),
        output_ids: Ids::encode(&column(|edge| edge.0)),
        input_ids: Ids::encode(&column(|edge| edge.1)),
        latency: Latencies::encode(&column(|edge| edge.2 * 1000)),
    });
}

/// Result rows from `first` on, made from these records (record, nanoseconds).
pub fn outputs(
    recorder: &Recorder,
    first: i64,
    (operator_id, table): (i64, Option<&str>),
    records: &[(i64, i64)],
) {
    let ids: Vec<i64> = records.iter().map(|record| record.0).collect();
    let ps: Vec<i64> = records.iter().map(|record| record.1 * 1000).collect();
    recorder.output_records(OutputChunk {
        first_output_row: first,
        operator_id,
        table_name: table.map(Into::into),
        record_ids: Ids::encode(&ids),
        latency: Latencies::encode(&ps),
    });
}
