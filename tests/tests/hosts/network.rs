//! Hosts that are network namespaces, and a cluster on them.
//!
//! ```text
//!   namespace m          namespace a         namespace b
//!   skewer serve         skewer worker       skewer worker
//!   10.203.0.1           10.203.0.2          10.203.0.3
//!        └───────────── bridge, in a namespace of its own ──────┘
//! ```

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use skewer_tests::cluster::binary;
use tempfile::TempDir;

use crate::wire::{self, Weather};

/// For what must happen, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(120);

const HOSTS: [&str; 3] = ["m", "a", "b"];
/// The host with the bad connection.
const WEATHERED: &str = "b";
const MASTER: &str = "10.203.0.1:7433";
const SERVER: &str = "127.0.0.1:5432";

/// Three hosts; gone when this is dropped.
#[derive(Debug)]
pub struct Network {
    /// What the names of the namespaces begin with.
    prefix: String,
    /// The cable of [`WEATHERED`], if it is one in user space.
    cable: Option<Weather>,
}

impl Network {
    /// The hosts, connected; `None`, loudly, where that cannot be.
    pub fn new(test: &'static str) -> Option<Network> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("skewer-{}-{count}", std::process::id());
        let mut network = Network {
            prefix,
            cable: None,
        };
        match network.connect() {
            Ok(()) => Some(network),
            Err(reason) => {
                skip(test, &reason);
                None
            }
        }
    }

    fn connect(&mut self) -> Result<(), String> {
        let switch = self.namespace("switch");
        ip(&format!("netns add {switch}"))?;
        ip(&format!("-n {switch} link add bridge type bridge"))?;
        ip(&format!("-n {switch} link set bridge up"))?;
        for (number, host) in (1..).zip(HOSTS) {
            let namespace = self.namespace(host);
            ip(&format!("netns add {namespace}"))?;
            if host == WEATHERED && !has_netem(&namespace) {
                self.cable = Some(self.cable_to(host)?);
            } else {
                ip(&format!(
                    "-n {switch} link add name {host} type veth peer name eth0 netns {namespace}"
                ))?;
            }
            ip(&format!("-n {switch} link set dev {host} master bridge up"))?;
            ip(&format!(
                "-n {namespace} addr add 10.203.0.{number}/24 dev eth0"
            ))?;
            ip(&format!("-n {namespace} link set eth0 up"))?;
            ip(&format!("-n {namespace} link set lo up"))?;
        }
        Ok(())
    }

    /// A cable in user space from a host to the switch.
    fn cable_to(&self, host: &str) -> Result<Weather, String> {
        let id = self.prefix.trim_start_matches("skewer-");
        let (near, far) = (format!("n{id}"), format!("f{id}"));
        let weather = wire::cable(&near, &far).map_err(|error| format!("TAP device: {error}"))?;
        ip(&format!(
            "link set dev {near} netns {}",
            self.namespace("switch")
        ))?;
        ip(&format!(
            "link set dev {far} netns {}",
            self.namespace(host)
        ))?;
        ip(&format!(
            "-n {} link set dev {near} name {host}",
            self.namespace("switch")
        ))?;
        ip(&format!(
            "-n {} link set dev {far} name eth0",
            self.namespace(host)
        ))?;
        Ok(weather)
    }

    fn namespace(&self, host: &str) -> String {
        format!("{}-{host}", self.prefix)
    }

    /// A program on a host.
    fn command(&self, host: &str, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.namespace(host)])
            .arg(program);
        command
    }

    /// Nothing longer than `bytes` gets to a host, or away from it.
    pub fn small_packets(&self, host: &str, bytes: u32) {
        let (switch, namespace) = (self.namespace("switch"), self.namespace(host));
        ip(&format!("-n {switch} link set dev {host} mtu {bytes}")).unwrap();
        ip(&format!("-n {namespace} link set eth0 mtu {bytes}")).unwrap();
    }

    /// Delays and loses packets that [`WEATHERED`] sends, and those that are sent to it: by netem,
    /// or by a cable in user space where the kernel has none.
    pub fn bad_weather(&self, delay: Duration, lost_percent: f64) {
        if let Some(cable) = &self.cable {
            return cable.set(delay, lost_percent);
        }
        let (switch, host) = (self.namespace("switch"), self.namespace(WEATHERED));
        for (namespace, link) in [(switch, WEATHERED), (host, "eth0")] {
            tc(&format!(
                "-n {namespace} qdisc add dev {link} root netem delay {}us loss {lost_percent}%",
                delay.as_micros()
            ))
            .unwrap();
        }
    }

    /// Asserts that the weather was bad, as far as it can be seen: netem does not tell.
    pub fn has_lost_packets(&self) {
        if let Some(cable) = &self.cable {
            assert!(cable.dropped() > 0);
        }
    }

    /// Pulls the cable of a host.
    pub fn cut(&self, host: &str) {
        let switch = self.namespace("switch");
        ip(&format!("-n {switch} link set dev {host} down")).unwrap();
    }

    /// Plugs it in again.
    pub fn mend(&self, host: &str) {
        let switch = self.namespace("switch");
        ip(&format!("-n {switch} link set dev {host} up")).unwrap();
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in HOSTS.iter().chain(&["switch"]) {
            // What was not made cannot be deleted.
            let _ = ip(&format!("netns del {}", self.namespace(host)));
        }
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    run("ip", arguments)
}

