//! The tables of schema `sys`, each defined once.
//!
//! A new column must have an `Opt…` kind: files that were written before lack it, and a NOT NULL
//! column makes them unreadable. A new time must be added to `Events::correct_times`
//! (`recorder.rs`), or it keeps the clock of its worker. docs/architecture.md lists the steps.

use crate::definition::{SysRow, TableDefinition, array, column, heap, sys_table, value};
use crate::operator_kind::{CapturedRecords, OperatorKind, Routing};

sys_table! {
    /// One row per query that finished, failed or was cancelled, at every level.
    struct QueryRow = "queries" {
        /// The query: ascending in the order in which queries started, also across restarts.
        given query_id: Int,
        /// The statement as it was sent; a query with the values of its parameters.
        row sql: Text,
        /// The same for statements that differ only in literals and white space.
        row fingerprint: Text,
        /// `finished`, `failed` or `cancelled`.
        row status: Text,
        /// The error message, if the query failed.
        row error: OptText,
        /// The level that the query ran at: `off`, `counters`, `calls` or `records`.
        given profile_level: Text,
        /// Share of the base records that were traced, 0 to 1, in the end; 1 means all of them.
        given sample_rate: Float,
        /// How level `records` kept what it learned of records: `log` or `piggyback`; NULL below it.
        given lineage: OptText,
        /// When the statement arrived.
        row started_at: Time,
        /// When its first rows were ready for the reader; NULL if it returned none.
        row first_row_at: OptTime,
        /// When its last row had been returned.
        row ended_at: OptTime,
        /// Nanoseconds in which the statement waited for admission; 0 if it did not wait. They are part of neither
        /// `planning_ns` nor `execution_ns`.
        row queued_ns: OptInt,
        /// Nanoseconds of parsing, resolving names, optimising and planning.
        row planning_ns: OptInt,
        /// Nanoseconds from the end of planning to the last row.
        row execution_ns: OptInt,
        /// Rows that the query returned or changed.
        row rows_returned: OptInt,
        /// The tables that the query read, as JSON: an array of `table`, its `rows`, and `version`,
        /// which is another whenever the table's segments are others.
        row tables_read: OptText,
        /// The quarantines that left rows out of the query, as JSON: an array of `table`, `name` and `predicate`. NULL
        /// if there were none.
        row quarantines: OptText,
        /// The directory that `IMPORT PROFILE` read; NULL for queries that ran here.
        row imported_from: OptText,
        /// The user of the session, as the client of a server named itself; `local` in a program that embeds the
        /// database.
        row user_name: OptText,
        /// The trace that the statement belongs to, as 32 hexadecimal digits: of the setting `trace.parent`, or of a
        /// comment `/*traceparent='…'*/`. NULL if its client named none.
        row trace_id: OptText,
        /// The span of the client that the statement belongs to, as 16 hexadecimal digits.
        row parent_span_id: OptText,
    }
}

sys_table! {
    /// One row per fragment: a part of the plan between exchanges.
    struct Fragment = "fragments" {
        /// The query.
        given query_id: Int,
        /// The fragment, unique in its query; the one that makes the result is 0.
        row fragment_id: Int,
        /// The fragment that consumes this one's rows; NULL for the one that makes the result.
        row parent_fragment_id: OptInt,
        /// Partitions that the fragment runs in, on all its workers.
        row tasks: Int,
        /// The fragment's part of the physical plan, as indented text.
        row plan: Text,
    }
}

