//! What is done to processes while a query runs; undone when it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::processes::{Processes, send};
use crate::workload::Injection;

/// The length of one turn of a process that is stopped and continued.
const TURN: Duration = Duration::from_millis(20);

/// An injection that is in effect.
#[derive(Debug)]
pub struct Active<'a> {
    processes: &'a Processes,
    injection: Injection,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Starts an injection. [`Injection::Ahead`] is the protocol's business, since it needs SQL.
///
/// # Errors
/// If the machine does not allow it: the case is then skipped.
pub fn inject<'a>(processes: &'a Processes, injection: &Injection) -> Result<Active<'a>> {
    let mut active = Active {
        processes,
        injection: injection.clone(),
        stop: Arc::new(AtomicBool::new(false)),
        threads: Vec::new(),
    };
    match injection {
        Injection::Quota { worker, processors } => {
            group(processes, *worker)?.quota(Some(*processors))?;
        }
        Injection::Pin { node, processor } => {
            group(processes, *node)?.processors(Some(&processor.to_string()))?;
        }
        Injection::Stop { worker, share } => {
            let pid = processes.node(*worker)?.pid();
            let stop = Arc::clone(&active.stop);
            let stopped = TURN.mul_f64(*share);
            active.threads.push(std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    send(pid, libc::SIGSTOP);
                    std::thread::sleep(stopped);
                    send(pid, libc::SIGCONT);
                    std::thread::sleep(TURN.saturating_sub(stopped));
                }
            }));
        }
        Injection::Spin { threads, processor } => {
            for _ in 0..*threads {
                let (stop, processor) = (Arc::clone(&active.stop), *processor);
                active
                    .threads
                    .push(std::thread::spawn(move || spin(&stop, processor)));
            }
        }
        Injection::Ahead { .. } => {}
        Injection::Delay { delay, .. } => match &processes.cable {
            Some(cable) => cable.delay(*delay),
            None => return Err(Error::new("no worker has a cable here")),
        },
    }
    Ok(active)
}

fn group(processes: &Processes, node: i64) -> Result<&crate::cgroup::Group> {
    let group = processes.node(node)?.group.as_ref();
    group.ok_or_else(|| Error::new("processes have no control groups of their own here"))
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        // What cannot be undone has ended with its process.
        match &self.injection {
            Injection::Quota { worker, .. } => {
                let _ = group(self.processes, *worker).and_then(|group| group.quota(None));
            }
            Injection::Pin { node, .. } => {
                let _ = group(self.processes, *node).and_then(|group| group.processors(None));
            }
            Injection::Stop { worker, .. } => {
                if let Ok(node) = self.processes.node(*worker) {
                    node.signal(libc::SIGCONT);
                }
            }
            Injection::Delay { .. } => {
                if let Some(cable) = &self.processes.cable {
                    cable.delay(Duration::ZERO);
                }
            }
            Injection::Spin { .. } | Injection::Ahead { .. } => {}
        }
    }
}

/// Computes until told to stop.
fn spin(stop: &AtomicBool, processor: Option<usize>) {
    if let Some(processor) = processor {
        pin(processor);
    }
    let mut number = 1_u64;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..10_000 {
            number = std::hint::black_box(
                number
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1),
            );
        }
    }
}

/// Lets this thread run on one processor only. Where that cannot be, it runs anywhere.
fn pin(processor: usize) {
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: a set of processors is plain bits, for which zeros are valid; the call reads it, and its
    // size is given.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}
