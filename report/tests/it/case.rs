//! A query that is recorded by hand.

use std::sync::Arc;
use std::time::Duration;

use skewer_profiling::operator_kind::{kind_by_name, routing_by_name};
use skewer_profiling::{
    Ids, Latencies, LatencyChunk, LatencyKind, Level, LineageChunk, Method, Operator,
    OperatorStats, OutputChunk, QueryRow, Recorder, RecorderLimits, Retention, SysTables,
};

/// The query of every case.
pub(crate) const QUERY: i64 = 12;

/// Nanoseconds of a millisecond.
pub(crate) const MS: i64 = 1_000_000;

/// A query that is being recorded.
pub(crate) struct Case {
    recorder: Arc<Recorder>,
}

/// What a partition of an operator did.
#[derive(Default)]
pub(crate) struct Did {
    pub(crate) rows_in: i64,
    pub(crate) rows_out: i64,
    pub(crate) self_ms: i64,
    pub(crate) wait_ms: i64,
    pub(crate) output_wait_ms: i64,
    pub(crate) memory: i64,
    pub(crate) spilled: i64,
}

impl Case {
    /// A query that begins, with nothing recorded yet.
    pub(crate) fn new(level: Level, sample_rate: f64) -> Self {
        Self {
            recorder: Recorder::new(QUERY, level, sample_rate, RecorderLimits::default()),
        }
    }

    /// An operator and what each of its partitions did.
    pub(crate) fn operator(
        &self,
        place: (i64, i64, Option<i64>),
        name: &str,
        details: &str,
        partitions: &[Did],
    ) {
        self.record(place, (name, details), None, partitions);
    }

    /// A scan of a table and what each of its partitions did.
    pub(crate) fn scan(
        &self,
        place: (i64, i64, Option<i64>),
        table: &str,
        details: &str,
        partitions: &[Did],
    ) {
        self.record(place, ("DataSourceExec", details), Some(table), partitions);
    }

    fn record(
        &self,
        (fragment_id, operator_id, parent): (i64, i64, Option<i64>),
        (name, details): (&str, &str),
        table: Option<&str>,
        partitions: &[Did],
    ) {
        let operator = Operator {
            fragment_id,
            operator_id,
            parent_operator_id: parent,
            name: name.to_owned(),
            details: details.to_owned(),
            estimated_rows: None,
            sql_span: None,
            captures: name == "AggregateExec",
            table_name: table.map(str::to_owned),
            kind: None,
            is_internal: None,
            captured_records: None,
            routing: None,
            remedies: None,
            relation: None,
        };
        let kind = kind_by_name(name, details);
        let routing = routing_by_name(name, details);
        self.recorder
            .operator(operator.with_kind(kind).with_routing(routing));
        for (partition, did) in (0..).zip(partitions) {
            self.recorder.operator_stats(OperatorStats {
                fragment_id,
                operator_id,
                partition,
                calls: 1,
                rows_in: did.rows_in,
                rows_out: did.rows_out,
                bytes_out: 8 * did.rows_out,
                self_ns: did.self_ms * MS,
                total_ns: did.self_ms * MS,
                input_wait_ns: did.wait_ms * MS,
                output_wait_ns: did.output_wait_ms * MS,
                peak_memory_bytes: did.memory,
                spilled_bytes: did.spilled,
                first_call_at: Some(0),
                last_call_at: Some(0),
            });
        }
    }

    /// Edges (output, input, milliseconds) of an operator in a partition of fragment 0.
    pub(crate) fn lineage(
        &self,
        (operator_id, partition): (i64, i64),
        (input_operator_id, table): (i64, Option<&str>),
        edges: &[(i64, i64, i64)],
    ) {
        let column =
            |value: fn(&(i64, i64, i64)) -> i64| edges.iter().map(value).collect::<Vec<_>>();
        self.recorder.lineage(LineageChunk {
            fragment_id: 0,
            operator_id,
            partition,
            input_operator_id,
            table_name: table.map(Into::into),
            output_ids: Ids::encode(&column(|edge| edge.0)),
            input_ids: Ids::encode(&column(|edge| edge.1)),
            latency: Latencies::encode(&column(|edge| edge.2 * MS * 1000)),
        });
    }

    /// What expressions over records (row id, milliseconds) of a table took in a partition.
    pub(crate) fn latency(
        &self,
        (operator_id, partition): (i64, i64),
        table: &str,
        records: &[(i64, i64)],
    ) {
        let ids: Vec<i64> = records.iter().map(|record| record.0).collect();
        let ps: Vec<i64> = records.iter().map(|record| record.1 * MS * 1000).collect();
        self.recorder.record_latency(LatencyChunk {
            fragment_id: 0,
            operator_id,
            partition,
            table_name: Some(table.into()),
            row_ids: Ids::encode(&ids),
            latency: Latencies::encode(&ps),
            kind: LatencyKind::Computation,
            method: Method::Measured,
            error: Latencies::constant(12_000_000, records.len()),
        });
    }

    /// Result rows, each made from one record of an operator.
    pub(crate) fn outputs(&self, operator_id: i64, records: &[i64]) {
        self.outputs_of((operator_id, None), records);
    }

    /// The same, of records of a table that the operator scans if one is given.
    pub(crate) fn outputs_of(&self, (operator_id, table): (i64, Option<&str>), records: &[i64]) {
        self.recorder.output_records(OutputChunk {
            first_output_row: 0,
            operator_id,
            table_name: table.map(Into::into),
            record_ids: Ids::encode(records),
            latency: Latencies::constant(0, records.len()),
        });
    }

    /// Time that the profiler took, which is part of the operators' times.
    pub(crate) fn overhead(&self, ms: u64) {
        self.recorder.overhead(Duration::from_millis(ms));
    }

    /// Ends the query: what it took for planning and execution, in milliseconds.
    pub(crate) fn finish(
        self,
        sql: &str,
        (planning_ms, execution_ms): (i64, i64),
        rows: i64,
    ) -> Arc<SysTables> {
        self.end(sql, "finished", None, (planning_ms, execution_ms), rows)
    }

    /// The same for a query that may have failed.
    pub(crate) fn end(
        self,
        sql: &str,
        status: &str,
        error: Option<&str>,
        (planning_ms, execution_ms): (i64, i64),
        rows: i64,
    ) -> Arc<SysTables> {
        let tables = SysTables::open(None, Retention::default());
        tables.finish(
            &self.recorder,
            QueryRow {
                sql: sql.to_owned(),
                fingerprint: sql.to_owned(),
                status: status.to_owned(),
                error: error.map(str::to_owned),
                started_at: 0,
                ended_at: Some((planning_ms + execution_ms) * MS),
                planning_ns: Some(planning_ms * MS),
                execution_ns: Some(execution_ms * MS),
                rows_returned: Some(rows),
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
        tables
    }
}

/// What a partition did that took and gave so many rows in so many milliseconds.
pub(crate) fn did(rows_in: i64, rows_out: i64, self_ms: i64) -> Did {
    Did {
        rows_in,
        rows_out,
        self_ms,
        ..Did::default()
    }
}

/// The same for one that waited for its input, too.
pub(crate) fn waited(rows_in: i64, rows_out: i64, self_ms: i64, wait_ms: i64) -> Did {
    Did {
        wait_ms,
        ..did(rows_in, rows_out, self_ms)
    }
}
