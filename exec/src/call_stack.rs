//! Where on this thread the plan is being executed: which call of which operator is inside which.
//!
//! Every instrumented stream enters its [`Position`] while it is polled. Operators nest on one
//! thread exactly as they call each other, so the innermost position is the operator whose code
//! runs, and the time of the positions inside it is not its self time. An exchange polls its input from
//! a task of its own: there the nesting starts anew, and so does the fragment.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use skewer_profiling::ticks::Ticks;

use crate::thread_use::ThreadUse;

/// An operator's place in the plan and the partition it works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The fragment the operator belongs to.
    pub fragment_id: i64,
    /// The operator's number, in `sys.operators`.
    pub operator_id: i64,
    /// The partition of the operator's output.
    pub partition: i64,
}

/// What the nested calls of a call added up to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NestedTime {
    /// Ticks in the operators that were called.
    pub ticks: u64,
    /// The part of `ticks` that was spent in other fragments: an exchange may poll its input in
    /// its own task.
    pub in_other_fragments: u64,
    /// Rows they returned.
    pub rows: u64,
    /// What the thread took of its processor in the tasks of other fragments.
    pub elsewhere: ThreadUse,
}

/// Learns of the nested calls of a call while that is under way.
pub trait NestedCalls: Send + Sync {
    /// One begins.
    fn nested_began(&self, at: Ticks);
    /// It has ended; all that have ended add up to `nested`.
    fn nested_ended(&self, nested: NestedTime);
}

/// A call that is under way.
struct Call {
    position: Position,
    nested: NestedTime,
    began: Ticks,
    stream: StreamClock,
    observer: Option<Arc<dyn NestedCalls>>,
}

/// A stream of an operator, one partition's, and what it has taken before the call under way.
#[derive(Debug, Clone, Copy)]
pub struct StreamClock {
    /// Tells it from all other streams of the process.
    pub number: u64,
    /// The operator's self time in the calls before, in ticks.
    pub self_before: u64,
}

impl StreamClock {
    /// A stream that has taken nothing yet.
    pub fn begin() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self {
            number: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            self_before: 0,
        }
    }
}

thread_local! {
    static STACK: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
}

/// The innermost position on this thread, or `None` outside every instrumented operator.
pub fn current() -> Option<Position> {
    STACK.with_borrow(|stack| stack.last().map(|call| call.position))
}

/// Whether a call of an operator of a fragment would begin a task: no call of the same fragment is under way.
pub(crate) fn begins_task(fragment_id: i64) -> bool {
    current().is_none_or(|caller| caller.fragment_id != fragment_id)
}

/// The innermost position on this thread; one of no operator outside all of them.
pub(crate) fn here() -> Position {
    current().unwrap_or(Position {
        fragment_id: -1,
        operator_id: -1,
        partition: -1,
    })
}

/// The innermost operator's stream: its number, and the ticks that the operator has spent in itself
/// until now. 0 and 0 outside every instrumented operator.
pub fn self_ticks() -> (u64, u64) {
    STACK.with_borrow(|stack| {
        let Some(call) = stack.last() else {
            return (0, 0);
        };
        let in_this_call = Ticks::now().since(call.began);
        let self_ticks = call.stream.self_before + in_this_call.saturating_sub(call.nested.ticks);
        (call.stream.number, self_ticks)
    })
}

/// A position being inside of which is left when this is dropped, also by a panic.
#[derive(Debug)]
pub struct CallGuard {
    depth: usize,
}

/// Enters `position` on this thread with a call of `stream` that began at `began`.
pub fn enter(position: Position, began: Ticks, stream: StreamClock) -> CallGuard {
    enter_call(position, began, stream, None)
}

/// The same; `observer` learns of the nested calls of the call.
pub fn enter_observed(
    position: Position,
    began: Ticks,
    stream: StreamClock,
    observer: Arc<dyn NestedCalls>,
) -> CallGuard {
    enter_call(position, began, stream, Some(observer))
}

fn enter_call(
    position: Position,
    began: Ticks,
    stream: StreamClock,
    observer: Option<Arc<dyn NestedCalls>>,
) -> CallGuard {
    STACK.with_borrow_mut(|stack| {
        let caller = stack.last().and_then(|caller| caller.observer.as_ref());
        if let Some(caller) = caller {
            caller.nested_began(began);
        }
        stack.push(Call {
            position,
            nested: NestedTime::default(),
            began,
            stream,
            observer,
        });
        CallGuard { depth: stack.len() }
    })
}

