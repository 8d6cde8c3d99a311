//! What a stream of an operator did so far, which others may read while it runs.
//!
//! A query may end in the middle of a call that takes seconds, as when it is cancelled: what the call took
//! until then counts, too.

use parking_lot::Mutex;
use skewer_machine::waiting;
use skewer_profiling::ticks::{Scale, Ticks};
use skewer_profiling::{OperatorStats, StreamRecord, TaskStats, Timeline, UnfinishedStream};

use crate::call_stack::{NestedCalls, NestedTime, Position};
use crate::thread_use::ThreadUse;

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
    /// When the last nested call ended, or else the call itself began.
    works_since: Ticks,
}

impl Running {
    /// Adds the part of the call that is over.
    fn add_to(&self, totals: &mut Totals, now: Ticks) {
        let mut nested = self.nested;
        if let Some(began) = self.nested_began {
            nested.ticks += now.since(began);
        }
        totals.add_call(self.began, now, nested);
    }
}

/// Sums over the calls of a stream that began its task.
#[derive(Debug, Clone, Copy)]
struct TaskTotals {
    began: Ticks,
    ended: Ticks,
    ticks: u64,
    /// `None` where the system does not tell.
    used: Option<ThreadUse>,
}

#[derive(Debug)]
struct State {
    totals: Totals,
    running: Option<Running>,
    timeline: Option<Timeline>,
    task: Option<TaskTotals>,
}

/// A call that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndedCall {
    pub(crate) began: Ticks,
    pub(crate) ended: Ticks,
    pub(crate) nested: NestedTime,
    pub(crate) rows: i64,
    pub(crate) bytes: i64,
    /// If it began a task: what the thread took meanwhile, where the system tells.
    pub(crate) task: Option<Option<ThreadUse>>,
}

/// The totals of one stream.
#[derive(Debug)]
pub(crate) struct StreamTotals {
    position: Position,
    /// An exchange reads its input in other tasks: what comes out of it went into it.
    is_exchange: bool,
    /// Whether context switches are counted.
    counts_switches: bool,
    state: Mutex<State>,
}

impl StreamTotals {
    pub(crate) fn new(
        position: Position,
        is_exchange: bool,
        counts_switches: bool,
        totals: Totals,
        timeline: Option<Timeline>,
    ) -> Self {
        Self {
            position,
            is_exchange,
            counts_switches,
            state: Mutex::new(State {
                totals,
                running: None,
                timeline,
                task: None,
            }),
        }
    }

    /// A call begins, after waits of so many ticks for input and for the consumer. Returns the operator's self
    /// ticks in the calls before.
    pub(crate) fn begin(&self, began: Ticks, input_wait: u64, output_wait: u64) -> u64 {
        let mut state = self.state.lock();
        state.totals.input_wait += input_wait;
        state.totals.output_wait += output_wait;
        if let Some(timeline) = &mut state.timeline {
            timeline.add_wait(began.before(input_wait), began);
        }
        state.running = Some(Running {
            began,
            nested: NestedTime::default(),
            nested_began: None,
            works_since: began,
        });
        state.totals.self_ticks
    }

    /// The call has ended.
    pub(crate) fn end(&self, call: EndedCall) {
        let EndedCall {
            began,
            ended,
            nested,
            rows,
            bytes,
            task,
        } = call;
        let state = &mut *self.state.lock();
        let running = state.running.take();
        state.totals.add_call(began, ended, nested);
        state.totals.rows_out += rows;
        state.totals.bytes_out += bytes;
        if let Some(timeline) = &mut state.timeline {
            let since = running.map_or(began, |running| running.works_since);
            timeline.add_work(since, ended);
            timeline.add_call(ended, rows.unsigned_abs());
        }
        if let Some(used) = task {
            let used = used.map(|used| used.without(nested.elsewhere));
            let ticks = ended.since(began).saturating_sub(nested.in_other_fragments);
            match &mut state.task {
                None => {
                    state.task = Some(TaskTotals {
                        began,
                        ended,
                        ticks,
                        used,
                    });
                }
                Some(task) => {
                    task.ended = ended;
                    task.ticks += ticks;
                    if let (Some(sum), Some(used)) = (&mut task.used, used) {
                        *sum += used;
                    }
                }
            }
        }
    }

    /// All calls until now, with the one under way, and when the operator worked.
    fn until_now(&self) -> (Totals, Option<Timeline>, Option<TaskTotals>) {
        let state = self.state.lock();
        let (mut totals, mut timeline) = (state.totals, state.timeline.clone());
        if let Some(running) = state.running {
            let now = Ticks::now();
            running.add_to(&mut totals, now);
            if let Some(timeline) = &mut timeline {
                if running.nested_began.is_none() {
                    timeline.add_work(running.works_since, now);
                }
                timeline.add_call(now, 0);
            }
        }
        (totals, timeline, state.task)
    }

