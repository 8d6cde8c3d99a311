//! What logs the records of groups as they are aggregated.

use std::collections::HashMap;
use std::mem::size_of_val;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, Int64Array};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};
use skewer_profiling::operator_kind::MERGE_OF_SPILLED_GROUPS;
use skewer_profiling::sampling::number_of;
use skewer_profiling::{Ids, Latencies, LineageChunk, Operator, OperatorKind};

use super::values::{Edges, Groups, Latency, column, int64};
use super::{Capture, state};
use crate::call_stack::{self, Position};
use crate::int32_row_id::widened;
use crate::record_column::{RecordDictionary, RecordRun, Records};
use crate::record_origin::RecordOrigin;
use crate::traced_groups::{NONE, TracedGroups};

/// So few edges are one chunk, whose ids take 8 bytes if they are of several accumulators: a chunk by
/// itself takes more than a hundred.
const FEW_EDGES: usize = 1024;

/// Rows of a record in the mean from which on they are logged as runs.
const LONG_RUN: usize = 16;

/// What an accumulator is, known from its first call on.
#[derive(Debug, Clone, Copy)]
struct Identity {
    position: Position,
    operator_id: i64,
    /// Id of the group that the caller calls 0 now.
    first_id: i64,
}

impl Identity {
    /// Edges to groups `outputs` from the records `inputs` of `source`, which are all of the operator
    /// that made `first_input`.
    fn edges(
        &self,
        source: &RecordOrigin,
        outputs: Ids,
        inputs: Ids,
        first_input: i64,
        latency: Latencies,
    ) -> LineageChunk {
        LineageChunk {
            fragment_id: self.position.fragment_id,
            operator_id: self.operator_id,
            partition: self.position.partition,
            input_operator_id: source.operator_of(first_input),
            table_name: source.table_name(),
            output_ids: outputs,
            input_ids: inputs,
            latency,
        }
    }
}

/// The accumulator of one partition.
#[derive(Debug)]
pub(super) struct GroupedCapture {
    capture: Arc<Capture>,
    identity: Option<Identity>,
    /// Groups not emitted yet.
    groups: usize,
    /// If not all records are traced: which of these groups have one that is. Who reads the others
    /// gets NULL and has nothing to log.
    traced: Option<TracedGroups>,
}

impl GroupedCapture {
    pub(super) fn new(capture: Arc<Capture>) -> Self {
        let traced = TracedGroups::new(capture.recorder.sampling());
        Self {
            capture,
            identity: None,
            groups: 0,
            traced,
        }
    }

    /// One whose groups are `rows` rows.
    fn of_single_rows(capture: &Arc<Capture>, rows: usize) -> Self {
        let position = call_stack::here();
        let operator_id = position.operator_id;
        let worker = capture.recorder.worker_id();
        let mut alone = Self::new(Arc::clone(capture));
        alone.identity = Some(Identity {
            position,
            operator_id,
            first_id: capture.groups.add_single_rows(worker, operator_id, rows),
        });
        alone
    }

    /// Logs `edges` to `rows` new records, each a group of its own, whose ids it gives.
    pub(super) fn log_rows<'a>(
        capture: &Arc<Capture>,
        rows: usize,
        edges: impl Iterator<Item = (&'a RecordOrigin, Edges)>,
    ) -> ArrayRef {
        let mut alone = Self::of_single_rows(capture, rows);
        alone.set_groups(rows);
        for (source, edges) in edges {
            let ids = Int64Array::from(edges.inputs);
            let latency = Latency::Sum(edges.latencies);
            alone.mark_traced(Groups::Listed(&edges.outputs), source, &ids);
            alone.log(Groups::Listed(&edges.outputs), source, &ids, &latency);
        }
        alone.emit_ids(EmitTo::All)
    }

    /// There are `groups` groups now.
    fn set_groups(&mut self, groups: usize) {
        self.groups = groups;
        if let Some(traced) = &mut self.traced {
            traced.resize(groups);
        }
    }

    /// The rows of a batch whose records `ids` of `source` are not NULL make their groups traced.
    fn mark_traced(&mut self, groups: Groups<'_>, source: &RecordOrigin, ids: &Int64Array) {
        let Some(traced) = &mut self.traced else {
            return;
        };
        match source {
            RecordOrigin::Scan(_) => {
                traced.add(groups, ids, |row| number_of(ids.value(row)));
            }
            _ => traced.add(groups, ids, |_| 0),
        }
    }

    /// After a batch of `rows`: lets the sample rate fall if nearly all of many groups are traced.
    fn look_at_rate(&mut self, rows: usize) {
        if let Some(traced) = &mut self.traced
            && self.capture.is_of_tables()
        {
            traced.look(rows, self.capture.recorder.sampling());
        }
    }

    /// The accumulator's identity; the operator being executed on this thread is its own.
    fn identity(&mut self) -> Identity {
        *self.identity.get_or_insert_with(|| {
            let position = call_stack::here();
            Identity {
                position,
                operator_id: position.operator_id,
                first_id: self.capture.add_accumulator(position.operator_id),
            }
        })
    }

