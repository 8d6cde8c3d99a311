//! The readings of a node: names, units and sources.

/// A reading of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each says what it is in `Metric::docs`")]
pub enum Metric {
    RssBytes,
    CpuShare,
    EffectiveCores,
    MachineCores,
    ForeignCpuShare,
    StealShare,
    ThrottledShare,
    PsiCpuShare,
    PsiIoShare,
    PsiMemoryShare,
    ReadBytesPerSecond,
    WrittenBytesPerSecond,
    MajorFaultsPerSecond,
    MemoryLimitBytes,
    NetworkBytesPerSecond,
}

/// How many metrics there are.
pub const METRICS: usize = Metric::ALL.len();

impl Metric {
    /// All metrics, in the order of their documentation.
    pub const ALL: [Metric; 15] = [
        Metric::RssBytes,
        Metric::CpuShare,
        Metric::EffectiveCores,
        Metric::MachineCores,
        Metric::ForeignCpuShare,
        Metric::StealShare,
        Metric::ThrottledShare,
        Metric::PsiCpuShare,
        Metric::PsiIoShare,
        Metric::PsiMemoryShare,
        Metric::ReadBytesPerSecond,
        Metric::WrittenBytesPerSecond,
        Metric::MajorFaultsPerSecond,
        Metric::MemoryLimitBytes,
        Metric::NetworkBytesPerSecond,
    ];

    /// Its place in [`Metric::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// Its name in schema `sys`, which ends with its unit.
    pub fn name(self) -> &'static str {
        self.texts().0
    }

    /// `bytes`, `bytes/s`, `1/s`, `cores`, or `share` (0 to 1).
    pub fn unit(self) -> &'static str {
        self.texts().1
    }

    /// The file that it is read from.
    pub fn source(self) -> &'static str {
        self.texts().2
    }

    /// What it says.
    pub fn docs(self) -> &'static str {
        self.texts().3
    }

    /// Why it is absent where it is.
    pub fn why_absent(self) -> &'static str {
        match self {
            Self::MemoryLimitBytes => "no control group around the process limits its memory",
            Self::ThrottledShare => {
                "no control group around the process has a file cpu.stat that counts throttling"
            }
            Self::PsiCpuShare | Self::PsiIoShare | Self::PsiMemoryShare => {
                "the kernel has no pressure stall information: it needs CONFIG_PSI and, in some \
                 distributions, the parameter psi=1"
            }
            Self::StealShare => "the kernel does not count stolen time",
            _ => "the file cannot be read: this is not Linux, or /proc is hidden",
        }
    }

    const fn texts(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::RssBytes => (
                "rss_bytes",
                "bytes",
                "/proc/self/stat",
                "memory of the process",
            ),
            Self::CpuShare => (
                "cpu_share",
                "cores",
                "/proc/self/stat",
                "cores busy in the process since the last reading",
            ),
            Self::EffectiveCores => (
                "effective_cores",
                "cores",
                "cgroup cpu.max or cpu.cfs_quota_us, /proc/self/status",
                "cores that affinity and the quotas of control groups leave to the process",
            ),
            Self::MachineCores => (
                "machine_cores",
                "cores",
                "/proc/stat",
                "cores of the machine",
            ),
            Self::ForeignCpuShare => (
                "foreign_cpu_share",
                "cores",
                "/proc/stat",
                "cores busy in other processes of the machine since the last reading",
            ),
            Self::StealShare => (
                "steal_share",
                "cores",
                "/proc/stat",
                "cores that the hypervisor gave to others since the last reading",
            ),
            Self::ThrottledShare => (
                "throttled_share",
                "cores",
                "cgroup cpu.stat",
                "seconds per second in which control groups had used up their quota, summed over cores",
            ),
            Self::PsiCpuShare => (
                "psi_cpu_share",
                "share",
                "/proc/pressure/cpu",
                "share of time in which some thread of the machine waited for a core",
            ),
            Self::PsiIoShare => (
                "psi_io_share",
                "share",
                "/proc/pressure/io",
                "share of time in which some thread of the machine waited for a disk",
            ),
            Self::PsiMemoryShare => (
                "psi_memory_share",
                "share",
                "/proc/pressure/memory",
                "share of time in which some thread of the machine waited for memory",
            ),
            Self::ReadBytesPerSecond => (
                "read_bytes_per_second",
                "bytes/s",
                "/proc/self/io",
                "bytes that the process had fetched from disks",
            ),
            Self::WrittenBytesPerSecond => (
                "written_bytes_per_second",
                "bytes/s",
                "/proc/self/io",
                "bytes that the process sent to disks",
            ),
            Self::MajorFaultsPerSecond => (
                "major_faults_per_second",
                "1/s",
                "/proc/self/stat",
                "page faults of the process that had to read a disk",
            ),
            Self::MemoryLimitBytes => (
                "memory_limit_bytes",
                "bytes",
                "cgroup memory.max or memory.limit_in_bytes",
                "the smallest memory limit of the control groups around the process",
            ),
            Self::NetworkBytesPerSecond => (
                "network_bytes_per_second",
                "bytes/s",
                "/proc/net/dev",
                "bytes sent and received by the machine, without its loopback",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_metric_has_its_place_and_says_its_unit() {
        for (index, metric) in Metric::ALL.into_iter().enumerate() {
            assert_eq!(metric.index(), index);
            let name = metric.name();
            let ending = match metric.unit() {
                "bytes" => "_bytes",
                "bytes/s" | "1/s" => "_per_second",
                "share" => "_share",
                "cores" if name.ends_with("_share") => "_share",
                "cores" => "_cores",
                other => panic!("{other} is no unit"),
            };
            assert!(name.ends_with(ending), "{name}");
        }
    }
}