sys_table! {
    /// One row per operator of the physical plan.
    struct Operator = "operators" {
        /// The query.
        given query_id: Int,
        /// The fragment that the operator belongs to.
        row fragment_id: Int,
        /// The operator, unique in its query.
        row operator_id: Int,
        /// The operator that consumes this one's rows; NULL for the root.
        row parent_operator_id: OptInt,
        /// The operator's name, for example `HashJoinExec`.
        row name: Text,
        /// What it does: expressions, keys, file groups.
        row details: Text,
        /// Rows that the optimizer expected it to return, over all partitions.
        row estimated_rows: OptInt,
        /// The part of the SQL text that it stems from, where that is known.
        row sql_span: OptText,
        /// Whether it writes rows of `sys.lineage`.
        row captures: Flag,
        /// The table or file that a scan reads, where that is known.
        row table_name: OptText,
        /// What kind of operator it is: `scan`, `values` (rows that the statement has), `working table` (of a
        /// recursive query), `shared rows` and `subquery values` (made by another operator), `filter`,
        /// `projection`, `evaluation` (of expressions, with a time for each record), `unnest`, `join`,
        /// `aggregate`, `window`, `sort`, `limit`, `union`, `exchange`, `recursive`, `write`, `other`; of
        /// internal operators `pass-through`, `spilled groups` and `frames`. Derived from `name` and `details`
        /// where a version recorded it that knew no kinds.
        row kind: OptText,
        /// Whether it is no operator of the query: it passes rows on for the planner's sake, or stands for
        /// records that `sys.lineage` tells apart.
        row is_internal: OptFlag,
        /// What it makes records of, if it captures lineage: `groups`, `frames` or `recursive rows`.
        row captured_records: OptText,
        /// How an exchange finds the partition of a row: `hash` of keys, `value number` (a hash of the number
        /// of a value that a subquery is computed for), `round robin`, `gather` or `broadcast`. NULL for other
        /// operators, and where that is not known.
        row routing: OptText,
        /// What can be done about skew of an exchange that hashes keys, separated by commas: `map` (heavy keys get
        /// partitions by a map), `split` (rows of a heavy key are spread over all partitions, and the matching
        /// rows of the other input are copied), `deal NULL` (rows with NULL in their key are spread), `drop NULL`
        /// (such rows are left out). NULL for other operators.
        row remedies: OptText,
        /// A name for the rows that it returns: a hash of the versions of tables, the conditions and the keys. Joins
        /// have the same name in any order. NULL where something above asks for only some of the rows, where another
        /// run may return others, and at level `records`.
        row relation: OptText,
    }
}

impl Operator {
    /// The same operator, of a kind, and if it captures lineage with what it makes records of.
    #[must_use]
    pub fn with_kind(self, kind: OperatorKind) -> Self {
        let kind = kind.reading(self.table_name.as_deref());
        let captured = CapturedRecords::by_kind(kind).filter(|_| self.captures);
        Self {
            kind: Some(kind.name().to_owned()),
            is_internal: Some(kind.is_internal()),
            captured_records: captured.map(|records| records.name().to_owned()),
            ..self
        }
    }

    /// The same operator, which finds partitions so.
    #[must_use]
    pub fn with_routing(self, routing: Option<Routing>) -> Self {
        Self {
            routing: routing.map(|routing| routing.name().to_owned()),
            ..self
        }
    }

    /// Stands for records that operator `parent_operator_id` makes beside its others.
    pub fn of_captured_records(
        kind: OperatorKind,
        name: &str,
        fragment_id: i64,
        operator_id: i64,
        parent_operator_id: i64,
    ) -> Self {
        let operator = Self {
            fragment_id,
            operator_id,
            parent_operator_id: Some(parent_operator_id),
            name: name.to_owned(),
            details: String::new(),
            estimated_rows: None,
            sql_span: None,
            captures: true,
            table_name: None,
            kind: None,
            is_internal: None,
            captured_records: None,
            routing: None,
            remedies: None,
            relation: None,
        };
        operator.with_kind(kind)
    }
}

