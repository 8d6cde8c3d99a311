//! What one partition of a timed evaluation does with each batch.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNode;
use datafusion::functions::all_default_functions;
use datafusion::functions_nested::all_default_nested_functions;
use datafusion::logical_expr::ScalarUDF;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use skewer_profiling::ticks::Stopwatch;
use skewer_profiling::{LatencyChunk, LatencyKind, Method, Recorder};

use super::latency_groups::rows_found_by;
use super::probe_thread::{ProbeThread, values_of};
use super::{LatencyColumn, TimedExpressions, Timing, leaves_rows_out};
use crate::call_stack;
use crate::chunked_timing::{ChunkTimer, EvaluateRows, Run, error_of_one};
use crate::int32_row_id::widened;
use crate::interruptible::Interruptible;
use crate::long_values::{LongRow, LongValues};
use crate::outlier_confirmation::confirm_slow_rows;
use crate::preemption::ThreadClock;
use crate::record_column::{self, Records};
use crate::row_function::with_row_times;
use skewer_compat::operators::batch_bytes::estimated_array_bytes;
use skewer_compat::operators::scheduling::check_cancelled;

/// Chunks are put together again until they took this long, and then handed on: copying values
/// that were expensive to make is wasted, while very small batches cost the operators above.
const PIECE_NS: f64 = 1_000_000.0;

/// … or their values have so many bytes: a few long lists are as good as a batch of numbers. A chunk of
/// so many is handed on as it is, also after a short one, for whose sake it would be copied.
const PIECE_BYTES: usize = 64 << 10;

/// One partition's evaluation.
pub(super) struct Evaluation {
    schema: SchemaRef,
    timed: Arc<TimedExpressions>,
    how: Timing,
    recorder: Arc<Recorder>,
    timer: ChunkTimer,
    long_values: LongValues,
    /// A function has failed when it was called again for its time.
    fails_again: bool,
    /// Evaluating no rows says what evaluating some takes beside them.
    takes_none: bool,
}

/// Values of the expressions for some rows of a batch.
struct Piece {
    rows: Range<usize>,
    values: Vec<ArrayRef>,
}

impl Piece {
    /// About how many bytes the values have.
    fn bytes(&self) -> usize {
        let values = self.values.iter();
        values.map(|values| estimated_array_bytes(values)).sum()
    }
}

impl Evaluation {
    pub(super) fn new(
        schema: SchemaRef,
        timed: Arc<TimedExpressions>,
        how: Timing,
        recorder: Arc<Recorder>,
    ) -> Self {
        Self {
            schema,
            long_values: LongValues::read_by(&timed.expressions),
            takes_none: can_take_none(&timed.expressions),
            timed,
            how,
            recorder,
            timer: ChunkTimer::default(),
            fails_again: false,
        }
    }

    /// Returns the batch with its values and latencies, in as many pieces as it was evaluated in.
    pub(super) fn run(&mut self, batch: &RecordBatch) -> Result<Vec<RecordBatch>> {
        let rows = batch.num_rows();
        let (pieces, runs) = match self.how {
            Timing::ByRowFunctions => self.by_row_functions(batch)?,
            Timing::InChunks => {
                let alone = self.long_values.far_longer_than_the_mean(batch);
                self.in_chunks(batch, &alone, true)?
            }
            Timing::OneByOne => {
                let all: Vec<LongRow> = (0..rows).map(LongRow::long).collect();
                self.in_chunks(batch, &all, false)?
            }
        };
        let started = Instant::now();
        self.log(batch, &runs)?;
        let replayed = Duration::from_nanos(self.timer.take_replayed_ns() as u64);
        self.recorder.overhead(started.elapsed() + replayed);
        let latency = self.latency_column(batch, &runs)?;
        let with_values = |piece: Piece| {
            let Range { start, end } = piece.rows;
            let mut columns = batch.slice(start, end - start).columns().to_vec();
            columns.extend(piece.values);
            let latency = latency.slice(start, end - start);
            match self.timed.latency {
                LatencyColumn::New { .. } => columns.push(latency),
                LatencyColumn::Packed(column) => columns[column] = latency,
            }
            Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
        };
        pieces.into_iter().map(with_values).collect()
    }

