//! What a stream of an operator did so far, which others may read while it runs.
//!
//! A query may end in the middle of a call that takes seconds, as when it is cancelled: what the call took
//! until then counts, too.

use parking_lot::Mutex;
use skewer_profiling::ticks::{Scale, Ticks};
use skewer_profiling::{OperatorStats, UnfinishedStream};

use crate::call_stack::{NestedCalls, NestedTime, Position};

/// Sums over the calls of a stream; times in ticks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) calls: i64,
    pub(crate) rows_in: i64,
    pub(crate) rows_out: i64,
    pub(crate) bytes_out: i64,
    pub(crate) self_ticks: u64,
    pub(crate) total: u64,
    pub(crate) input_wait: u64,
    pub(crate) output_wait: u64,
    pub(crate) first_call: Option<Ticks>,
    pub(crate) last_call: Option<Ticks>,
}

impl Totals {
    /// Adds a call that took from `began` to `ended`, with its nested calls.
    pub(crate) fn add_call(&mut self, began: Ticks, ended: Ticks, nested: NestedTime) {
        let elapsed = ended.since(began);
        self.calls += 1;
        self.rows_in += nested.rows as i64;
        self.total += elapsed.saturating_sub(nested.in_other_fragments);
        self.self_ticks += elapsed.saturating_sub(nested.ticks);
        self.first_call.get_or_insert(began);
        self.last_call = Some(ended);
    }
}

/// A call under way.
#[derive(Debug, Clone, Copy)]
struct Running {
    began: Ticks,
    /// Its nested calls that have ended.
    nested: NestedTime,
    /// When the nested call began that has not ended.
    nested_began: Option<Ticks>,
}

#[derive(Debug, Default)]
struct State {
    totals: Totals,
    running: Option<Running>,
}

/// The totals of one stream.
#[derive(Debug)]
pub(crate) struct StreamTotals {
    position: Position,
    /// An exchange reads its input in other tasks: what comes out of it went into it.
    is_exchange: bool,
    state: Mutex<State>,
}

impl StreamTotals {
    pub(crate) fn new(position: Position, is_exchange: bool, totals: Totals) -> Self {
        Self {
            position,
            is_exchange,
            state: Mutex::new(State {
                totals,
                running: None,
            }),
        }
    }

    /// A call begins, after waits of so many ticks for input and for the consumer. Returns the operator's self
    /// ticks in the calls before.
    pub(crate) fn begin(&self, began: Ticks, input_wait: u64, output_wait: u64) -> u64 {
        let mut state = self.state.lock();
        state.totals.input_wait += input_wait;
        state.totals.output_wait += output_wait;
        state.running = Some(Running {
            began,
            nested: NestedTime::default(),
            nested_began: None,
        });
        state.totals.self_ticks
    }

    /// The call has ended and returned so many rows and bytes.
    pub(crate) fn end(&self, call: (Ticks, Ticks), nested: NestedTime, rows: i64, bytes: i64) {
        let mut state = self.state.lock();
        state.running = None;
        state.totals.add_call(call.0, call.1, nested);
        state.totals.rows_out += rows;
        state.totals.bytes_out += bytes;
    }

    /// All calls until now, with the one under way.
    pub(crate) fn until_now(&self) -> Totals {
        let state = self.state.lock();
        let mut totals = state.totals;
        if let Some(running) = state.running {
            let now = Ticks::now();
            let mut nested = running.nested;
            if let Some(began) = running.nested_began {
                nested.ticks += now.since(began);
            }
            totals.add_call(running.began, now, nested);
        }
        totals
    }

    /// The same as a row of `sys.operator_stats`.
    pub(crate) fn stats(&self, scale: Scale) -> OperatorStats {
        let totals = self.until_now();
        OperatorStats {
            fragment_id: self.position.fragment_id,
            operator_id: self.position.operator_id,
            partition: self.position.partition,
            calls: totals.calls,
            rows_in: match self.is_exchange {
                false => totals.rows_in,
                true => totals.rows_out,
            },
            rows_out: totals.rows_out,
            bytes_out: totals.bytes_out,
            self_ns: scale.ns(totals.self_ticks),
            total_ns: scale.ns(totals.total),
            input_wait_ns: scale.ns(totals.input_wait),
            output_wait_ns: scale.ns(totals.output_wait),
            peak_memory_bytes: 0,
            spilled_bytes: 0,
            first_call_at: totals.first_call.map(|at| scale.wall_ns(at)),
            last_call_at: totals.last_call.map(|at| scale.wall_ns(at)),
        }
    }
}

impl NestedCalls for StreamTotals {
    fn nested_began(&self, at: Ticks) {
        if let Some(running) = &mut self.state.lock().running {
            running.nested_began = Some(at);
        }
    }

    fn nested_ended(&self, nested: NestedTime) {
        if let Some(running) = &mut self.state.lock().running {
            running.nested_began = None;
            running.nested = nested;
        }
    }
}

impl UnfinishedStream for StreamTotals {
    fn so_far(&self, scale: Scale) -> OperatorStats {
        self.stats(scale)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::call_stack::{self, StreamClock};

    #[test]
    fn a_call_under_way_counts_without_the_call_inside_it() {
        let totals = |operator_id| {
            let position = Position {
                fragment_id: 0,
                operator_id,
                partition: 0,
            };
            let totals = StreamTotals::new(position, false, Totals::default());
            (position, Arc::new(totals))
        };
        let ((outer_at, outer), (inner_at, inner)) = (totals(1), totals(2));
        let began = Ticks::now();
        outer.begin(began, 0, 0);
        let outer_call = call_stack::enter_observed(
            outer_at,
            began,
            StreamClock::begin(),
            Arc::clone(&outer) as _,
        );
        std::thread::sleep(Duration::from_millis(2));
        let began = Ticks::now();
        inner.begin(began, 0, 0);
        let inner_call = call_stack::enter_observed(
            inner_at,
            began,
            StreamClock::begin(),
            Arc::clone(&inner) as _,
        );
        let before = outer.stats(Scale::now());
        std::thread::sleep(Duration::from_millis(20));
        let (running_inner, running) = (inner.stats(Scale::now()), outer.stats(Scale::now()));
        assert!(running_inner.self_ns >= 20_000_000, "{running_inner:?}");
        assert!(before.self_ns >= 2_000_000, "{before:?}");
        assert!(running.self_ns < before.self_ns + 10_000_000, "{running:?}");
        assert!(running.total_ns >= 22_000_000, "{running:?}");
        assert_eq!((running.calls, running.rows_in), (1, 0));
        let ended = Ticks::now();
        let nested = inner_call.leave(ended.since(began), 7);
        inner.end((began, ended), nested, 7, 70);
        assert_eq!(
            (
                outer.stats(Scale::now()).rows_in,
                inner.stats(Scale::now()).rows_out
            ),
            (7, 7)
        );
        outer_call.leave(0, 0);
    }
}