sys_table! {
    /// One row per operator and partition (a task of the operator), written when it ends.
    struct OperatorStats = "operator_stats" {
        /// The query.
        given query_id: Int,
        /// The fragment that the operator belongs to.
        row fragment_id: Int,
        /// The operator.
        row operator_id: Int,
        /// The worker that ran this partition; 0 in a process of its own.
        given worker_id: Int,
        /// The partition of the operator's output, from 0; several workers number theirs through.
        row partition: Int,
        /// Times that the parent called the operator for a batch.
        row calls: Int,
        /// Rows that the operator took from its inputs.
        row rows_in: Int,
        /// Rows that the operator returned.
        row rows_out: Int,
        /// Bytes in memory of the rows that the operator returned; strings are estimated, but for exchanges.
        row bytes_out: Int,
        /// Nanoseconds spent in the operator itself.
        row self_ns: Int,
        /// Nanoseconds spent in the operator and in the operators below it in the same task.
        row total_ns: Int,
        /// Nanoseconds in which the operator had nothing to do since its input was not ready.
        row input_wait_ns: Int,
        /// Nanoseconds in which its output waited to be taken.
        row output_wait_ns: Int,
        /// The most memory that the operator held, in bytes.
        row peak_memory_bytes: Int,
        /// Bytes written to temporary files.
        row spilled_bytes: Int,
        /// When it was called first.
        row first_call_at: OptTime,
        /// When its last call ended.
        row last_call_at: OptTime,
    }
}

impl OperatorStats {
    /// Adds what the operator did when it ran in the same partition once more.
    pub(crate) fn add(&mut self, again: &Self) {
        self.calls += again.calls;
        self.rows_in += again.rows_in;
        self.rows_out += again.rows_out;
        self.bytes_out += again.bytes_out;
        self.self_ns += again.self_ns;
        self.total_ns += again.total_ns;
        self.input_wait_ns += again.input_wait_ns;
        self.output_wait_ns += again.output_wait_ns;
        self.peak_memory_bytes = self.peak_memory_bytes.max(again.peak_memory_bytes);
        self.spilled_bytes += again.spilled_bytes;
        let times = [self.first_call_at, again.first_call_at];
        self.first_call_at = times.into_iter().flatten().min();
        self.last_call_at = self.last_call_at.max(again.last_call_at);
    }
}

sys_table! {
    /// One row per call of an operator by its parent. Level `calls` and above.
    struct OperatorCall = "operator_calls" {
        /// The query.
        given query_id: Int,
        /// The fragment that the operator belongs to.
        row fragment_id: Int,
        /// The operator that was called.
        row operator_id: Int,
        /// The worker that ran the call.
        given worker_id: Int,
        /// The partition that was called.
        row partition: Int,
        /// When the call began.
        row started_at: Time,
        /// When the call returned.
        row ended_at: Time,
        /// Rows that it returned; 0 if it returned none or was not ready.
        row rows: Int,
    }
}

sys_table! {
    /// One row per operator, partition and bin of time in which the operator did something. A partition has at
    /// most 64 bins, from level `calls` on 1,024. Bins of all operators of a query begin when its execution does.
    /// Their width is 16,384 ns at first. When a query outlasts the last bin, pairs of bins become one. So two
    /// bins of a query have no time in common, or one contains the other; clocks of machines may differ by
    /// `clock_error_ns` in `sys.workers`. Level `counters` and above.
    struct TimelineBin = "operator_timeline" {
        /// The query.
        given query_id: Int,
        /// The fragment that the operator belongs to.
        row fragment_id: Int,
        /// The operator.
        row operator_id: Int,
        /// The worker that ran this partition.
        given worker_id: Int,
        /// The partition of the operator's output.
        row partition: Int,
        /// The number of the bin, from 0.
        row bin: Int,
        /// When the bin begins.
        row started_at: Time,
        /// Nanoseconds from the beginning of the bin to that of the next; the same for all bins of a partition.
        row width_ns: Int,
        /// Calls of the operator that ended in the bin.
        row calls: Int,
        /// Rows that these calls returned.
        row rows: Int,
        /// Nanoseconds of the bin in which the operator itself worked. All bins of a partition add up to `self_ns`
        /// in `sys.operator_stats`.
        row self_ns: Int,
        /// Nanoseconds of the bin in which the operator had nothing to do since its input was not ready.
        row input_wait_ns: Int,
    }
}