    /// Logs the edges of one batch from packed records of `source` to `groups`.
    fn log_packed(
        &mut self,
        groups: Groups<'_>,
        source: &RecordOrigin,
        packed: RecordDictionary<'_>,
    ) -> Result<()> {
        if packed.is_empty() {
            return Ok(());
        }
        if self.traced.is_none()
            && matches!(source, RecordOrigin::Scan(_))
            && let Some(runs) = packed.long_runs(LONG_RUN)
        {
            self.log_runs(groups, source, &runs);
            return Ok(());
        }
        let (ids, latencies) = packed.unpacked()?;
        self.mark_traced(groups, source, &ids);
        self.log(groups, source, &ids, &Latency::One(latencies));
        Ok(())
    }

    /// Logs the edges of one batch from base records of `source` to `groups`.
    fn log_runs(&mut self, groups: Groups<'_>, source: &RecordOrigin, runs: &[RecordRun]) {
        let (Some(identity), [first, ..]) = (self.identity, runs) else {
            return;
        };
        let rows = runs.iter().map(|run| run.rows).sum();
        let ids = runs.iter().map(|run| (run.rows as u32, run.id));
        let latencies = runs
            .iter()
            .map(|run| (run.rows as u32, run.latency.max(0) as u64));
        self.capture.recorder.lineage(identity.edges(
            source,
            groups.encode(identity.first_id, rows, self.groups),
            Ids::runs(ids.collect()),
            first.id,
            Latencies::runs(latencies.collect()),
        ));
    }

    /// Logs the edges of one batch from the records of `source` to `groups`.
    fn log(
        &mut self,
        groups: Groups<'_>,
        source: &RecordOrigin,
        ids: &Int64Array,
        latency: &Latency,
    ) {
        let Some(identity) = self.identity else {
            return;
        };
        let edges = ids.len() - ids.null_count();
        if edges == 0 {
            return;
        }
        // Groups made by several accumulators are logged apart, which keeps their ids short; of few
        // groups that takes more than it saves.
        let key_of = |id| match edges <= FEW_EDGES {
            true => source.operator_key(id),
            false => source.run_key(id),
        };
        let same_run = ids.null_count() == 0
            && ids.values().first().is_some_and(|first| {
                let key = key_of(*first);
                matches!(source, RecordOrigin::Scan(_))
                    || ids.values().iter().all(|id| key_of(*id) == key)
            });
        if same_run {
            self.capture.recorder.lineage(identity.edges(
                source,
                groups.encode(identity.first_id, ids.len(), self.groups),
                Ids::encode(ids.values()),
                ids.value(0),
                latency.encode(ids.len()),
            ));
            return;
        }
        // Absent inputs (padding of outer joins and unions, records not sampled) have no edge.
        let mut runs: Vec<Edges> = Vec::new();
        let mut run_of_key: HashMap<i64, usize> = HashMap::new();
        let mut latest = None;
        let every = NullBuffer::new_valid(ids.len());
        for row in ids.nulls().unwrap_or(&every).valid_indices() {
            let id = ids.value(row);
            let key = key_of(id);
            let run = match latest {
                Some((latest, run)) if latest == key => run,
                _ => *run_of_key.entry(key).or_insert(runs.len()),
            };
            latest = Some((key, run));
            if run == runs.len() {
                runs.push(Edges::default());
            }
            runs[run].add(groups.group_of(row), id, latency.latency_of(row));
        }
        for edges in runs {
            self.capture.recorder.lineage(identity.edges(
                source,
                Ids::encode_indexes(identity.first_id, &edges.outputs, self.groups),
                Ids::encode(&edges.inputs),
                edges.inputs[0],
                Latencies::encode(&edges.latencies),
            ));
        }
    }

    /// The ids of the groups that are emitted, and by which numbers they were chosen, if not all are
    /// traced.
    fn emit(&mut self, emit_to: EmitTo) -> (Range<i64>, Option<Vec<u64>>) {
        let mut identity = self.identity();
        let emitted = match emit_to {
            EmitTo::All => self.groups,
            EmitTo::First(n) => n.min(self.groups),
        };
        let ids = identity.first_id..identity.first_id + emitted as i64;
        self.groups -= emitted;
        identity.first_id = ids.end;
        self.identity = Some(identity);
        let sampling = self.capture.recorder.sampling();
        let traced = self.traced.as_mut();
        (ids, traced.map(|traced| traced.take(emitted, sampling)))
    }

    /// The ids of the groups that are emitted, NULL of those that are not traced.
    fn emit_ids(&mut self, emit_to: EmitTo) -> ArrayRef {
        let (ids, chosen_by) = self.emit(emit_to);
        let traced = chosen_by.and_then(|chosen_by| state::traced(&chosen_by));
        Arc::new(Int64Array::new(ids.collect(), traced))
    }