    /// Evaluates the batch as it is while the row functions take the time of each row; what
    /// the rest of the expressions takes is shared evenly.
    fn by_row_functions(&mut self, batch: &RecordBatch) -> Result<(Vec<Piece>, Vec<Run>)> {
        let rows = batch.num_rows();
        let mut clock = ThreadClock::of_this_thread();
        let started = Stopwatch::start();
        let (values, times) = with_row_times(rows, || self.evaluate(batch));
        let took = started.elapsed();
        let lost = took.saturating_sub(clock.since(started));
        let doubtful = clock.doubtful().as_nanos() as f64;
        let total = took.as_nanos() as f64;
        let values = values?;
        let runs = match times {
            Some(mut times) => {
                let stalls = self.confirm_slow_rows(batch, &mut times, lost);
                let total = total - stalls;
                let rest = (total - times.iter().sum::<f64>()).max(0.0);
                let even = rest / rows.max(1) as f64;
                let lost = (lost.as_nanos() as f64 - stalls).max(0.0) + doubtful;
                let each = times.into_iter().map(|ns| Run {
                    rows: 1,
                    ps: ((ns + even) * 1000.0) as u64,
                    error_ps: (error_of_one(ns, rest - even + lost) * 1000.0) as u64,
                    method: Method::Measured,
                });
                each.collect()
            }
            None => {
                let each = total / rows.max(1) as f64;
                let (method, error) = match rows {
                    // It has all of the time.
                    1 => {
                        let lost = lost.as_nanos() as f64 + doubtful;
                        (Method::Measured, error_of_one(total, lost))
                    }
                    _ => (Method::Apportioned, total - each),
                };
                vec![Run {
                    rows,
                    ps: (each * 1000.0) as u64,
                    error_ps: (error * 1000.0) as u64,
                    method,
                }]
            }
        };
        let all = Piece {
            rows: 0..rows,
            values,
        };
        Ok((vec![all], runs))
    }

    /// Calls the functions again for rows that took far longer than the others, while the thread
    /// had `lost` its processor for some time. Returns the nanoseconds that proved to be nobody's.
    fn confirm_slow_rows(&mut self, batch: &RecordBatch, times: &mut [f64], lost: Duration) -> f64 {
        let started = Instant::now();
        let mut confirmed = false;
        let mut fails = self.fails_again;
        let mut again = |row: usize| {
            if fails {
                return f64::INFINITY;
            }
            confirmed = true;
            let one = batch.slice(row, 1);
            let (values, again) = with_row_times(1, || self.evaluate(&one));
            fails = values.is_err();
            // A function that fails this time, or was not called, says nothing.
            match (values, again.as_deref()) {
                (Ok(_), Some([again])) => *again,
                _ => f64::INFINITY,
            }
        };
        let stalls = confirm_slow_rows(times, lost.as_nanos() as f64, &mut again);
        self.fails_again = fails;
        if confirmed {
            self.recorder.overhead(started.elapsed());
        }
        stalls
    }

    fn in_chunks(
        &mut self,
        batch: &RecordBatch,
        alone: &[LongRow],
        replayable: bool,
    ) -> Result<(Vec<Piece>, Vec<Run>)> {
        let ids = self.timed.records.iter();
        let ids = ids.map(|records| widened(batch.column(records.id_column)));
        let ids: Vec<ArrayRef> = ids.collect();
        let mut evaluator = BatchEvaluator {
            batch,
            records: ids.iter().map(Records::of_column).collect::<Result<_>>()?,
            expressions: &self.timed.expressions,
            long_values: &self.long_values,
            time: ThreadClock::of_this_thread(),
            chunks: vec![],
            probe_thread: None,
            takes_none: self.takes_none,
        };
        let runs = self
            .timer
            .time(batch.num_rows(), alone, replayable, &mut evaluator)?;
        let pieces = joined(evaluator.chunks, self.timed.expressions.len())?;
        Ok((pieces, runs))
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        values_of(&self.timed.expressions, batch)
    }

    fn latency_column(&self, batch: &RecordBatch, runs: &[Run]) -> Result<ArrayRef> {
        let earlier: Option<&Int64Array> = match self.timed.latency {
            LatencyColumn::Packed(column) => {
                let runs = runs.iter().map(|run| (run.rows, run.ps as i64));
                return record_column::with_latencies(batch.column(column), runs);
            }
            LatencyColumn::New { earlier, .. } => {
                earlier.map(|column| batch.column(column).as_primitive())
            }
        };
        let mut latency: Vec<i64> = Vec::with_capacity(batch.num_rows());
        for run in runs {
            let (ps, start) = (run.ps as i64, latency.len());
            match earlier {
                None => latency.extend(std::iter::repeat_n(ps, run.rows)),
                Some(earlier) if earlier.null_count() == 0 => {
                    let earlier = &earlier.values()[start..start + run.rows];
                    latency.extend(earlier.iter().map(|earlier| earlier + ps));
                }
                Some(earlier) => {
                    let rows = start..start + run.rows;
                    latency.extend(rows.map(|row| match earlier.is_valid(row) {
                        true => earlier.value(row) + ps,
                        false => ps,
                    }));
                }
            }
        }
        Ok(Arc::new(Int64Array::from(latency)))
    }

