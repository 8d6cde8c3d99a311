//! One statement from text to batches, with a progress bar, and Ctrl-C.
//!
//! Statements run on the database's threads; the terminal's thread only waits for batches, ticks
//! and signals, so that it answers however busy the others are.

use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::backend::Backend;
use crate::error::ShellError;
use crate::progress::ProgressLine;
use crate::terminal::Terminal;

/// What a statement hands over, in this order.
pub enum Event<'a> {
    /// Its columns; once.
    Columns(SchemaRef),
    /// Some rows.
    Rows(&'a RecordBatch),
}

/// A statement that finished.
#[derive(Debug, Clone)]
pub struct Finished {
    /// From sending the text to having the last row.
    pub time: Duration,
    /// What the session says of it beside its rows.
    pub notices: Vec<String>,
}

/// Runs statements.
pub struct Runner {
    interrupts: Signal,
    terminal: Terminal,
}

impl Runner {
    /// Must be called in the terminal's runtime. From here on Ctrl-C no longer ends the process.
    pub fn new(terminal: Terminal) -> Result<Runner, ShellError> {
        let interrupts = signal(SignalKind::interrupt()).map_err(ShellError::Start)?;
        Ok(Runner {
            interrupts,
            terminal,
        })
    }

    /// Forgets a Ctrl-C that came when nothing was running.
    pub async fn forget_interrupts(&mut self) {
        // A signal that is pending is seen within one turn of the runtime.
        let soon = Duration::from_millis(1);
        while tokio::time::timeout(soon, self.interrupts.recv())
            .await
            .is_ok()
        {}
    }

    /// Waits for Ctrl-C.
    pub async fn interrupted(&mut self) {
        self.interrupts.recv().await;
    }

    /// Runs `sql` and hands what it gives to `receive`, until the end, an error or Ctrl-C.
    ///
    /// Leaving early, for whatever reason, drops the statement's stream, which cancels it.
    pub async fn run(
        &mut self,
        backend: &Backend,
        sql: &str,
        mut receive: impl FnMut(Event<'_>) -> Result<(), ShellError>,
    ) -> Result<Finished, ShellError> {
        let started = Instant::now();
        let colours = self.terminal.error_palette().enabled;
        let mut line = ProgressLine::new(self.terminal.error, colours);
        let mut answer = self.wait(backend, &mut line, backend.sql(sql)).await??;
        receive(Event::Columns(answer.schema()))?;
        while let Some(batch) = self.wait(backend, &mut line, answer.next()).await? {
            let batch = batch?;
            line.clear();
            receive(Event::Rows(&batch))?;
        }
        Ok(Finished {
            time: started.elapsed(),
            notices: answer.notices(),
        })
    }

    /// What `future` gives, unless Ctrl-C comes before; meanwhile the progress is drawn.
    async fn wait<T>(
        &mut self,
        backend: &Backend,
        line: &mut ProgressLine,
        future: impl Future<Output = T>,
    ) -> Result<T, ShellError> {
        let mut future = std::pin::pin!(future);
        let mut ticks = tokio::time::interval(ProgressLine::interval());
        loop {
            tokio::select! {
                biased;
                _ = self.interrupts.recv() => return Err(ShellError::Cancelled),
                value = &mut future => return Ok(value),
                _ = ticks.tick() => line.update(backend.progress()),
            }
        }
    }
}