    fn emit_state(&mut self, emit_to: EmitTo) -> Vec<ArrayRef> {
        let column = match self.emit(emit_to) {
            (ids, None) => Arc::new(Int64Array::new(ids.collect(), None)),
            (ids, Some(chosen_by)) => state::column(ids, &chosen_by),
        };
        vec![column]
    }

    fn update(
        &mut self,
        values: &[ArrayRef],
        groups: Groups<'_>,
        total_num_groups: usize,
    ) -> Result<()> {
        let started = Instant::now();
        self.identity();
        self.set_groups(total_num_groups);
        let capture = Arc::clone(&self.capture);
        for input in &capture.inputs {
            let ids = widened(column(values, input.id_argument)?);
            match Records::of_column(&ids)? {
                Records::Ids(ids) => {
                    let latency = Latency::new(values, &input.latency_arguments)?;
                    self.mark_traced(groups, &input.source, ids);
                    self.log(groups, &input.source, ids, &latency);
                }
                Records::Dictionary(packed) => {
                    self.log_packed(groups, &input.source, packed)?;
                }
            }
        }
        self.look_at_rate(values.first().map_or(0, Array::len));
        capture.recorder.overhead(started.elapsed());
        Ok(())
    }

    fn merge(
        &mut self,
        values: &[ArrayRef],
        groups: Groups<'_>,
        total_num_groups: usize,
    ) -> Result<()> {
        let started = Instant::now();
        let mut identity = self.identity();
        let (ids, chosen_by) = match (&self.traced, values.first()) {
            (Some(_), Some(states)) => state::read(states)?,
            _ => (int64(values, 0)?.clone(), Vec::new()),
        };
        let first = ids.iter().flatten().next();
        if first.is_some_and(|id| self.capture.groups.operator_of(id) == identity.operator_id) {
            self.become_merge_of_spilled_groups(&mut identity);
        }
        self.set_groups(total_num_groups);
        let source = RecordOrigin::Aggregate(Arc::clone(&self.capture.groups));
        if let Some(traced) = &mut self.traced {
            traced.add(groups, &ids, |row| chosen_by[row]);
        }
        self.look_at_rate(ids.len());
        self.log(groups, &source, &ids, &Latency::None);
        self.capture.recorder.overhead(started.elapsed());
        Ok(())
    }

    /// The states being merged are this operator's own, read back from disk: what comes out is
    /// made from what it made before, under the number reserved for that.
    fn become_merge_of_spilled_groups(&mut self, identity: &mut Identity) {
        let Some(merge_id) = self.capture.groups.merge_operator(identity.operator_id) else {
            return;
        };
        self.capture
            .recorder
            .operator(Operator::of_captured_records(
                OperatorKind::SpilledGroups,
                MERGE_OF_SPILLED_GROUPS,
                identity.position.fragment_id,
                merge_id,
                identity.position.operator_id,
            ));
        identity.operator_id = merge_id;
        identity.first_id = self.capture.add_accumulator(merge_id);
        self.identity = Some(*identity);
    }
}

impl GroupsAccumulator for GroupedCapture {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        _opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.update(values, Groups::Listed(group_indices), total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(self.emit_ids(emit_to))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(self.emit_state(emit_to))
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.merge(values, Groups::Listed(group_indices), total_num_groups)
    }

    /// Partial aggregation is skipped: every row becomes a group of its own.
    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        _opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let rows = values.first().map_or(0, Array::len);
        let mut alone = GroupedCapture::of_single_rows(&self.capture, rows);
        alone.update(values, Groups::Each, rows)?;
        Ok(alone.emit_state(EmitTo::All))
    }

    /// The log is not the accumulator's: emitting state would not free it, and an aggregate
    /// that is told to spill must see its size fall.
    fn size(&self) -> usize {
        size_of_val(self) + self.traced.as_ref().map_or(0, TracedGroups::memory_bytes)
    }
}

/// The accumulator of an aggregate without groups: one group.
#[derive(Debug)]
pub(super) struct UngroupedCapture(pub(super) GroupedCapture);

impl UngroupedCapture {
    /// By which number the group was chosen, if not all records are traced; [`NONE`] if it was not.
    fn chosen_by(&self) -> Option<u64> {
        let sampling = self.0.capture.recorder.sampling();
        let traced = self.0.traced.as_ref();
        traced.map(|traced| traced.only(sampling))
    }
}

impl Accumulator for UngroupedCapture {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update(values, Groups::One, 1)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let is_traced = self.chosen_by() != Some(NONE);
        let id = self.0.identity().first_id;
        Ok(ScalarValue::Int64(is_traced.then_some(id)))
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let id = self.0.identity().first_id;
        Ok(vec![match self.chosen_by() {
            None => ScalarValue::Int64(Some(id)),
            Some(number) => state::scalar(id, number),
        }])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge(states, Groups::One, 1)
    }
}
