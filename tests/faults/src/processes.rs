//! The processes of a database: a server, or a master and workers.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cable::Cable;
use crate::cases::{Topology, WORKERS};
use crate::cgroup::{Group, Hierarchy};
use crate::error::{Context, Error, Result};

/// For what must happen, on a machine that is busy.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A process of the database.
#[derive(Debug)]
pub struct Node {
    /// 0 for the server or the master, the number of a worker otherwise.
    pub number: i64,
    child: Child,
    log: PathBuf,
    /// Its control group, where the machine allows one.
    pub group: Option<Group>,
}

impl Node {
    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        send(self.pid(), signal);
    }

    /// Processor time and time waiting for a processor of its threads, in nanoseconds so far.
    pub fn schedule(&self) -> Schedule {
        let mut total = Schedule::default();
        let tasks = format!("/proc/{}/task", self.pid());
        for task in fs::read_dir(tasks).into_iter().flatten().flatten() {
            let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let mut numbers = text
                .split_whitespace()
                .filter_map(|word| word.parse::<u64>().ok());
            total.ran_ns += numbers.next().unwrap_or_default();
            total.waited_ns += numbers.next().unwrap_or_default();
        }
        let throttled = self.group.as_ref().map(Group::throttled_ns);
        total.throttled_ns = throttled.unwrap_or_default();
        total
    }

    /// The first value of `field` in an event of its log with this message. Waits for it.
    fn logged(&mut self, message: &str, field: &str) -> Result<String> {
        let begun = Instant::now();
        loop {
            let text = fs::read_to_string(&self.log).unwrap_or_default();
            for line in text.lines() {
                let Ok(event) = serde_json::from_str::<Value>(line) else {
                    continue;
                };
                if event["message"] == message
                    && let Some(value) = event[field].as_str()
                {
                    return Ok(value.to_owned());
                }
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(Error::new(format!(
                    "node {} ended with {status} before it logged `{message}`: {text}",
                    self.number
                )));
            }
            if begun.elapsed() > PATIENCE {
                return Err(Error::new(format!(
                    "node {} has not logged `{message}` in {PATIENCE:?}: {text}",
                    self.number
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A stopped process would not notice anything else. The group goes after it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process.
pub(crate) fn send(pid: u32, signal: i32) {
    let Ok(pid) = libc::pid_t::try_from(pid) else {
        return;
    };
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: it takes numbers alone. The process is a child that has not been waited for, so that its
    // id is not another's.
    let _ = unsafe { libc::kill(pid, signal) };
}

/// What the kernel counted of a process's threads.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Schedule {
    /// Time on a processor.
    pub ran_ns: u64,
    /// Time in which they could have run; throttled time is part of it.
    pub waited_ns: u64,
    /// Time in which the control group's quota was used up.
    pub throttled_ns: u64,
}

/// How a database is started.
#[derive(Debug, Clone)]
pub struct Start<'a> {
    /// The program `skewer`.
    pub binary: &'a Path,
    /// Who takes part.
    pub topology: Topology,
    /// Where directories and logs go.
    pub directory: &'a Path,
    /// Makes control groups; nobody is limited without it.
    pub hierarchy: Option<&'a Hierarchy>,
}

/// A running database; its processes end when this is dropped.
#[derive(Debug)]
pub struct Processes {
    /// By number: first the server or master.
    pub nodes: Vec<Node>,
    /// Where clients connect, as host and port.
    pub address: String,
    /// The cable of the last worker, if it has one.
    pub cable: Option<Cable>,
    directory: PathBuf,
}

impl Processes {
    /// Starts a database and waits until clients can connect. Workers take part a little later.
    ///
    /// # Errors
    /// If a process does not start: with what it said.
    pub fn start(start: &Start<'_>) -> Result<Processes> {
        let directory = start.directory.join(start.topology.name());
        if directory.exists() {
            fs::remove_dir_all(&directory).context(directory.display())?;
        }
        fs::create_dir_all(&directory).context(directory.display())?;
        let data = directory.join("master");
        let cable = match start.topology {
            Topology::Cabled => Some(Cable::new()?),
            Topology::Single | Topology::Cluster => None,
        };
        let near = cable
            .as_ref()
            .map_or_else(|| "127.0.0.1".to_owned(), Cable::near);
        let cluster = format!("{near}:0");
        let mut arguments = vec!["serve", "--listen", "127.0.0.1:0"];
        if start.topology != Topology::Single {
            ask(start.binary, &["cluster", "init"], &data)?;
            arguments.extend(["--cluster-listen", &cluster]);
        }
        let mut server = spawn(start, &directory, 0, &arguments, &data, None)?;
        let address = server.logged("listening", "address")?;
        let mut processes = Processes {
            nodes: vec![server],
            address,
            cable,
            directory: directory.clone(),
        };
        if start.topology == Topology::Single {
            return Ok(processes);
        }
        for number in 1..=WORKERS {
            let token = ask(start.binary, &["cluster", "token", "--data"], &data)?;
            let home = directory.join(format!("worker-{number}"));
            let cable = processes.cable.as_ref().filter(|_| number == WORKERS);
            let host = cable.map_or_else(|| near.clone(), Cable::far);
            let listen = format!("{host}:0");
            let arguments = ["worker", "--listen", &listen, "--join", &token];
            let mut worker = spawn(start, &directory, number, &arguments, &home, cable)?;
            // One after the other, so that numbers are those of the cluster.
            worker.logged("taking part", "address")?;
            processes.nodes.push(worker);
        }
        Ok(processes)
    }

    /// A node by its number.
    ///
    /// # Errors
    /// If there is none.
    pub fn node(&self, number: i64) -> Result<&Node> {
        let found = self.nodes.iter().find(|node| node.number == number);
        found.ok_or_else(|| Error::new(format!("there is no node {number}")))
    }

    /// What each node has run and waited so far.
    pub fn schedules(&self) -> Vec<Schedule> {
        self.nodes.iter().map(Node::schedule).collect()
    }

    /// Says which process has ended, if one has.
    pub fn ended(&mut self) -> Option<String> {
        self.nodes.iter_mut().find_map(|node| {
            let status = node.child.try_wait().ok().flatten()?;
            let log = fs::read_to_string(&node.log).unwrap_or_default();
            let last: Vec<&str> = log.lines().rev().take(3).collect();
            Some(format!(
                "node {} has ended with {status}: {}",
                node.number,
                last.join(" | ")
            ))
        })
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        // Workers first: they would look for their master.
        while self.nodes.pop().is_some() {}
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Joins its control groups, then becomes the program.
const JOIN: &str =
    r#"while [ "$1" != -- ]; do echo $$ > "$1" || exit 97; shift; done; shift; exec "$@""#;

fn spawn(
    start: &Start<'_>,
    directory: &Path,
    number: i64,
    arguments: &[&str],
    data: &Path,
    cable: Option<&Cable>,
) -> Result<Node> {
    let name = format!("{}-{number}", start.topology.name());
    let group = start
        .hierarchy
        .map(|hierarchy| hierarchy.group(&name))
        .transpose()?;
    let log = directory.join(format!("{name}.log"));
    let file = File::create(&log).context(log.display())?;
    let mut words: Vec<String> = cable.map(Cable::prefix).into_iter().flatten().collect();
    words.extend(["sh", "-c", JOIN, "sh"].map(str::to_owned));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command.args(group.iter().flat_map(Group::entrances));
    command
        .arg("--")
        .arg(start.binary)
        .args(arguments)
        .arg("--data")
        .arg(data)
        .args(["--log", "json"]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file);
    #[expect(
        unsafe_code,
        reason = "to end with the laboratory, a child asks the kernel before it starts"
    )]
    // SAFETY: between fork and exec it makes one system call, which takes numbers alone.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    let child = command.spawn().context(start.binary.display())?;
    Ok(Node {
        number,
        child,
        log,
        group,
    })
}

/// Runs a command of `skewer` that ends; its output.
fn ask(binary: &Path, arguments: &[&str], data: &Path) -> Result<String> {
    let output = Command::new(binary)
        .args(arguments)
        .arg(data)
        .stdin(Stdio::null())
        .output();
    let output = output.context(binary.display())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(Error::new(format!(
        "{}: {}",
        arguments.join(" "),
        error.trim()
    )))
}
