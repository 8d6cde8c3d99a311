//! A control group for each node, of version 1 or 2.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Context, Error, Result};

const ROOT: &str = "/sys/fs/cgroup";

/// What directories of the laboratory are called, before its process id.
const PREFIX: &str = "skewer-faults-";

/// The period of a quota: so short that each query sees many.
const PERIOD_US: u64 = 25_000;

/// Control groups of this process's nodes; they are removed when this is dropped.
#[derive(Debug)]
pub struct Hierarchy {
    version: Version,
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Version {
    One,
    Two,
}

/// The controllers that faults need. On version 1, each is a tree of its own.
const CONTROLLERS: [&str; 2] = ["cpu", "cpuset"];

impl Hierarchy {
    /// Makes the laboratory's own groups.
    ///
    /// # Errors
    /// If the system has no control groups, or does not let this process make any: in words.
    pub fn new() -> Result<Hierarchy> {
        let version = if Path::new(ROOT).join("cgroup.controllers").exists() {
            Version::Two
        } else if CONTROLLERS
            .iter()
            .all(|c| Path::new(ROOT).join(c).join("tasks").exists())
        {
            Version::One
        } else {
            return Err(Error::new(format!("no control groups at {ROOT}")));
        };
        remove_leftovers(version);
        let name = format!("{PREFIX}{}", std::process::id());
        let hierarchy = Hierarchy { version, name };
        for directory in hierarchy.directories(None) {
            make(&directory)?;
        }
        if version == Version::Two {
            for parent in [PathBuf::from(ROOT), hierarchy.directories(None)[0].clone()] {
                write(&parent.join("cgroup.subtree_control"), "+cpu +cpuset")?;
            }
        } else {
            hierarchy.inherit_cpuset(&hierarchy.directories(None)[1])?;
        }
        Ok(hierarchy)
    }

    /// Makes a group for a node.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn group(&self, node: &str) -> Result<Group> {
        let directories = self.directories(Some(node));
        for directory in &directories {
            make(directory)?;
        }
        if self.version == Version::One {
            self.inherit_cpuset(&directories[1])?;
        }
        Ok(Group {
            version: self.version,
            directories,
        })
    }

    fn directories(&self, node: Option<&str>) -> Vec<PathBuf> {
        let of = |root: PathBuf| {
            let own = root.join(&self.name);
            node.map_or(own.clone(), |node| own.join(node))
        };
        match self.version {
            Version::One => CONTROLLERS
                .iter()
                .map(|c| of(Path::new(ROOT).join(c)))
                .collect(),
            Version::Two => vec![of(PathBuf::from(ROOT))],
        }
    }

    /// A new group of version 1 has no processors, and takes no process before it has.
    fn inherit_cpuset(&self, directory: &Path) -> Result<()> {
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let parent = directory.parent().unwrap_or(directory).join(file);
            let value = fs::read_to_string(&parent).context(parent.display())?;
            write(&directory.join(file), value.trim())?;
        }
        Ok(())
    }
}

impl Drop for Hierarchy {
    fn drop(&mut self) {
        for directory in self.directories(None) {
            remove(&directory);
        }
    }
}

/// The group of one node.
#[derive(Debug)]
pub struct Group {
    version: Version,
    directories: Vec<PathBuf>,
}

impl Group {
    /// Files into which a process writes its id to join.
    pub fn entrances(&self) -> Vec<PathBuf> {
        self.directories
            .iter()
            .map(|directory| directory.join("cgroup.procs"))
            .collect()
    }

    /// Lets the node use so many processors' time; `None` for as much as there is.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn quota(&self, processors: Option<f64>) -> Result<()> {
        let quota = processors.map(|share| (share * PERIOD_US as f64) as u64);
        match (self.version, quota) {
            (Version::One, None) => write(&self.directories[0].join("cpu.cfs_quota_us"), "-1"),
            (Version::One, Some(quota)) => {
                write(
                    &self.directories[0].join("cpu.cfs_period_us"),
                    &PERIOD_US.to_string(),
                )?;
                write(
                    &self.directories[0].join("cpu.cfs_quota_us"),
                    &quota.to_string(),
                )
            }
            (Version::Two, None) => write(&self.directories[0].join("cpu.max"), "max"),
            (Version::Two, Some(quota)) => write(
                &self.directories[0].join("cpu.max"),
                &format!("{quota} {PERIOD_US}"),
            ),
        }
    }

    /// Lets the node run on these processors only, as in `0-1,3`. `None`: on all of its parent.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn processors(&self, list: Option<&str>) -> Result<()> {
        let directory = self.directories.last().unwrap_or(&self.directories[0]);
        let list = match (list, self.version) {
            (Some(list), _) => list.to_owned(),
            // An empty write would not reach the kernel.
            (None, Version::Two) => return write(&directory.join("cpuset.cpus"), "\n"),
            (None, Version::One) => {
                let parent = directory.parent().unwrap_or(directory).join("cpuset.cpus");
                fs::read_to_string(&parent).context(parent.display())?
            }
        };
        write(&directory.join("cpuset.cpus"), list.trim())
    }

    /// How long the node has waited since its quota was used up, in nanoseconds, over all processors.
    pub fn throttled_ns(&self) -> u64 {
        let text = fs::read_to_string(self.directories[0].join("cpu.stat")).unwrap_or_default();
        throttled(&text)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for directory in &self.directories {
            remove(directory);
        }
    }
}

/// The throttled time in a `cpu.stat`.
fn throttled(text: &str) -> u64 {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse::<u64>().ok())
    };
    match (value("throttled_time "), value("throttled_usec ")) {
        (Some(ns), _) => ns,
        (None, Some(us)) => us * 1000,
        (None, None) => 0,
    }
}

fn make(directory: &Path) -> Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        made => made.context(format!("cannot make {}", directory.display())),
    }
}

fn write(file: &Path, value: &str) -> Result<()> {
    fs::write(file, value).context(format!("cannot write {value} to {}", file.display()))
}

/// Removes a group and the groups in it. A group whose last process has just ended may still be busy.
fn remove(directory: &Path) {
    let begun = Instant::now();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove(&entry.path());
        }
    }
    while let Err(error) = fs::remove_dir(directory) {
        let gone = error.kind() == std::io::ErrorKind::NotFound;
        if gone || begun.elapsed() > Duration::from_secs(3) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Removes the groups of laboratories that were killed.
fn remove_leftovers(version: Version) {
    let roots: Vec<PathBuf> = match version {
        Version::One => CONTROLLERS
            .iter()
            .map(|c| Path::new(ROOT).join(c))
            .collect(),
        Version::Two => vec![PathBuf::from(ROOT)],
    };
    for root in roots {
        for entry in fs::read_dir(root).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let owner = name
                .strip_prefix(PREFIX)
                .and_then(|id| id.parse::<u32>().ok());
            if owner.is_some_and(|id| !Path::new(&format!("/proc/{id}")).exists()) {
                remove(&entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::throttled;

    #[test]
    fn throttled_time_is_read_in_both_versions() {
        assert_eq!(
            throttled("nr_periods 5\nnr_throttled 2\nthrottled_time 499000000\n"),
            499_000_000
        );
        assert_eq!(
            throttled("usage_usec 7\nnr_throttled 2\nthrottled_usec 499\n"),
            499_000
        );
        assert_eq!(throttled("usage_usec 7\n"), 0);
    }
}
