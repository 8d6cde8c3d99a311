//! The control groups around the process: processor quota, memory limit and throttling.
//!
//! A quota holds for a group and all groups inside it, so the smallest one from the process's group up to
//! the root of the mount counts. Both versions are read, also side by side: a machine may have the processor
//! in version 1 and everything else in version 2.
//! Sources: the kernel's `Documentation/scheduler/sched-bwc.rst` (version 1) and
//! `Documentation/admin-guide/cgroup-v2.rst`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use procfs_core::process::MountInfos;
use procfs_core::{Meminfo, ProcessCGroups};

use crate::proc::read;
use crate::readings::allowed_cores;

/// The groups of the process, from its own to the outermost that it can see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Groups {
    processor: Option<Hierarchy>,
    memory: Option<Hierarchy>,
}

/// The groups of one controller.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    version: Version,
    /// From the innermost.
    directories: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// What the groups allow.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limits {
    /// Processors that the quota is worth, for example 0.5; `None` without a quota.
    pub quota_cores: Option<f64>,
    /// Bytes of memory; `None` without a limit.
    pub memory_bytes: Option<u64>,
}

impl Groups {
    /// The groups of this process.
    pub fn of_this_process() -> Self {
        let groups: Option<ProcessCGroups> = read("/proc/self/cgroup");
        let mounts: Option<MountInfos> = read("/proc/self/mountinfo");
        match (groups, mounts) {
            (Some(groups), Some(mounts)) => Self::find(&groups, &mounts),
            _ => Self::default(),
        }
    }

    fn find(groups: &ProcessCGroups, mounts: &MountInfos) -> Self {
        let hierarchy = |controller: &str, file_one: &str, file_two: &str| {
            Hierarchy::version_one(controller, groups, mounts, file_one)
                .or_else(|| Hierarchy::version_two(groups, mounts, file_two))
        };
        Self {
            processor: hierarchy("cpu", "cpu.cfs_quota_us", "cpu.stat"),
            memory: hierarchy("memory", "memory.limit_in_bytes", "memory.max"),
        }
    }

    /// What they allow now.
    pub fn limits(&self) -> Limits {
        let least_cores = self.processor.iter().flat_map(Hierarchy::quotas);
        let least_bytes = self.memory.iter().flat_map(Hierarchy::memory_limits);
        Limits {
            quota_cores: least_cores.min_by(f64::total_cmp),
            memory_bytes: least_bytes.min(),
        }
    }

    /// Nanoseconds in which the groups were throttled since they exist, summed over processors; `None` where the
    /// kernel does not tell.
    pub fn throttled_ns(&self) -> Option<u64> {
        let processor = self.processor.as_ref()?;
        let directories = processor.directories.iter();
        let sums = directories.filter_map(|directory| processor.version.throttled_ns(directory));
        sums.reduce(|sum, more| sum + more)
    }
}

impl Hierarchy {
    fn version_one(
        controller: &str,
        groups: &ProcessCGroups,
        mounts: &MountInfos,
        file: &str,
    ) -> Option<Self> {
        let mut groups = groups.into_iter();
        let group = groups.find(|group| group.controllers.iter().any(|name| name == controller))?;
        let mut mounts = mounts.iter();
        let mount = mounts.find(|mount| {
            mount.fs_type == "cgroup" && mount.super_options.contains_key(controller)
        })?;
        let directories = directories(&mount.mount_point, &mount.root, &group.pathname, file)?;
        Some(Self {
            version: Version::One,
            directories,
        })
    }

    fn version_two(groups: &ProcessCGroups, mounts: &MountInfos, file: &str) -> Option<Self> {
        let mut groups = groups.into_iter();
        let group = groups.find(|group| group.hierarchy == 0)?;
        let mut mounts = mounts.iter();
        let mount = mounts.find(|mount| mount.fs_type == "cgroup2")?;
        let directories = directories(&mount.mount_point, &mount.root, &group.pathname, file)?;
        Some(Self {
            version: Version::Two,
            directories,
        })
    }

    fn quotas(&self) -> impl Iterator<Item = f64> + '_ {
        let directories = self.directories.iter();
        directories.filter_map(|directory| self.version.quota_cores(directory))
    }

    fn memory_limits(&self) -> impl Iterator<Item = u64> + '_ {
        let directories = self.directories.iter();
        directories.filter_map(|directory| self.version.memory_bytes(directory))
    }
}