sys_table! {
    /// One row per task: a partition of a fragment, on the worker that ran it. Its times are those of the calls of
    /// its topmost operator. Level `counters` and above.
    struct TaskStats = "task_stats" {
        /// The query.
        given query_id: Int,
        /// The fragment.
        row fragment_id: Int,
        /// The worker that ran the task.
        given worker_id: Int,
        /// The partition.
        row partition: Int,
        /// When the task was called first.
        row started_at: Time,
        /// When its last call ended.
        row ended_at: Time,
        /// Nanoseconds of its calls, also while the thread had no processor; without what ran in other fragments.
        row wall_ns: Int,
        /// Nanoseconds in which a processor worked on its calls; NULL where the system does not tell.
        row cpu_ns: OptInt,
        /// How often the thread waited for something in a call. Level `calls` and above; NULL below, and where
        /// the system does not tell.
        row voluntary_switches: OptInt,
        /// How often the processor was taken away from the thread in a call. As `voluntary_switches`.
        row involuntary_switches: OptInt,
        /// Nanoseconds of its calls in which the thread could have run but had no processor; with `throttled_ns`.
        /// What is left of `wall_ns` beside this and `cpu_ns` the task waited by itself: for a disk, a lock, a page
        /// of memory. Below 50 µs in a call it counts as 0. NULL where the system does not tell.
        row runqueue_ns: OptInt,
        /// Nanoseconds of its calls in which a control group around the worker had used up its processor quota.
        /// NULL where the system does not tell.
        row throttled_ns: OptInt,
    }
}

impl TaskStats {
    /// Adds calls of another topmost operator of the same task.
    pub(crate) fn add(&mut self, more: &Self) {
        let sum = |one: Option<i64>, other: Option<i64>| Some(one? + other?);
        self.started_at = self.started_at.min(more.started_at);
        self.ended_at = self.ended_at.max(more.ended_at);
        self.wall_ns += more.wall_ns;
        self.cpu_ns = sum(self.cpu_ns, more.cpu_ns);
        self.voluntary_switches = sum(self.voluntary_switches, more.voluntary_switches);
        self.involuntary_switches = sum(self.involuntary_switches, more.involuntary_switches);
        self.runqueue_ns = sum(self.runqueue_ns, more.runqueue_ns);
        self.throttled_ns = sum(self.throttled_ns, more.throttled_ns);
    }
}

sys_table! {
    /// One row per operator, partition and metric that DataFusion's operators count themselves, where it is not 0:
    /// rows of the build side of a join, row groups that a scan left out, bytes that it read, files that were
    /// spilled. What `sys.operator_stats` has is left out. Level `counters` and above.
    struct OperatorMetric = "operator_metrics" {
        /// The query.
        given query_id: Int,
        /// The operator.
        row operator_id: Int,
        /// The worker that ran this partition.
        given worker_id: Int,
        /// The partition; NULL for a metric of the whole operator.
        row partition: OptInt,
        /// The metric's name in DataFusion. Those that end with `_ns` are times in nanoseconds; `_pruned` and
        /// `_matched` are what a condition left out and kept, `_part` and `_total` what a ratio was made of.
        row metric: Text,
        /// The metric: the sum of all runs of the operator in the partition, of memory the most.
        row value: Int,
    }
}

sys_table! {
    /// One row per operator and partition of a statement that runs now. Names and kinds are here, too, since
    /// `sys.operators` has those of queries that have ended.
    struct RunningOperator = "running_operators" {
        /// The query.
        given query_id: Int,
        /// The fragment that the operator belongs to.
        row fragment_id: Int,
        /// The operator.
        row operator_id: Int,
        /// The worker that runs this partition.
        given worker_id: Int,
        /// The partition of the operator's output.
        row partition: Int,
        /// The operator that consumes this one's rows; NULL for the root.
        row parent_operator_id: OptInt,
        /// The operator's name.
        row name: OptText,
        /// What kind of operator it is, as in `sys.operators`.
        row kind: OptText,
        /// Whether the partition is at its end.
        row has_ended: Flag,
        /// Times that the parent called the operator so far.
        row calls: Int,
        /// Rows that the operator took from its inputs.
        row rows_in: Int,
        /// Rows that the operator returned.
        row rows_out: Int,
        /// Bytes in memory of the rows that the operator returned.
        row bytes_out: Int,
        /// Nanoseconds spent in the operator itself, with the call under way.
        row self_ns: Int,
        /// Nanoseconds spent in the operator and in the operators below it in the same task.
        row total_ns: Int,
        /// Nanoseconds in which the operator had nothing to do since its input was not ready.
        row input_wait_ns: Int,
        /// Nanoseconds in which its output waited to be taken.
        row output_wait_ns: Int,
    }
}

