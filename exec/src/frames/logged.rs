//! Frames whose edges are logged, and which are known by ids.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::common::{Result, ScalarValue, internal_err};
use skewer_profiling::{Edges, EdgesOf, OpenStream, Recorder};

use crate::call_stack::{self, Position};
use crate::capture::{CapturedInput, Latency, column};
use crate::int32_row_id::wide_ids;
use crate::record_origin::{AggregateOrigin, RecordOrigin};

use super::tree::{Made, Summarize};

/// Edges after which they are handed to the recorder.
const HANDED_OVER: usize = 4096;

/// So many ids are taken at once, at most.
const MOST_IDS: usize = 1024;

/// Ids that nobody else gives.
#[derive(Debug, Default)]
struct ReservedIds {
    left: Range<i64>,
    /// How many were reserved.
    reserved: usize,
}

impl ReservedIds {
    /// The next id. Where all are given, more are reserved than the time before: most windows have
    /// few rows in each of their partitions, or many.
    fn next(&mut self, reserve: impl FnOnce(usize) -> i64) -> i64 {
        if self.left.is_empty() {
            self.reserved = (4 * self.reserved).clamp(1, MOST_IDS);
            let first = reserve(self.reserved);
            self.left = first..first + self.reserved as i64;
        }
        let id = self.left.start;
        self.left.start += 1;
        id
    }
}

/// Logs the edges of frames, and of their parts.
#[derive(Debug)]
pub(super) struct LoggedFrames {
    inputs: Vec<CapturedInput>,
    frames: Arc<AggregateOrigin>,
    /// As a source: parts are inputs of others.
    parts: RecordOrigin,
    recorder: Arc<Recorder>,
    /// The window operator, and the operators of what is made of its frames.
    place: Option<(Position, Vec<i64>)>,
    /// By the number of what is made.
    ids: [ReservedIds; Made::COUNT],
    /// By the operator that they lead to, the input that they come from, and its run key.
    edges: HashMap<(i64, Option<usize>, i64), (EdgesOf, Edges)>,
    /// How many edges these are.
    waiting: usize,
    /// There may be edges to hand over for as long as this is held.
    _open: OpenStream,
}

impl LoggedFrames {
    pub(super) fn new(
        inputs: Vec<CapturedInput>,
        frames: Arc<AggregateOrigin>,
        recorder: Arc<Recorder>,
    ) -> Self {
        Self {
            inputs,
            parts: RecordOrigin::Aggregate(Arc::clone(&frames)),
            frames,
            _open: recorder.open_stream(),
            recorder,
            place: None,
            ids: Default::default(),
            edges: HashMap::new(),
            waiting: 0,
        }
    }

    /// The window operator, which is being executed on this thread, and the operator of what is made.
    fn place(&mut self, made: Made) -> Result<(Position, i64)> {
        let frames = &self.frames;
        let (position, operators) = self.place.get_or_insert_with(|| {
            let operators = frames.operators().into_iter();
            let operators = operators.flat_map(|(one, other)| [one, other]);
            (call_stack::here(), operators.collect())
        });
        let Some(operator_id) = operators.get(made.number()) else {
            return internal_err!("frame_capture: there is no operator for {made:?}");
        };
        Ok((*position, *operator_id))
    }

    /// An edge from a record of an input, `None` for a part, with its latency.
    fn edge(
        &mut self,
        window: Position,
        operator_id: i64,
        output: i64,
        input: Option<usize>,
        (id, latency): (i64, i64),
    ) {
        let source = match input {
            Some(input) => &self.inputs[input].source,
            None => &self.parts,
        };
        let kind = (operator_id, input, source.run_key(id));
        let edges = match self.edges.entry(kind) {
            Entry::Occupied(edges) => edges.into_mut(),
            Entry::Vacant(none) => {
                let of = EdgesOf {
                    fragment_id: window.fragment_id,
                    operator_id,
                    partition: window.partition,
                    input_operator_id: source.operator_of(id),
                    table_name: source.table_name(),
                    run_key: kind.2,
                };
                none.insert((of, Edges::default()))
            }
        };
        edges.1.push(output, id, latency);
        self.waiting += 1;
        if self.waiting >= HANDED_OVER {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        self.waiting = 0;
        for (_, (of, edges)) in self.edges.drain() {
            self.recorder.edges(of, edges);
        }
    }
}

/// A record that a row is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    /// Which of the inputs it is of.
    input: usize,
    id: i64,
    latency: i64,
}

impl Summarize for LoggedFrames {
    type Row = Vec<Record>;
    type Summary = i64;

    fn rows(&self, values: &[ArrayRef]) -> Result<Vec<Vec<Record>>> {
        let count = values.first().map_or(0, Array::len);
        let row = |_| Vec::with_capacity(self.inputs.len());
        let mut rows: Vec<Vec<Record>> = (0..count).map(row).collect();
        for (number, input) in self.inputs.iter().enumerate() {
            let ids = wide_ids(column(values, input.id_argument)?)?;
            let latency = Latency::new(values, &input.latency_arguments)?;
            for (row, id) in ids.iter().enumerate() {
                rows[row].extend(id.map(|id| Record {
                    input: number,
                    id,
                    latency: latency.latency_of(row),
                }));
            }
        }
        Ok(rows)
    }

    fn summarize(
        &mut self,
        made: Made,
        rows: &[&Vec<Record>],
        parts: &[i64],
    ) -> Result<Option<i64>> {
        if parts.is_empty() && rows.iter().all(|row| row.is_empty()) {
            return Ok(None);
        }
        let (window, operator_id) = self.place(made)?;
        let worker_id = self.recorder.worker_id();
        let frames = &self.frames;
        let output =
            self.ids[made.number()].next(|ids| frames.add_single_rows(worker_id, operator_id, ids));
        let records = rows.iter().copied().flatten();
        for record in records {
            let input = record.input;
            self.edge(
                window,
                operator_id,
                output,
                Some(input),
                (record.id, record.latency),
            );
        }
        for part in parts {
            self.edge(window, operator_id, output, None, (*part, 0));
        }
        Ok(Some(output))
    }

    fn value(frame: Option<i64>) -> Result<ScalarValue> {
        Ok(ScalarValue::Int64(frame))
    }

    fn finish(&mut self) {
        self.hand_over();
    }
}