    /// Logs the latency of every record of the batch, under the method it was found by.
    fn log(&self, batch: &RecordBatch, runs: &[Run]) -> Result<()> {
        let Some(position) = call_stack::current() else {
            return Ok(());
        };
        for records in &self.timed.records {
            let ids = widened(batch.column(records.id_column));
            let of_rows = Records::of_column(&ids)?;
            for method in [Method::Apportioned, Method::Measured, Method::Replayed] {
                let (ids, latency, error) = rows_found_by(method, of_rows, runs)?;
                if ids.is_empty() {
                    continue;
                }
                self.recorder.record_latency(LatencyChunk {
                    fragment_id: position.fragment_id,
                    operator_id: position.operator_id,
                    partition: position.partition,
                    table_name: records.source.table_name(),
                    row_ids: ids,
                    latency,
                    kind: LatencyKind::Computation,
                    method,
                    error,
                });
            }
        }
        Ok(())
    }
}

/// Whether evaluating no rows says what evaluating some takes beside the rows: all functions are DataFusion's,
/// as others may not expect to be asked for nothing, and none is left out where no row asks for it.
fn can_take_none(expressions: &[(Arc<dyn PhysicalExpr>, String)]) -> bool {
    static KNOWN: LazyLock<HashMap<String, Arc<ScalarUDF>>> = LazyLock::new(|| {
        let functions = all_default_functions().into_iter();
        let functions = functions.chain(all_default_nested_functions());
        functions
            .map(|function| (function.name().to_owned(), function))
            .collect()
    });
    let is_other = |function: &ScalarFunctionExpr| {
        let function = Interruptible::interrupted(function.fun());
        let known = KNOWN.get(function.name());
        known.is_none_or(|known| known.as_ref() != function)
    };
    expressions.iter().all(|(expression, _)| {
        let other = expression.exists(|node| {
            let function = node.downcast_ref::<ScalarFunctionExpr>();
            Ok(leaves_rows_out(node.as_ref()) || function.is_some_and(is_other))
        });
        matches!(other, Ok(false))
    })
}

/// Puts consecutive chunks, each with the nanoseconds that it took, together to pieces.
fn joined(chunks: Vec<(Piece, f64)>, expressions: usize) -> Result<Vec<Piece>> {
    let chunks = chunks.into_iter();
    let chunks = chunks.map(|(chunk, ns)| (chunk.bytes(), ns, chunk));
    let mut chunks = chunks.peekable();
    let mut pieces = Vec::new();
    while let Some((mut bytes, mut ns, Piece { mut rows, values })) = chunks.next() {
        let mut parts = vec![values];
        while ns < PIECE_NS
            && bytes < PIECE_BYTES
            && let Some((more, next_ns, next)) = chunks.next_if(|(more, ..)| *more < PIECE_BYTES)
        {
            ns += next_ns;
            bytes += more;
            rows.end = next.rows.end;
            parts.push(next.values);
        }
        pieces.push(Piece {
            rows,
            values: concat_parts(parts, expressions)?,
        });
    }
    Ok(pieces)
}

/// Joins the values of consecutive chunks, expression by expression.
fn concat_parts(mut parts: Vec<Vec<ArrayRef>>, expressions: usize) -> Result<Vec<ArrayRef>> {
    if parts.len() == 1 {
        return Ok(parts.remove(0));
    }
    (0..expressions)
        .map(|expression| {
            let arrays: Vec<&dyn Array> =
                parts.iter().map(|part| part[expression].as_ref()).collect();
            Ok(concat(&arrays)?)
        })
        .collect()
}

/// Evaluates rows of one batch under the clock.
struct BatchEvaluator<'a> {
    batch: &'a RecordBatch,
    /// The records that its rows stem from.
    records: Vec<Records<'a>>,
    expressions: &'a [(Arc<dyn PhysicalExpr>, String)],
    long_values: &'a LongValues,
    time: ThreadClock,
    /// The chunks evaluated so far, in order, with the nanoseconds they took.
    chunks: Vec<(Piece, f64)>,
    /// Where rows are evaluated again that may take seconds.
    probe_thread: Option<ProbeThread>,
    takes_none: bool,
}