impl RunningOperator {
    /// What a partition of `operator` did so far.
    pub(crate) fn of_stats(
        stats: &OperatorStats,
        operator: Option<&Operator>,
        has_ended: bool,
    ) -> Self {
        Self {
            fragment_id: stats.fragment_id,
            operator_id: stats.operator_id,
            partition: stats.partition,
            parent_operator_id: operator.and_then(|operator| operator.parent_operator_id),
            name: operator.map(|operator| operator.name.clone()),
            kind: operator.and_then(|operator| operator.kind.clone()),
            has_ended,
            calls: stats.calls,
            rows_in: stats.rows_in,
            rows_out: stats.rows_out,
            bytes_out: stats.bytes_out,
            self_ns: stats.self_ns,
            total_ns: stats.total_ns,
            input_wait_ns: stats.input_wait_ns,
            output_wait_ns: stats.output_wait_ns,
        }
    }
}

sys_table! {
    /// One row per exchange, sender, receiver and partition; from level `calls` on, one per
    /// batch that crossed.
    struct TuplesSent = "tuples_sent" {
        /// The query.
        given query_id: Int,
        /// The operator id of the exchange.
        row exchange_id: Int,
        /// The worker that sent.
        row source_worker: Int,
        /// The worker that received.
        row destination_worker: Int,
        /// The partition that received; where rows are gathered, the one that sent.
        row partition: Int,
        /// Rows sent.
        row tuples: Int,
        /// Bytes of the rows sent, as they are in memory.
        row bytes: Int,
        /// When the batch, or the last batch of a total, was sent.
        row sent_at: OptTime,
        /// The partition that sent, where that is known: where rows are gathered from workers, and where an
        /// exchange reads one partition.
        row source_partition: OptInt,
    }
}

sys_table! {
    /// One row per record and measured operator: what the record took there. Level `records`.
    const RECORD_LATENCY = "record_latency" {
        /// The query.
        query_id: Int,
        /// The fragment that the operator belongs to.
        fragment_id: Int,
        /// The operator that was measured.
        operator_id: Int,
        /// The worker that measured.
        worker_id: Int,
        /// The partition of the operator.
        partition: Int,
        /// The table that the record belongs to; NULL if `row_id` is a record made by an
        /// operator that captures lineage.
        table_name: OptText,
        /// The record: `_row_id` of the table, or `output_id` in `sys.lineage`.
        row_id: Int,
        /// What the record took, in nanoseconds.
        latency_ns: Int,
        /// `computation` or `shuffle`.
        kind: Text,
        /// `measured` by itself, `apportioned` from a batch, or `replayed` to be found in one.
        method: Text,
        /// By how much `latency_ns` may be off, in nanoseconds. `apportioned`: what the other records
        /// of the batch were given, which this one may have taken. `replayed`: how much longer the
        /// second shortest of its evaluations took. `measured`: the time in which its thread may have
        /// waited for a processor. NULL in logs of versions that did not say.
        error_ns: OptInt,
    }
}

sys_table! {
    /// One row per edge of lineage: a record made by an operator that captures lineage (an
    /// aggregate, or a window of frames), and a record it was made from. Level `records`.
    const LINEAGE = "lineage" {
        /// The query.
        query_id: Int,
        /// The fragment that the operator belongs to.
        fragment_id: Int,
        /// The operator that made `output_id`.
        operator_id: Int,
        /// The worker that made it.
        worker_id: Int,
        /// The partition that made it.
        partition: Int,
        /// The record that was made, unique for its operator.
        output_id: Int,
        /// The operator that `input_id` comes from: a scan, or one that captures lineage.
        input_operator_id: Int,
        /// The table that was scanned; NULL if the input is not a base record.
        table_name: OptText,
        /// The input: `_row_id` of the table, or `output_id` of the input operator.
        input_id: Int,
        /// What the input took since it was read or made, for this output, in nanoseconds.
        input_latency_ns: Int,
    }
}

