//! How soon workers stop when nobody wants their query any more.

use std::time::{Duration, Instant};

use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;

use super::product::Running;
use crate::error::BenchError;
use crate::measure::{cpu_seconds_of, is_running, user_seconds_of};

/// Joins each row of `lineitem` with six hundred others, which are sent to it: it takes minutes.
const LONG: &str = "SELECT a.l_quantity + b.l_discount AS s, count(*) \
                    FROM lineitem a JOIN lineitem b ON a.l_suppkey = b.l_suppkey GROUP BY s";

/// A process that runs a part of the query uses more of a processor than this, also where many
/// share it.
const BUSY: f64 = 0.05;

/// One that has stopped uses less than this in any [`WINDOW`]: it still answers its master, and a
/// second later writes what it recorded of the query, which takes it some 10 ms.
const IDLE: f64 = 0.5;

/// In seconds.
const WINDOW: f64 = 0.05;

/// For how many seconds it must have stopped.
const QUIET: f64 = 1.0;

const LOOK: Duration = Duration::from_millis(2);

/// How long the query may take to begin, or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between the moments at which queries are cancelled, from when both workers work.
const STEP: Duration = Duration::from_millis(100);

/// Seconds since the request to cancel.
#[derive(Debug, Clone, Copy)]
pub struct Cancellation {
    /// The client was told that its query is cancelled.
    pub answered: f64,
    /// The last worker ran instructions of its own.
    pub computed: f64,
    /// The last worker used a processor, be it for the kernel to take its memory back.
    pub stopped: f64,
}

/// Cancels the query `runs` times, each time a little later, so that it is in another place.
pub async fn measure(running: &Running, runs: u32) -> Result<Vec<Cancellation>, BenchError> {
    let mut all = Vec::new();
    for run in 1..=runs {
        all.push(cancel(running, STEP * run).await?);
    }
    Ok(all)
}

/// Cancels the query when all workers have worked on it for so long.
async fn cancel(running: &Running, after: Duration) -> Result<Cancellation, BenchError> {
    let workers = running.workers();
    let asking = async {
        let outcome = running.client.simple_query(LONG).await;
        (outcome, Instant::now())
    };
    let cancelling = async {
        all_work(&workers).await?;
        tokio::time::sleep(after).await;
        let since = Instant::now();
        let token = running.client.cancel_token();
        token.cancel_query(NoTls).await?;
        Ok::<_, BenchError>((since, all_stop(&workers, since).await?))
    };
    let ((outcome, answered), stopped) = tokio::join!(asking, cancelling);
    let (since, [computed, stopped]) = stopped?;
    match outcome {
        Err(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => Ok(Cancellation {
            answered: answered.duration_since(since).as_secs_f64(),
            computed,
            stopped,
        }),
        Err(error) => Err(error.into()),
        Ok(_) => Err(BenchError::Unexpected(
            "the query to cancel has ended before".to_owned(),
        )),
    }
}

async fn all_work(processes: &[u32]) -> Result<(), BenchError> {
    const WHILE: f64 = 0.05;
    let begun = Instant::now();
    let now = || processes.iter().map(|process| cpu_seconds_of(*process));
    while begun.elapsed() < PATIENCE {
        let before: Vec<f64> = now().collect();
        tokio::time::sleep(Duration::from_secs_f64(WHILE)).await;
        if now()
            .zip(before)
            .all(|(now, before)| now - before > BUSY * WHILE)
        {
            return Ok(());
        }
    }
    Err(BenchError::Unexpected(
        "not all workers work on the query to cancel".to_owned(),
    ))
}

/// The clocks that tell [`Cancellation::computed`] and [`Cancellation::stopped`].
const CLOCKS: [fn(u32) -> f64; 2] = [user_seconds_of, cpu_seconds_of];

/// Waits until none of these processes works any more; how many seconds after `since` that was, by
/// each of the clocks.
async fn all_stop(processes: &[u32], since: Instant) -> Result<[f64; 2], BenchError> {
    let mut worked: Vec<[Worked; 2]> = processes.iter().map(|_| Default::default()).collect();
    while since.elapsed() < PATIENCE {
        for (worked, process) in worked.iter_mut().zip(processes) {
            if !is_running(*process) {
                return Err(BenchError::Unexpected(
                    "a worker ended as its query was cancelled".to_owned(),
                ));
            }
            for (worked, clock) in worked.iter_mut().zip(CLOCKS) {
                worked.look(since.elapsed().as_secs_f64(), clock(*process));
            }
        }
        let last = |clock: usize| {
            let stopped: Option<Vec<f64>> = worked.iter().map(|w| w[clock].stopped()).collect();
            stopped.map(|stopped| stopped.into_iter().fold(0.0, f64::max))
        };
        if let (Some(computed), Some(stopped)) = (last(0), last(1)) {
            return Ok([computed, stopped]);
        }
        tokio::time::sleep(LOOK).await;
    }
    Err(BenchError::Unexpected(format!(
        "workers go on {PATIENCE:?} after their query was cancelled"
    )))
}

/// Processor time of a process, as it grows.
#[derive(Debug, Default)]
struct Worked {
    /// When, and what the process had had of processors: both in seconds.
    looks: Vec<(f64, f64)>,
}

impl Worked {
    fn look(&mut self, at: f64, cpu: f64) {
        self.looks.push((at, cpu));
    }

    /// When it had stopped, if that is long enough ago.
    fn stopped(&self) -> Option<f64> {
        let (&(first, _), &(now, _)) = (self.looks.first()?, self.looks.last()?);
        let mut stopped = first;
        let mut ends = self.looks.iter();
        let mut end = ends.next()?;
        for (at, before) in &self.looks {
            while end.0 < at + WINDOW {
                match ends.next() {
                    Some(next) => end = next,
                    None => return (now - stopped >= QUIET).then_some(stopped),
                }
            }
            if end.1 - before > IDLE * (end.0 - at) {
                // With all of a processor until then, and nothing after it.
                stopped = at + IDLE * WINDOW;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks every 10 ms for `seconds` at a process that has `cpu(t)` of processor time.
    fn worked(seconds: f64, cpu: impl Fn(f64) -> f64) -> Worked {
        let mut worked = Worked::default();
        let looks = (seconds * 100.0).round() as u32;
        for at in (0..=looks).map(|look| f64::from(look) / 100.0) {
            worked.look(at, cpu(at));
        }
        worked
    }

    #[test]
    fn a_process_has_stopped_when_its_processor_time_stops_growing() {
        let cpu = |at: f64| at.min(0.15) + 0.001 * at;
        let stopped = worked(1.5, cpu).stopped().unwrap();
        assert!((0.13..0.16).contains(&stopped), "{stopped}");
        assert_eq!(worked(1.1, cpu).stopped(), None, "not long enough ago");
        let idle = worked(1.2, |at| 0.001 * at).stopped().unwrap();
        assert_eq!(idle, 0.0);
    }

    #[test]
    fn a_process_that_writes_for_some_milliseconds_had_stopped() {
        let cpu = |at: f64| at.min(0.1) + (at - 0.9).clamp(0.0, 0.02);
        let stopped = worked(2.5, cpu).stopped().unwrap();
        assert!((0.08..=0.1).contains(&stopped), "{stopped}");
    }

    #[test]
    fn a_process_that_works_once_more_had_not_stopped() {
        let cpu = |at: f64| at.min(0.1) + (at - 0.6).clamp(0.0, 0.1);
        let stopped = worked(2.0, cpu).stopped().unwrap();
        assert!((0.67..=0.7).contains(&stopped), "{stopped}");
    }
}
