//! The queues between the inputs and the outputs of an exchange.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::DataFusionError;
use parking_lot::Mutex;

use super::run::Run;

/// What waits in a queue.
pub(super) enum Entry {
    /// A batch, and the bytes that are reserved for it.
    Batch(RecordBatch, usize),
    /// Batches on disk. More may be appended until it is taken out of the queue.
    Run(Arc<Run>),
    /// An input has failed.
    Failed(Arc<DataFusionError>),
}

/// Queues that share a gate: senders to any of them wait while none is hungry.
///
/// A queue is hungry if it is empty, its receiver is there, and some sender has not ended. So a receiver
/// that waits has opened the gate for all senders: no sender waits for it while it waits for them.
pub(super) struct Queues(Mutex<State>);

struct State {
    queues: Vec<Queue>,
    /// How many queues are hungry.
    hungry: usize,
    /// The senders that wait at the gate.
    blocked: Vec<Waker>,
}

struct Queue {
    entries: VecDeque<Entry>,
    /// Senders that have not ended.
    senders: usize,
    has_receiver: bool,
    /// The receiver still reads a run that it has taken out.
    reads_run: bool,
    /// The receiver, while it waits.
    waiting: Option<Waker>,
}

impl Queue {
    fn is_hungry(&self) -> bool {
        self.entries.is_empty() && self.has_receiver && self.senders > 0 && !self.reads_run
    }
}

/// Tasks to be woken once the lock is released.
#[must_use = "they wait until they are woken"]
#[derive(Default)]
struct Wake(Vec<Waker>);

impl Wake {
    fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

impl State {
    /// Changes a queue; opens the gate if that makes a queue hungry.
    fn change<T>(&mut self, queue: usize, change: impl FnOnce(&mut Queue) -> T) -> (T, Wake) {
        let queue = &mut self.queues[queue];
        let before = queue.is_hungry();
        let changed = change(queue);
        let mut wake = Wake::default();
        match (before, queue.is_hungry()) {
            (false, true) => {
                self.hungry += 1;
                wake.0 = std::mem::take(&mut self.blocked);
            }
            (true, false) => self.hungry -= 1,
            _ => {}
        }
        (changed, wake)
    }
}

impl Queues {
    /// So many queues with so many senders each.
    pub(super) fn new(queues: usize, senders: usize) -> Self {
        let queue = || Queue {
            entries: VecDeque::new(),
            senders,
            has_receiver: true,
            reads_run: false,
            waiting: None,
        };
        Self(Mutex::new(State {
            queues: std::iter::repeat_with(queue).take(queues).collect(),
            hungry: if senders > 0 { queues } else { 0 },
            blocked: Vec::new(),
        }))
    }

    /// Waits until a queue is hungry, or the receiver of `queue` is gone.
    pub(super) async fn gate(&self, queue: usize) {
        poll_fn(|cx| {
            let mut state = self.0.lock();
            if state.hungry > 0 || !state.queues[queue].has_receiver {
                return Poll::Ready(());
            }
            if !state
                .blocked
                .iter()
                .any(|other| other.will_wake(cx.waker()))
            {
                state.blocked.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Puts an entry into a queue, whether or not the gate is open. Gives it back if the receiver is gone.
    pub(super) fn push(&self, queue: usize, entry: Entry) -> Result<(), Entry> {
        let mut state = self.0.lock();
        if !state.queues[queue].has_receiver {
            return Err(entry);
        }
        let (waiting, wake) = state.change(queue, |queue| {
            queue.entries.push_back(entry);
            queue.waiting.take()
        });
        drop(state);
        wake.wake();
        if let Some(receiver) = waiting {
            receiver.wake();
        }
        Ok(())
    }

    /// The run that is last in a queue, to append to it.
    pub(super) fn last_run(&self, queue: usize) -> Option<Arc<Run>> {
        match self.0.lock().queues[queue].entries.back() {
            Some(Entry::Run(run)) => Some(Arc::clone(run)),
            _ => None,
        }
    }

    /// A sender of a queue has ended.
    pub(super) fn sender_ended(&self, queue: usize) {
        let (waiting, wake) = self.0.lock().change(queue, |queue| {
            queue.senders -= 1;
            match queue.senders {
                0 => queue.waiting.take(),
                _ => None,
            }
        });
        wake.wake();
        if let Some(receiver) = waiting {
            receiver.wake();
        }
    }

    /// The first entry of a queue; `None` if there is none and all senders have ended. The receiver has
    /// read the run that it took before.
    pub(super) fn poll_pop(&self, queue: usize, cx: &mut Context<'_>) -> Poll<Option<Entry>> {
        let mut state = self.0.lock();
        let (popped, wake) = state.change(queue, |queue| {
            let entry = queue.entries.pop_front();
            queue.reads_run = matches!(entry, Some(Entry::Run(_)));
            if entry.is_none() && queue.senders > 0 {
                queue.waiting = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(entry)
        });
        drop(state);
        wake.wake();
        popped
    }

    /// The receiver of a queue is gone. Gives the bytes that were reserved for its batches.
    pub(super) fn receiver_gone(&self, queue: usize) -> usize {
        let mut state = self.0.lock();
        let (entries, _) = state.change(queue, |queue| {
            queue.has_receiver = false;
            queue.waiting = None;
            std::mem::take(&mut queue.entries)
        });
        // Those of this queue have to end, and the others ask again.
        let blocked = Wake(std::mem::take(&mut state.blocked));
        drop(state);
        blocked.wake();
        let bytes = entries.iter().map(|entry| match entry {
            Entry::Batch(_, bytes) => *bytes,
            Entry::Run(_) | Entry::Failed(_) => 0,
        });
        bytes.sum()
    }
}