/// The directories from the group up to the mount, where at least one has `file`. In a container the group may
/// be named as the host sees it while the mount begins at the container: then the mount itself is the group.
fn directories(mount_point: &Path, root: &str, group: &str, file: &str) -> Option<Vec<PathBuf>> {
    let inside = Path::new(group).strip_prefix(root).ok();
    let innermost = inside.map(|inside| mount_point.join(inside));
    let innermost = innermost.filter(|directory| directory.is_dir());
    let innermost = innermost.unwrap_or_else(|| mount_point.to_owned());
    let directories = innermost.ancestors();
    let directories = directories.take_while(|directory| directory.starts_with(mount_point));
    let directories: Vec<PathBuf> = directories.map(Path::to_owned).collect();
    let is_there = directories
        .iter()
        .any(|directory| directory.join(file).exists());
    is_there.then_some(directories)
}

impl Version {
    fn quota_cores(self, directory: &Path) -> Option<f64> {
        let (quota, period) = match self {
            Self::One => (
                text(&directory.join("cpu.cfs_quota_us"))?,
                text(&directory.join("cpu.cfs_period_us"))?,
            ),
            Self::Two => {
                let max = text(&directory.join("cpu.max"))?;
                let (quota, period) = max.split_once(' ')?;
                (quota.to_owned(), period.to_owned())
            }
        };
        // Version 1 says -1, version 2 `max` where there is no quota.
        let quota: f64 = quota.parse().ok()?;
        let period: f64 = period.parse().ok()?;
        (quota > 0.0 && period > 0.0).then(|| quota / period)
    }

    fn memory_bytes(self, directory: &Path) -> Option<u64> {
        let file = match self {
            Self::One => "memory.limit_in_bytes",
            Self::Two => "memory.max",
        };
        let bytes: u64 = text(&directory.join(file))?.parse().ok()?;
        // Without a limit version 1 says the largest number of whole pages.
        (bytes < i64::MAX as u64 / 2).then_some(bytes)
    }