sys_table! {
    /// One row per result row and record that it was made from without further aggregation.
    /// A row of a join has several. Level `records`.
    const OUTPUT_RECORDS = "output_records" {
        /// The query.
        query_id: Int,
        /// Number of the row in the result, from 0. Of rows that several tasks write where they are
        /// made, no two have one number, and there are gaps.
        output_row: Int,
        /// The operator that `record_id` comes from: a scan, or one that captures lineage.
        operator_id: Int,
        /// The table that was scanned; NULL if the record is not a base record.
        table_name: OptText,
        /// The record: `_row_id` of the table, or `output_id` in `sys.lineage`. NULL where the
        /// row has none, as in the padding of an outer join.
        record_id: OptInt,
        /// What the record took since it was read or made, for this row, in nanoseconds.
        latency_ns: Int,
    }
}

sys_table! {
    /// One row per base record that is the most impactful source of result rows, of queries that ran
    /// with `profile.lineage = 'piggyback'`: what `sys.expensive_inputs` needs of it, since there is
    /// no log to compute that from. At most 4,096 of each task (of each partition where a statement
    /// writes its rows); `events_dropped` in
    /// `sys.profiler_overhead` counts the result rows of others. Of rows that several tasks write
    /// where they are made, one row per task.
    struct ImpactfulSource = "impactful_sources" {
        /// The query.
        given query_id: Int,
        /// The table that the record belongs to.
        row table_name: Text,
        /// The record: `_row_id` of the table.
        row row_id: Int,
        /// The greatest total latency of the result rows that it is the source of, in nanoseconds.
        row max_total_ns: Int,
        /// Their greatest remediated latency, in nanoseconds.
        row max_remediated_ns: Int,
        /// How many result rows.
        row outputs: Int,
    }
}

sys_table! {
    /// One row per worker and heavy key of an exchange that hashes rows to partitions, or of an input of a
    /// join: a key with at least 0.5 % of its rows, or of the values in their lists. Estimated from a few rows of
    /// every batch. Level `counters` and above.
    struct KeyFrequency = "key_frequencies" {
        /// The query.
        given query_id: Int,
        /// The operator id of the exchange, or of the join.
        row exchange_id: Int,
        /// Which input of a join it is: 0 or 1; NULL for an exchange.
        row input: OptInt,
        /// The key: its columns as text, separated by commas.
        row key: Text,
        /// The hash by which an exchange finds the key's partition. NULL in rows of older versions.
        row key_hash: OptInt,
        /// Whether a column of the key is NULL. NULL in rows of older versions.
        row key_has_null: OptFlag,
        /// Rows with this key that went into the exchange or the join, estimated.
        row tuples: Int,
        /// By how much `tuples` may be off: two standard deviations of the sample.
        row error: Int,
        /// Share of the rows of the exchange or of the input, 0 to 1, estimated.
        row share: Float,
        /// Values in lists of these rows, estimated. Partial groups of `median`, `array_agg` and DISTINCT carry
        /// their rows' values in lists, and are one row for each key: their keys are heavy by these values. NULL
        /// for rows without lists, and in rows of older versions.
        row list_values: OptInt,
        /// Share of all values in lists, 0 to 1, estimated. As `list_values`.
        row list_share: OptFloat,
        /// The worker that has seen these rows.
        row worker_id: OptInt,
    }
}