impl CallGuard {
    /// Leaves the position and tells its caller that the call took `ticks` and returned `rows`.
    /// Returns what its nested calls added up to.
    pub fn leave(self, ticks: u64, rows: u64) -> NestedTime {
        self.leave_task(ticks, rows, ThreadUse::default())
    }

    /// The same for a call that begins a task, in which the thread took so much of its processor.
    pub fn leave_task(self, ticks: u64, rows: u64, used: ThreadUse) -> NestedTime {
        STACK.with_borrow_mut(|stack| {
            let Some(call) = stack.get(self.depth - 1) else {
                return NestedTime::default();
            };
            let (position, nested) = (call.position, call.nested);
            let caller = self.depth.checked_sub(2).and_then(|i| stack.get_mut(i));
            if let Some(caller) = caller {
                let outer = &mut caller.nested;
                outer.ticks += ticks;
                let (ticks_elsewhere, used_elsewhere) =
                    if caller.position.fragment_id == position.fragment_id {
                        (nested.in_other_fragments, nested.elsewhere)
                    } else {
                        (ticks, used)
                    };
                outer.in_other_fragments += ticks_elsewhere;
                outer.elsewhere += used_elsewhere;
                outer.rows += rows;
                if let Some(observer) = &caller.observer {
                    observer.nested_ended(*outer);
                }
            }
            nested
        })
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        STACK.with_borrow_mut(|stack| stack.truncate(self.depth - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position_of(operator_id: i64) -> Position {
        Position {
            fragment_id: 0,
            operator_id,
            partition: 0,
        }
    }

    fn enter(position: Position) -> CallGuard {
        super::enter(position, Ticks::now(), StreamClock::begin())
    }

    #[test]
    fn the_self_time_of_an_operator_is_that_of_all_its_calls_without_nested_calls() {
        let began = Ticks::now();
        let stream = StreamClock {
            self_before: 1_000,
            ..StreamClock::begin()
        };
        let outer = super::enter(position_of(1), began, stream);
        assert!(self_ticks().1 >= 1_000);
        let inner = enter(position_of(2));
        assert_ne!(self_ticks().0, stream.number);
        inner.leave(u64::MAX / 2, 0);
        assert_eq!(self_ticks(), (stream.number, 1_000));
        outer.leave(0, 0);
        assert_eq!(self_ticks(), (0, 0));
    }

    #[test]
    fn time_inside_a_call_is_reported_to_its_caller_only() {
        let outer = enter(position_of(1));
        let middle = enter(position_of(2));
        let inner = enter(position_of(3));
        assert_eq!(current(), Some(position_of(3)));
        inner.leave(5, 10);
        assert_eq!(current(), Some(position_of(2)));
        let nested = middle.leave(8, 4);
        assert_eq!((nested.ticks, nested.rows), (5, 10));
        let nested = outer.leave(9, 4);
        assert_eq!((nested.ticks, nested.rows), (8, 4));
        assert_eq!(nested.in_other_fragments, 0);
        assert_eq!(current(), None);
    }

    #[test]
    fn time_in_another_fragment_is_told_apart_all_the_way_up() {
        let outer = enter(position_of(1));
        let middle = enter(position_of(2));
        let foreign = enter(Position {
            fragment_id: 1,
            ..position_of(3)
        });
        let used = ThreadUse {
            cpu_ns: 3,
            ..ThreadUse::default()
        };
        foreign.leave_task(5, 10, used);
        middle.leave(8, 4);
        let nested = outer.leave(9, 4);
        assert_eq!(nested.elsewhere, used);
        assert_eq!(nested.in_other_fragments, 5);
        assert_eq!(nested.ticks, 8);
    }

    #[test]
    fn a_panic_leaves_the_position() {
        let result = std::panic::catch_unwind(|| {
            let _outer = enter(position_of(1));
            let _inner = enter(position_of(2));
            panic!("in an operator");
        });
        assert!(result.is_err());
        assert_eq!(current(), None);
    }
}
