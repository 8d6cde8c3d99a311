//! Evaluating rows on a thread of its own, so that nobody has to wait for one that takes seconds.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::common::{Result, exec_err};
use datafusion::physical_expr::PhysicalExpr;
use skewer_profiling::ticks::Stopwatch;
use tokio::runtime::Handle;

use crate::preemption::ThreadClock;

/// Bytes of stack, as the threads of the database have: expressions may be deep.
const STACK: usize = 256 << 20;

/// The expressions' values for the rows of a batch.
pub(super) fn values_of(
    expressions: &[(Arc<dyn PhysicalExpr>, String)],
    rows: &RecordBatch,
) -> Result<Vec<ArrayRef>> {
    expressions
        .iter()
        .map(|(expression, _)| expression.evaluate(rows)?.into_array(rows.num_rows()))
        .collect()
}

/// A thread that evaluates what it is given, and ends when it is dropped: after the evaluation that
/// it is at, which nothing can end.
#[derive(Debug)]
pub(super) struct ProbeThread {
    questions: Sender<RecordBatch>,
    /// Nanoseconds.
    answers: Receiver<Result<f64>>,
}

impl ProbeThread {
    /// Evaluates `expressions`. `None` if the system gives no thread.
    pub(super) fn start(expressions: &[(Arc<dyn PhysicalExpr>, String)]) -> Option<Self> {
        let (questions, asked) = channel::<RecordBatch>();
        let (answered, answers) = channel();
        let expressions = expressions.to_vec();
        // Functions may ask for the runtime that they are called in.
        let runtime = Handle::try_current().ok();
        let evaluate = move || {
            let _within = runtime.as_ref().map(Handle::enter);
            for rows in asked {
                let mut time = ThreadClock::of_this_thread();
                let started = Stopwatch::start();
                let values = values_of(&expressions, &rows);
                let ns = time.since(started).as_nanos() as f64;
                if answered.send(values.map(|_| ns)).is_err() {
                    return;
                }
            }
        };
        let name = "skewer-slow-row".to_owned();
        let builder = std::thread::Builder::new().name(name).stack_size(STACK);
        let thread = builder.spawn(evaluate);
        thread.is_ok().then_some(Self { questions, answers })
    }

    /// What evaluating `rows` takes, in nanoseconds. `None` if that is longer than `patience`; the
    /// thread is of no use any more then.
    pub(super) fn evaluate_within(
        &self,
        rows: RecordBatch,
        patience: Duration,
    ) -> Result<Option<f64>> {
        // Where nobody receives it, there is no answer either.
        let _ = self.questions.send(rows);
        match self.answers.recv_timeout(patience) {
            Ok(answer) => answer.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                exec_err!("a function broke off when it was called again")
            }
        }
    }
}