sys_table! {
    /// One row per micro-batch of a continuous query, also of those that failed. The micro-batch is the query of
    /// `query_id` in all other tables.
    struct MicroBatch = "micro_batches" {
        /// The query that the micro-batch ran.
        given query_id: Int,
        /// The continuous query, with its schema.
        row continuous_query: Text,
        /// The number of the micro-batch in its continuous query, from 1. A batch that failed runs again under the same
        /// number.
        row batch: Int,
        /// When the micro-batch was due.
        row due_at: Time,
        /// Rows of the stream that the micro-batch read for the first time.
        row rows_in: Int,
        /// Rows that the micro-batch added to the target table; 0 if it failed.
        row rows_out: Int,
        /// Of `rows_in`, rows that came too late: all their windows had been emitted. They are dropped.
        row late_rows: Int,
        /// Nanoseconds from `due_at` until the results were durable, or until the error.
        row latency_ns: Int,
        /// Rows of the stream that still waited when the micro-batch ended.
        row backlog: Int,
        /// Whether `latency_ns` exceeded the deadline of the continuous query; NULL if it has none.
        row deadline_missed: OptFlag,
        /// The watermark after the micro-batch; NULL without one.
        row watermark: OptTime,
        /// Why the micro-batch failed; NULL if it was committed.
        row error: OptText,
    }
}

sys_table! {
    /// One row per query and worker that took part in it; in a cluster also one per worker as it
    /// is now.
    struct WorkerRow = "workers" {
        /// The query; NULL for a worker as it is now.
        given query_id: OptInt,
        /// The worker.
        row worker_id: Int,
        /// `alive`, or `lost`: what a lost worker recorded is missing in all other tables.
        row state: Text,
        /// Where it runs; `in process` for the process itself.
        row address: Text,
        /// What its clock is ahead of the master's, in nanoseconds. The times that it recorded
        /// are corrected by that.
        row clock_offset_ns: Int,
        /// By how much that may be wrong, in nanoseconds.
        row clock_error_ns: Int,
    }
}

sys_table! {
    /// One row per worker, metric and second while a query runs, and one at its end. Level
    /// `counters` and above.
    struct WorkerMetric = "worker_metrics" {
        /// The query.
        given query_id: Int,
        /// The worker.
        given worker_id: Int,
        /// When it was read.
        row at: Time,
        /// `rss_bytes`: memory of the process; `cpu_share`: cores busy in it; `foreign_cpu_share`: cores busy in
        /// other processes of the machine; and more: `sys.metric_sources` lists all. Rates are over the time since
        /// the reading before, at the end of the query over its whole time.
        row metric: Text,
        /// The reading, in the unit that the metric's name says.
        row value: Float,
    }
}

sys_table! {
    /// One row per query and worker: what profiling it cost.
    struct ProfilerOverhead = "profiler_overhead" {
        /// The query.
        given query_id: Int,
        /// The worker.
        given worker_id: Int,
        /// Nanoseconds spent on recording, as far as it is measured.
        row time_ns: Int,
        /// The most memory that recorded events took, in bytes.
        row peak_memory_bytes: Int,
        /// Bytes of the query's rows in the files of schema `sys`; 0 while they are in memory.
        row bytes_written: Int,
        /// Events that were dropped since the budget was exhausted: if it is not 0, whatever
        /// is concluded from the query's events is incomplete.
        row events_dropped: Int,
        /// Share of the base records that the worker traced, 0 to 1: where it fell while the query ran, what
        /// it was at the end.
        row sample_rate: OptFloat,
        /// What the planner would have done without the profiler, since not every row has to be seen:
        /// `counting from statistics`, `TopK aggregation`, `DISTINCT that ends at its LIMIT`; NULL if
        /// nothing. At level `counters` or `off` the query does it.
        row given_up: OptText,
    }
}

sys_table! {
    /// One row per run of a statement and remedy that setting `remedies` = 'auto' considered for it: whether
    /// the run had the remedy, and what runs with and without it have shown so far. `sys.remedies` has these rows
    /// and, of other queries, the remedies that are advised.
    struct RemedyRun = "remedy_runs" {
        /// The query.
        given query_id: Int,
        /// The operator id of the exchange that the remedy changes; NULL in a run without it.
        row exchange_id: OptInt,
        /// Number of the exchange among the plan's exchanges that hash keys, from 0: the same in all runs.
        row exchange_number: Int,
        /// What it does; see `sys.operators.remedies`.
        row remedy: Text,
        /// The keys that it is for.
        row subject: Text,
        /// What a run without it has shown.
        row because: Text,
        /// The query that has shown it.
        row evidence_query_id: Int,
        /// Whether the run had the remedy.
        row is_applied: Flag,
        /// Nanoseconds that a run was predicted to take less.
        row predicted_ns: Int,
        /// Nanoseconds by which the median of the runs with the remedy so far took less than the median of the
        /// runs without it. NULL before there are both.
        row measured_ns: OptInt,
        /// Pairs of runs before this one: one with the remedy, and one without.
        row pairs: Int,
        /// `trial` until there are three runs with and three without it, then `kept`, or `taken back` if it does not
        /// save 5 %.
        row verdict: Text,
    }
}

