//! Wall and processor time.

use std::fs;
use std::future::Future;
use std::time::Instant;

use crate::error::BenchError;

/// What a run took.
#[derive(Debug, Clone, Copy)]
pub struct Took {
    /// Seconds by the clock.
    pub wall: f64,
    /// Seconds of processor time over all threads of this process; NaN where it cannot be read.
    pub cpu: f64,
}

/// Runs `future` and says what it took.
pub async fn timed<T, E>(future: impl Future<Output = Result<T, E>>) -> Result<(T, Took), E> {
    let cpu = cpu_seconds();
    let started = Instant::now();
    let result = future.await?;
    let wall = started.elapsed().as_secs_f64();
    let cpu = cpu_seconds() - cpu;
    Ok((result, Took { wall, cpu }))
}

/// Processor time of this process, in seconds.
fn cpu_seconds() -> f64 {
    cpu_seconds_of(std::process::id())
}

/// Processor time in seconds that all threads of a process have had, those that have ended too;
/// NaN if the process is gone.
///
/// It is the process's clock of clock_getcpuclockid(3), in nanoseconds. What /proc says of the
/// process has a resolution of 10 ms, and what it says of threads goes when they end.
#[expect(
    unsafe_code,
    reason = "the system's calls; safe wrappers exist in crates that rebuild half the tree"
)]
pub fn cpu_seconds_of(process: u32) -> f64 {
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: both are given a place that lives and is only written to.
    let read = unsafe {
        libc::clock_getcpuclockid(process as libc::pid_t, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    if !read {
        return f64::NAN;
    }
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The part of [`cpu_seconds_of`] in which the process ran its own instructions rather than the
/// kernel for it, in steps of 10 ms; NaN if the process is gone.
pub fn user_seconds_of(process: u32) -> f64 {
    /// What programs are told of processor time is in hundredths of a second (`USER_HZ`).
    const TICKS: f64 = 100.0;
    let ticks = stat_of(process, 14).and_then(|utime| utime.parse::<f64>().ok());
    ticks.map_or(f64::NAN, |ticks| ticks / TICKS)
}

/// A field of /proc/PID/stat, counted from 1 as in proc_pid_stat(5), from the third on.
fn stat_of(process: u32, field: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second is the name in parentheses, in which there may be anything.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(field - 3).map(str::to_owned)
}

/// Whether a process is there and has not ended.
pub fn is_running(process: u32) -> bool {
    let state = stat_of(process, 3);
    state.is_some_and(|state| !matches!(state.as_str(), "Z" | "X"))
}

/// Lets the peak of a process's resident memory begin anew with what it has now.
pub fn forget_peak_of(process: u32) -> Result<(), BenchError> {
    let path = format!("/proc/{process}/clear_refs");
    fs::write(&path, "5").map_err(BenchError::file(path))
}

/// The most memory, in bytes, that a process has had resident.
pub fn peak_bytes_of(process: u32) -> Result<u64, BenchError> {
    status_bytes(process, "VmHWM:")
}

/// The memory, in bytes, that a process has resident.
pub fn resident_bytes_of(process: u32) -> Result<u64, BenchError> {
    status_bytes(process, "VmRSS:")
}

fn status_bytes(process: u32, field: &str) -> Result<u64, BenchError> {
    let path = format!("/proc/{process}/status");
    let status = fs::read_to_string(&path).map_err(BenchError::file(&path))?;
    let peak = status.lines().find_map(|line| line.strip_prefix(field));
    peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok())
        .map(|kilobytes| kilobytes * 1024)
        .ok_or_else(|| BenchError::Unexpected(format!("{path} says nothing of memory")))
}

/// The middle value; NaN of none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().filter(|v| !v.is_nan()).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        even if even % 2 == 0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_does_not_run() {
        assert!(is_running(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let id = child.id();
        while is_running(id) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!is_running(id));
    }

    #[test]
    fn the_processor_time_of_threads_that_have_ended_is_counted() {
        let own = std::process::id();
        let before = cpu_seconds_of(own);
        let worked = std::thread::spawn(move || {
            while cpu_seconds_of(own) < before + 0.02 {
                std::hint::black_box(());
            }
        });
        worked.join().unwrap();
        assert!(cpu_seconds_of(own) >= before + 0.02);
    }

    #[test]
    fn user_time_grows_with_the_processes_own_instructions() {
        let own = std::process::id();
        let (before, all_before) = (user_seconds_of(own), cpu_seconds_of(own));
        // The steps end it: a kernel may count some of the time as its own.
        while user_seconds_of(own) < before + 0.03 {
            for number in 0..100_000_u64 {
                std::hint::black_box(number);
            }
        }
        let all = cpu_seconds_of(own) - all_before;
        assert!(all >= 0.01, "{all}");
    }

    #[test]
    fn a_process_that_is_gone_has_no_processor_time() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let id = child.id();
        child.wait().unwrap();
        assert!(cpu_seconds_of(id).is_nan());
        assert!(user_seconds_of(id).is_nan());
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median([]).is_nan());
    }
}
