//! That a task is over: its query has ended, or nobody wants it any more.
//!
//! What has been dropped does not always stop: a worker may keep the plan of a task for a while,
//! and with it what feeds the task's partitions. So operators can ask.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The header by which a task finds its end, within the process that runs it.
static HEADER: HeaderName = HeaderName::from_static("skewer-task");

/// The tasks of this process that are not over, by number.
static RUNNING: LazyLock<Mutex<HashMap<u64, TaskEnd>>> = LazyLock::new(Mutex::default);

/// Whether a task is over. Clones are about the same task.
#[derive(Debug, Clone, Default)]
pub struct TaskEnd(Arc<State>);

#[derive(Debug, Default)]
struct State {
    over: AtomicBool,
    ended: Notify,
}

/// A task is over when this is dropped.
#[derive(Debug)]
pub struct RunningTask(u64);

impl TaskEnd {
    /// Whether nobody wants what the task may still do.
    pub fn is_over(&self) -> bool {
        self.0.over.load(Ordering::Acquire)
    }

    /// Returns when the task is over.
    pub async fn ended(&self) {
        loop {
            let ended = self.0.ended.notified();
            if self.is_over() {
                return;
            }
            ended.await;
        }
    }

    fn end(&self) {
        self.0.over.store(true, Ordering::Release);
        self.0.ended.notify_waiters();
    }

    /// A task begins, to which these `headers` are given.
    pub fn begin(headers: &mut HeaderMap) -> RunningTask {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        RUNNING.lock().insert(number, TaskEnd::default());
        headers.insert(HEADER.clone(), HeaderValue::from(number));
        RunningTask(number)
    }

    /// That of the task with these headers.
    pub fn from_headers(headers: &HeaderMap) -> Option<TaskEnd> {
        let number: u64 = headers.get(&HEADER)?.to_str().ok()?.parse().ok()?;
        let running = RUNNING.lock().get(&number).cloned();
        Some(running.unwrap_or_else(|| {
            // One that is not there is over already.
            let over = TaskEnd::default();
            over.end();
            over
        }))
    }
}

impl Drop for RunningTask {
    fn drop(&mut self) {
        if let Some(end) = RUNNING.lock().remove(&self.0) {
            end.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_over_when_its_end_is_dropped_whoever_asks_and_when() {
        let (mut one, mut two) = (HeaderMap::new(), HeaderMap::new());
        let (first, second) = (TaskEnd::begin(&mut one), TaskEnd::begin(&mut two));
        let early = TaskEnd::from_headers(&one).unwrap();
        assert!(!early.is_over());
        drop(first);
        assert!(early.is_over());
        assert!(TaskEnd::from_headers(&one).unwrap().is_over());
        assert!(!TaskEnd::from_headers(&two).unwrap().is_over());
        drop(second);
        assert!(TaskEnd::from_headers(&HeaderMap::new()).is_none());
    }
}