fn tc(arguments: &str) -> Result<(), String> {
    run("tc", arguments)
}

/// Whether the kernel can delay and lose packets by itself.
fn has_netem(namespace: &str) -> bool {
    let tried = tc(&format!(
        "-n {namespace} qdisc add dev lo root netem delay 1ms"
    ));
    tried.is_ok() && tc(&format!("-n {namespace} qdisc del dev lo root")).is_ok()
}

fn run(program: &str, arguments: &str) -> Result<(), String> {
    let output = Command::new(program).args(arguments.split(' ')).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let error = String::from_utf8_lossy(&output.stderr);
            Err(format!("{program} {arguments}: {}", error.trim()))
        }
    }
}

/// Says that a test, or a part of one, is not run, past the harness, which keeps quiet about tests
/// that succeed.
fn skip(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}

/// A master and two workers.
#[derive(Debug)]
pub struct Cluster<'a> {
    network: &'a Network,
    processes: Vec<Child>,
    directory: TempDir,
}

impl<'a> Cluster<'a> {
    /// Starts the processes and waits until all take part.
    pub fn start(network: &'a Network) -> Cluster<'a> {
        let directory = tempfile::tempdir().unwrap();
        let mut cluster = Cluster {
            network,
            processes: Vec::new(),
            directory,
        };
        let data = cluster.directory.path().join("m");
        let data = data.to_str().unwrap().to_owned();
        asked(Command::new(binary()).args(["cluster", "init", &data]));
        cluster.spawn(
            "m",
            &[
                "serve",
                "--data",
                &data,
                "--listen",
                SERVER,
                "--cluster-listen",
                MASTER,
            ],
        );
        cluster.wait_until_served();
        for host in ["a", "b"] {
            let token = asked(Command::new(binary()).args([
                "cluster",
                "token",
                "--data",
                &data,
                "--address",
                MASTER,
            ]));
            let (name, home) = (format!("host-{host}"), cluster.directory.path().join(host));
            let (home, listen) = (home.to_str().unwrap(), address_of(host));
            cluster.spawn(
                host,
                &[
                    "worker",
                    "--data",
                    home,
                    "--join",
                    token.trim(),
                    "--name",
                    &name,
                    "--listen",
                    &listen,
                ],
            );
        }
        cluster.wait_for_workers(2);
        cluster
    }

    fn spawn(&mut self, host: &str, arguments: &[&str]) {
        let log = File::create(self.log_file(host)).unwrap();
        let child = self
            .network
            .command(host, binary())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.processes.push(child.unwrap());
    }

    fn log_file(&self, host: &str) -> std::path::PathBuf {
        self.directory.path().join(format!("{host}.log"))
    }

    fn logs(&self) -> String {
        let log = |host: &&str| std::fs::read_to_string(self.log_file(host)).unwrap_or_default();
        HOSTS.iter().map(log).collect::<Vec<_>>().join("\n")
    }

    /// Runs SQL on the master; its result as CSV without the header.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> String {
        let query = self.begin(sql);
        let output = query.ended();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{sql}\n{error}\n{}", self.logs());
        let text = String::from_utf8(output.stdout).unwrap();
        let rows = text
            .trim_end()
            .split_once('\n')
            .map_or("", |(_, rows)| rows);
        rows.to_owned()
    }

    /// Begins to run SQL on the master.
    pub fn begin(&self, sql: &str) -> Query {
        let child = self
            .network
            .command("m", binary())
            .args(["shell", "--connect", SERVER, "--format", "csv", "-c", sql])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Query(child.unwrap())
    }

    fn wait_until_served(&self) {
        let begun = Instant::now();
        while !self.begin("SELECT 1").ended().status.success() {
            assert!(begun.elapsed() < PATIENCE, "{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until so many workers take part.
    pub fn wait_for_workers(&self, workers: u32) {
        let begun = Instant::now();
        let sql = "SELECT count(*) FROM sys.workers \
                   WHERE query_id IS NULL AND state = 'alive' AND worker_id > 0";
        while self.sql(sql) != workers.to_string() {
            assert!(begun.elapsed() < PATIENCE, "{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn address_of(host: &str) -> String {
    let number = HOSTS.iter().position(|known| *known == host).unwrap() + 1;
    format!("10.203.0.{number}:0")
}

#[track_caller]
fn asked(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout).unwrap()
}

/// SQL that runs.
#[derive(Debug)]
pub struct Query(Child);

impl Query {
    fn ended(mut self) -> Output {
        let begun = Instant::now();
        while self.0.try_wait().unwrap().is_none() {
            if begun.elapsed() > PATIENCE {
                let _ = self.0.kill();
                panic!("a query hangs: {:?}", self.0.wait_with_output());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.0.wait_with_output().unwrap()
    }

    /// Waits for the end, which must be an error; what it says.
    #[track_caller]
    pub fn fails(self) -> String {
        let output = self.ended();
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}
