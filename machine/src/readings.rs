//! All metrics of the node at a moment.
//!
//! Most of them are rates, so it takes two looks at the counters.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use procfs_core::net::InterfaceDeviceStatus;
use procfs_core::process::{Io, Stat, Status};
use procfs_core::{CpuPressure, IoPressure, KernelStats, MemoryPressure};

use crate::cgroup;
use crate::metric::{METRICS, Metric};
use crate::proc::{PAGE_BYTES, TICKS_PER_SECOND, read, read_ticks};

/// One value per metric, in the order of [`Metric::ALL`]; `None` where the system does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Readings([Option<f64>; METRICS]);

impl Readings {
    /// The reading of a metric.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.0[metric.index()]
    }

    /// Sets the reading of a metric.
    pub fn set(&mut self, metric: Metric, value: Option<f64>) {
        self.0[metric.index()] = value;
    }

    /// The readings that are there.
    pub fn present(&self) -> impl Iterator<Item = (Metric, f64)> + '_ {
        Metric::ALL
            .into_iter()
            .filter_map(|metric| Some((metric, self.get(metric)?)))
    }
}

/// What the system has counted until a moment.
#[derive(Debug, Clone, Copy)]
pub struct Counters {
    at: Instant,
    gauges: Readings,
    /// In seconds, bytes or events, by metric.
    totals: Readings,
}

/// Processor time is counted in hundredths of a second: below a tenth a rate says nothing.
const SHORTEST: Duration = Duration::from_millis(100);

/// Counters of this age are as good as new ones. A look takes a tenth of a millisecond, and there may be many
/// short queries in this time.
const FRESH: Duration = Duration::from_millis(100);

static LATEST: Mutex<Option<Counters>> = Mutex::new(None);

impl Counters {
    /// Counters of at most a tenth of a second ago.
    pub fn recent() -> Self {
        let mut latest = LATEST.lock();
        match *latest {
            Some(fresh) if fresh.at.elapsed() < FRESH => fresh,
            _ => *latest.insert(Self::now()),
        }
    }

    /// Looks now.
    pub fn now() -> Self {
        let mut gauges = Readings::default();
        let mut totals = Readings::default();
        let process: Option<Stat> = read("/proc/self/stat");
        let machine: Option<KernelStats> = read_ticks("/proc/stat");
        let seconds = |ticks: u64| ticks as f64 / TICKS_PER_SECOND as f64;
        let own = process
            .as_ref()
            .map(|process| seconds(process.utime + process.stime));
        if let Some(process) = &process {
            gauges.set(Metric::RssBytes, Some((process.rss * PAGE_BYTES) as f64));
            totals.set(Metric::CpuShare, own);
            totals.set(Metric::MajorFaultsPerSecond, Some(process.majflt as f64));
        }
        if let Some(machine) = &machine {
            let total = &machine.total;
            let or_none = |ticks: Option<u64>| ticks.unwrap_or(0);
            // The time of guests is contained in `user` and `nice`.
            let busy = total.user
                + total.nice
                + total.system
                + or_none(total.irq)
                + or_none(total.softirq);
            let foreign = own.map(|own| seconds(busy) - own);
            totals.set(Metric::ForeignCpuShare, foreign);
            totals.set(Metric::StealShare, total.steal.map(seconds));
            gauges.set(Metric::MachineCores, Some(machine.cpu_time.len() as f64));
        }
        if let Some(io) = read::<Io>("/proc/self/io") {
            totals.set(Metric::ReadBytesPerSecond, Some(io.read_bytes as f64));
            totals.set(Metric::WrittenBytesPerSecond, Some(io.write_bytes as f64));
        }
        let stalled = |micros: u64| micros as f64 / 1e6;
        let cpu: Option<CpuPressure> = read("/proc/pressure/cpu");
        let io: Option<IoPressure> = read("/proc/pressure/io");
        let memory: Option<MemoryPressure> = read("/proc/pressure/memory");
        totals.set(Metric::PsiCpuShare, cpu.map(|cpu| stalled(cpu.some.total)));
        totals.set(Metric::PsiIoShare, io.map(|io| stalled(io.some.total)));
        let memory = memory.map(|memory| stalled(memory.some.total));
        totals.set(Metric::PsiMemoryShare, memory);
        if let Some(devices) = read::<InterfaceDeviceStatus>("/proc/net/dev") {
            let outside = devices.0.values().filter(|device| device.name != "lo");
            let bytes: u64 = outside
                .map(|device| device.recv_bytes + device.sent_bytes)
                .sum();
            totals.set(Metric::NetworkBytesPerSecond, Some(bytes as f64));
        }
        let (groups, limits) = cgroup::known();
        let throttled = groups.throttled_ns().map(|ns| ns as f64 / 1e9);
        totals.set(Metric::ThrottledShare, throttled);
        gauges.set(
            Metric::MemoryLimitBytes,
            limits.memory_bytes.map(|bytes| bytes as f64),
        );
        gauges.set(Metric::EffectiveCores, Some(cgroup::effective_cores()));
        Self {
            at: Instant::now(),
            gauges,
            totals,
        }
    }

    /// The gauges at `self`, and the rates since `before`; no rates if that was too short a time ago.
    pub fn since(&self, before: &Self) -> Readings {
        let mut readings = self.gauges;
        let elapsed = self.at.saturating_duration_since(before.at);
        if elapsed < SHORTEST {
            return readings;
        }
        for (metric, total) in self.totals.present() {
            let Some(earlier) = before.totals.get(metric) else {
                continue;
            };
            let rate = ((total - earlier) / elapsed.as_secs_f64()).max(0.0);
            let rate = match metric.unit() {
                "share" => rate.min(1.0),
                _ => rate,
            };
            readings.set(metric, Some(rate));
        }
        readings
    }
}

/// Processors that the affinity mask of the process allows.
pub(crate) fn allowed_cores() -> Option<usize> {
    let status: Status = read("/proc/self/status")?;
    let mask = status.cpus_allowed?;
    let cores: u32 = mask.iter().map(|part| part.count_ones()).sum();
    (cores > 0).then_some(cores as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_busy_process_shows_memory_and_processor_time() {
        let before = Counters::now();
        let mut sum = 0_u64;
        while before.at.elapsed() < Duration::from_millis(400) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let readings = Counters::now().since(&before);
        let value = |metric| readings.get(metric).unwrap();
        assert!(value(Metric::RssBytes) > 1e6);
        assert!(value(Metric::CpuShare) > 0.1 && value(Metric::CpuShare) < 1e3);
        assert!(value(Metric::EffectiveCores) > 0.0);
        assert!(value(Metric::EffectiveCores) <= value(Metric::MachineCores));
        for (metric, value) in readings.present() {
            assert!(value.is_finite() && value >= 0.0, "{metric:?} {value}");
        }
    }

    #[test]
    fn counters_that_go_backwards_and_moments_without_time_make_no_rates() {
        let mut before = Counters::now();
        before.totals.set(Metric::StealShare, Some(5.0));
        let mut after = before;
        after.totals.set(Metric::StealShare, Some(4.0));
        assert_eq!(after.since(&before).get(Metric::StealShare), None);
        after.at += Duration::from_secs(2);
        assert_eq!(after.since(&before).get(Metric::StealShare), Some(0.0));
        after.totals.set(Metric::StealShare, Some(6.0));
        assert_eq!(after.since(&before).get(Metric::StealShare), Some(0.5));
    }
}