    /// The totals of all calls until now.
    pub(crate) fn totals(&self) -> Totals {
        let state = self.state.lock();
        let mut totals = state.totals;
        if let Some(running) = state.running {
            running.add_to(&mut totals, Ticks::now());
        }
        totals
    }

    /// All calls until now, as rows of schema `sys`.
    pub(crate) fn record(&self, scale: Scale) -> StreamRecord {
        let (totals, timeline, task) = self.until_now();
        StreamRecord {
            stats: self.stats_of(totals, scale),
            timeline: timeline.map(|timeline| timeline.in_ns(scale)),
            task: task.map(|task| self.task_stats(task, scale)),
        }
    }

    fn task_stats(&self, task: TaskTotals, scale: Scale) -> TaskStats {
        let wall_ns = scale.ns(task.ticks);
        let switches = task.used.filter(|_| self.counts_switches);
        // The thread's times are read a little before and after the clock.
        let cpu_ns = task.used.map(|used| used.cpu_ns.cast_signed().min(wall_ns));
        let idle_ns = wall_ns - cpu_ns.unwrap_or(0);
        let used = task.used.filter(|_| waiting::is_told());
        let waited =
            |of: fn(ThreadUse) -> u64| used.map(|used| of(used).cast_signed().min(idle_ns));
        TaskStats {
            fragment_id: self.position.fragment_id,
            partition: self.position.partition,
            started_at: scale.wall_ns(task.began),
            ended_at: scale.wall_ns(task.ended),
            wall_ns,
            cpu_ns,
            voluntary_switches: switches.map(|used| used.voluntary.cast_signed()),
            involuntary_switches: switches.map(|used| used.involuntary.cast_signed()),
            runqueue_ns: waited(|used| used.runqueue_ns),
            throttled_ns: waited(|used| used.throttled_ns),
        }
    }

    fn stats_of(&self, totals: Totals, scale: Scale) -> OperatorStats {
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
        let state = &mut *self.state.lock();
        if let Some(running) = &mut state.running {
            running.nested_began = Some(at);
            if let Some(timeline) = &mut state.timeline {
                timeline.add_work(running.works_since, at);
            }
        }
    }

    fn nested_ended(&self, nested: NestedTime) {
        if let Some(running) = &mut self.state.lock().running {
            let ticks = nested.ticks.saturating_sub(running.nested.ticks);
            if let Some(began) = running.nested_began.take() {
                running.works_since = began.after(ticks);
            }
            running.nested = nested;
        }
    }
}

impl UnfinishedStream for StreamTotals {
    fn so_far(&self, scale: Scale) -> StreamRecord {
        self.record(scale)
    }

    fn stats_so_far(&self, scale: Scale) -> OperatorStats {
        self.stats_of(self.totals(), scale)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::call_stack::{self, StreamClock};
    use skewer_profiling::{Level, Recorder, RecorderLimits};

    fn timeline() -> Option<Timeline> {
        let limits = RecorderLimits::default();
        let recorder = Recorder::new(1, Level::Counters, 1.0, limits);
        Timeline::new(recorder.timeline_start(), Level::Counters)
    }

    #[test]
    fn a_call_under_way_counts_without_the_call_inside_it() {
        let totals = |operator_id| {
            let position = Position {
                fragment_id: 0,
                operator_id,
                partition: 0,
            };
            let totals = StreamTotals::new(position, false, false, Totals::default(), timeline());
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
        let before = outer.record(Scale::now()).stats;
        std::thread::sleep(Duration::from_millis(20));
        let (running_inner, running) = (
            inner.record(Scale::now()).stats,
            outer.record(Scale::now()).stats,
        );
        assert!(running_inner.self_ns >= 20_000_000, "{running_inner:?}");
        assert!(before.self_ns >= 2_000_000, "{before:?}");
        assert!(running.self_ns < before.self_ns + 10_000_000, "{running:?}");
        assert!(running.total_ns >= 22_000_000, "{running:?}");
        assert_eq!((running.calls, running.rows_in), (1, 0));
        let ended = Ticks::now();
        let nested = inner_call.leave(ended.since(began), 7);
        inner.end(EndedCall {
            began,
            ended,
            nested,
            rows: 7,
            bytes: 70,
            task: None,
        });
        assert_eq!(
            (
                outer.record(Scale::now()).stats.rows_in,
                inner.record(Scale::now()).stats.rows_out
            ),
            (7, 7)
        );
        outer_call.leave(0, 0);
    }
}