impl EvaluateRows for BatchEvaluator<'_> {
    fn evaluate(&mut self, rows: Range<usize>, keep: bool) -> Result<f64> {
        check_cancelled()?;
        let slice = self.batch.slice(rows.start, rows.len());
        let started = Stopwatch::start();
        let values = values_of(self.expressions, &slice)?;
        let ns = self.time.since(started).as_nanos() as f64;
        if keep {
            self.chunks.push((Piece { rows, values }, ns));
        }
        Ok(ns)
    }

    fn evaluate_none(&mut self) -> Option<f64> {
        if !self.takes_none {
            return None;
        }
        let none = self.batch.slice(0, 0);
        let started = Stopwatch::start();
        let values = values_of(self.expressions, &none);
        let ns = self.time.since(started).as_nanos() as f64;
        values.is_ok().then_some(ns)
    }

    fn evaluate_within(&mut self, row: usize, patience: Duration) -> Result<Option<f64>> {
        // Simulated time passes on the thread that it is told to.
        if !Stopwatch::start().is_simulated() {
            if self.probe_thread.is_none() {
                self.probe_thread = ProbeThread::start(self.expressions);
            }
            if let Some(probe_thread) = &self.probe_thread {
                let outcome = probe_thread.evaluate_within(self.batch.slice(row, 1), patience);
                if !matches!(outcome, Ok(Some(_))) {
                    self.probe_thread = None;
                }
                // This thread has waited, which is no evaluation's.
                self.time = ThreadClock::of_this_thread();
                return outcome;
            }
        }
        self.evaluate(row..row + 1, false).map(Some)
    }

    fn long_values(&self, row: usize) -> usize {
        self.long_values.length(self.batch, row)
    }

    fn end_of_record(&self, row: usize, limit: usize) -> usize {
        let records = self.records.iter();
        let ends = records.map(|records| row + records.run(row, limit));
        ends.min().unwrap_or(row + 1)
    }

    /// Rounded up to microseconds: most are equal then, and take no room in the log.
    fn doubtful_ns(&self) -> f64 {
        self.time.doubtful().as_nanos().div_ceil(1_000) as f64 * 1_000.0
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ListArray, StringArray};
    use datafusion::arrow::datatypes::Int64Type;
    use datafusion::physical_expr::expressions::col;

    use super::*;

    /// A chunk of one row, a list of so many numbers.
    fn chunk(row: usize, numbers: usize) -> Piece {
        let list = [Some(std::iter::repeat_n(Some(0), numbers))];
        let list = ListArray::from_iter_primitive::<Int64Type, _, _>(list);
        Piece {
            rows: row..row + 1,
            values: vec![Arc::new(list)],
        }
    }

    #[test]
    fn chunks_are_joined_as_long_as_they_are_short_and_were_quick() {
        let half = PIECE_BYTES / size_of::<i64>() / 2;
        let pieces = |lengths: &[usize], ns: f64| {
            let lengths = lengths.iter().enumerate();
            let chunks = lengths.map(|(row, numbers)| (chunk(row, *numbers), ns));
            let pieces = joined(chunks.collect(), 1).unwrap().into_iter();
            let of_pieces = pieces.map(|Piece { rows, values }| {
                assert_eq!(rows.len(), values[0].len());
                rows
            });
            of_pieces.collect::<Vec<_>>()
        };
        let quick = PIECE_NS / 100.0;
        // A long list stays as it is, also after short ones.
        assert_eq!(
            pieces(&[1, 9, 3 * half, 1, half, half, 1], quick),
            [0..2, 2..3, 3..6, 6..7]
        );
        assert_eq!(pieces(&[1, 1, 1], PIECE_NS / 2.0), [0..2, 2..3]);
        assert!(pieces(&[], quick).is_empty());
    }

    #[test]
    fn the_pacer_learns_how_long_the_values_are_that_the_expressions_read() {
        let texts = |lengths: [usize; 3]| -> ArrayRef {
            Arc::new(StringArray::from(
                lengths.map(|length| "x".repeat(length)).to_vec(),
            ))
        };
        let read = texts([10, 50_000, 5_000]);
        let other = texts([90_000, 90_000, 90_000]);
        let batch = RecordBatch::try_from_iter([("other", other), ("read", read)]).unwrap();
        let expression = col("read", &batch.schema()).unwrap();
        let expressions = [(expression, "value".to_owned())];
        let evaluator = BatchEvaluator {
            batch: &batch,
            records: vec![],
            expressions: &expressions,
            long_values: &LongValues::read_by(&expressions),
            time: ThreadClock::of_this_thread(),
            chunks: vec![],
            probe_thread: None,
            takes_none: true,
        };
        let lengths = [0, 1, 2].map(|row| evaluator.long_values(row));
        assert_eq!(lengths, [0, 50_000, 5_000]);
    }
}