/// A table of schema `sys`, in the order of their documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each is the table of its name")]
pub enum Table {
    Queries,
    Fragments,
    Operators,
    OperatorStats,
    OperatorCalls,
    OperatorTimeline,
    TaskStats,
    OperatorMetrics,
    TuplesSent,
    RecordLatency,
    Lineage,
    OutputRecords,
    ImpactfulSources,
    KeyFrequencies,
    RemedyRuns,
    MicroBatches,
    Workers,
    WorkerMetrics,
    ProfilerOverhead,
}

impl Table {
    /// All tables.
    pub const ALL: [Table; 19] = [
        Table::Queries,
        Table::Fragments,
        Table::Operators,
        Table::OperatorStats,
        Table::OperatorCalls,
        Table::OperatorTimeline,
        Table::TaskStats,
        Table::OperatorMetrics,
        Table::TuplesSent,
        Table::RecordLatency,
        Table::Lineage,
        Table::OutputRecords,
        Table::ImpactfulSources,
        Table::KeyFrequencies,
        Table::RemedyRuns,
        Table::MicroBatches,
        Table::Workers,
        Table::WorkerMetrics,
        Table::ProfilerOverhead,
    ];

    /// The table's definition.
    pub fn definition(self) -> &'static TableDefinition {
        match self {
            Table::Queries => &QueryRow::TABLE,
            Table::Fragments => &Fragment::TABLE,
            Table::Operators => &Operator::TABLE,
            Table::OperatorStats => &OperatorStats::TABLE,
            Table::OperatorCalls => &OperatorCall::TABLE,
            Table::OperatorTimeline => &TimelineBin::TABLE,
            Table::TaskStats => &TaskStats::TABLE,
            Table::OperatorMetrics => &OperatorMetric::TABLE,
            Table::TuplesSent => &TuplesSent::TABLE,
            Table::RecordLatency => &RECORD_LATENCY,
            Table::Lineage => &LINEAGE,
            Table::OutputRecords => &OUTPUT_RECORDS,
            Table::ImpactfulSources => &ImpactfulSource::TABLE,
            Table::KeyFrequencies => &KeyFrequency::TABLE,
            Table::RemedyRuns => &RemedyRun::TABLE,
            Table::MicroBatches => &MicroBatch::TABLE,
            Table::Workers => &WorkerRow::TABLE,
            Table::WorkerMetrics => &WorkerMetric::TABLE,
            Table::ProfilerOverhead => &ProfilerOverhead::TABLE,
        }
    }

    /// The table's name in schema `sys`.
    pub fn name(self) -> &'static str {
        self.definition().name
    }

    /// Whether workers in processes of their own have rows of it. The other tables have rows of
    /// the process alone that returned the query's rows.
    pub(crate) fn is_of_workers(self) -> bool {
        match self {
            Table::Queries
            | Table::Fragments
            | Table::RemedyRuns
            | Table::MicroBatches
            | Table::Workers => false,
            Table::Operators
            | Table::OperatorStats
            | Table::OperatorCalls
            | Table::OperatorTimeline
            | Table::TaskStats
            | Table::OperatorMetrics
            | Table::TuplesSent
            | Table::RecordLatency
            | Table::Lineage
            | Table::OutputRecords
            | Table::ImpactfulSources
            | Table::KeyFrequencies
            | Table::WorkerMetrics
            | Table::ProfilerOverhead => true,
        }
    }

    /// The table of a name in schema `sys`.
    pub fn by_name(name: &str) -> Option<Table> {
        Table::ALL.into_iter().find(|table| table.name() == name)
    }
}