    fn throttled_ns(self, directory: &Path) -> Option<u64> {
        let (key, unit) = match self {
            Self::One => ("throttled_time", 1),
            Self::Two => ("throttled_usec", 1_000),
        };
        let stat = text(&directory.join("cpu.stat"))?;
        let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
        let (_, value) = lines.find(|(name, _)| *name == key)?;
        Some(value.trim().parse::<u64>().ok()? * unit)
    }
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

/// How old the knowledge of groups and limits may be: somebody may move the process, or change its quota.
const FRESH: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Known {
    read: Option<(Instant, Groups, Limits)>,
}

static KNOWN: Mutex<Known> = Mutex::new(Known { read: None });

/// Whether a quota was there when the limits were read last.
static HAS_QUOTA: AtomicBool = AtomicBool::new(false);

/// The groups of this process and their limits, at most a second old.
pub fn known() -> (Groups, Limits) {
    let mut known = KNOWN.lock();
    if let Some((at, groups, limits)) = &known.read
        && at.elapsed() < FRESH
    {
        return (groups.clone(), *limits);
    }
    let groups = Groups::of_this_process();
    let limits = groups.limits();
    HAS_QUOTA.store(limits.quota_cores.is_some(), Ordering::Relaxed);
    known.read = Some((Instant::now(), groups.clone(), limits));
    (groups, limits)
}

/// Processors that the process may use at once: the smallest of what its affinity mask, the quotas of its groups
/// and the machine leave.
pub fn effective_cores() -> f64 {
    let allowed =
        allowed_cores().or_else(|| std::thread::available_parallelism().ok().map(usize::from));
    let allowed = allowed.unwrap_or(1) as f64;
    let (_, limits) = known();
    limits
        .quota_cores
        .map_or(allowed, |quota| quota.min(allowed))
}

/// Bytes of memory that the process may use: the smallest of what the limits of its groups and the machine leave;
/// `None` where neither tells.
pub fn effective_memory_bytes() -> Option<u64> {
    let machine: Option<Meminfo> = read("/proc/meminfo");
    let (_, limits) = known();
    let machine = machine.map(|machine| machine.mem_total);
    machine.into_iter().chain(limits.memory_bytes).min()
}

/// The last reading of [`throttled_ns`] and when it was taken, in nanoseconds since the first.
static THROTTLED: AtomicU64 = AtomicU64::new(0);
static THROTTLED_AT: Mutex<Option<Instant>> = Mutex::new(None);

/// A reading of this age is good enough for a task that begins.
const THROTTLED_FRESH: Duration = Duration::from_millis(5);

/// Nanoseconds in which the groups of the process were throttled, at most some milliseconds old. 0 without a quota:
/// that takes no call of the system.
pub fn recently_throttled_ns() -> u64 {
    if !HAS_QUOTA.load(Ordering::Relaxed) {
        return 0;
    }
    let Some(mut at) = THROTTLED_AT.try_lock() else {
        return THROTTLED.load(Ordering::Relaxed);
    };
    if at.is_none_or(|at| at.elapsed() >= THROTTLED_FRESH) {
        *at = Some(Instant::now());
        read_throttled();
    }
    THROTTLED.load(Ordering::Relaxed)
}

/// The same, read now.
pub fn throttled_ns() -> u64 {
    if !HAS_QUOTA.load(Ordering::Relaxed) {
        return 0;
    }
    read_throttled();
    THROTTLED.load(Ordering::Relaxed)
}

fn read_throttled() {
    let (groups, _) = known();
    if let Some(ns) = groups.throttled_ns() {
        THROTTLED.store(ns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use procfs_core::FromRead;

    use super::*;

    fn groups(cgroup: &str, mountinfo: &str) -> Groups {
        let groups = ProcessCGroups::from_read(cgroup.as_bytes()).unwrap();
        let mounts = MountInfos::from_read(mountinfo.as_bytes()).unwrap();
        Groups::find(&groups, &mounts)
    }

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn in_version_one_the_smallest_quota_of_all_groups_around_counts() {
        let root = tempfile::tempdir().unwrap();
        let cpu = root.path().join("cpu");
        write(cpu.join("a/b/cpu.cfs_quota_us"), "150000\n");
        write(cpu.join("a/b/cpu.cfs_period_us"), "100000\n");
        write(
            cpu.join("a/b/cpu.stat"),
            "nr_periods 3\nthrottled_time 700\n",
        );
        write(cpu.join("a/cpu.cfs_quota_us"), "50000\n");
        write(cpu.join("a/cpu.cfs_period_us"), "100000\n");
        write(cpu.join("a/cpu.stat"), "nr_periods 3\nthrottled_time 42\n");
        write(cpu.join("cpu.cfs_quota_us"), "-1\n");
        let memory = root.path().join("memory");
        write(
            memory.join("memory.limit_in_bytes"),
            "9223372036854771712\n",
        );
        let mounts = format!(
            "30 25 0:26 / {} rw - cgroup cgroup rw,cpu,cpuacct\n31 25 0:27 / {} rw - cgroup cgroup rw,memory\n",
            cpu.display(),
            memory.display()
        );
        let groups = groups("5:cpu,cpuacct:/a/b\n4:memory:/\n0::/\n", &mounts);
        let limits = groups.limits();
        assert_eq!((limits.quota_cores, limits.memory_bytes), (Some(0.5), None));
        assert_eq!(groups.throttled_ns(), Some(742));
    }

    #[test]
    fn version_two_counts_microseconds_and_says_max_without_a_limit() {
        let root = tempfile::tempdir().unwrap();
        write(root.path().join("s/cpu.max"), "20000 100000\n");
        write(
            root.path().join("s/cpu.stat"),
            "usage_usec 9\nthrottled_usec 5\n",
        );
        write(root.path().join("s/memory.max"), "1048576\n");
        write(root.path().join("cpu.stat"), "usage_usec 9\n");
        write(root.path().join("memory.max"), "max\n");
        let mounts = format!(
            "30 25 0:26 / {} rw - cgroup2 none rw\n",
            root.path().display()
        );
        let groups = groups("0::/s\n", &mounts);
        let limits = groups.limits();
        assert_eq!(
            (limits.quota_cores, limits.memory_bytes),
            (Some(0.2), Some(1 << 20))
        );
        assert_eq!(groups.throttled_ns(), Some(5_000));
    }

    #[test]
    fn in_a_container_the_mount_is_the_group_if_the_name_is_the_hosts() {
        let root = tempfile::tempdir().unwrap();
        write(root.path().join("cpu.max"), "100000 100000\n");
        write(root.path().join("cpu.stat"), "throttled_usec 1\n");
        let mounts = format!(
            "30 25 0:26 / {} rw - cgroup2 none rw\n",
            root.path().display()
        );
        let groups = groups("0::/docker/0123\n", &mounts);
        assert_eq!(groups.limits().quota_cores, Some(1.0));
    }

    #[test]
    fn a_process_without_groups_has_no_limits() {
        assert_eq!(groups("", "").limits(), Limits::default());
        assert_eq!(groups("", "").throttled_ns(), None);
        assert!(effective_cores() > 0.0);
    }
}
