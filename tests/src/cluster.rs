//! A cluster on loopback: the master in this process, workers as processes of the `skewer` binary.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use skewer::cluster::{ClusterDirectory, Member, MemberState, NetOptions, NodeId};
use skewer::{ClusterOptions, Database, DatabaseBuilder, Session};
use tempfile::TempDir;

/// For what must happen, on a machine that is busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A master and its workers, which end when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    database: Option<Database>,
    /// By number, from 1; `None` once it was killed.
    workers: Vec<Option<Child>>,
    /// What workers run.
    program: PathBuf,
    prepare: Prepare,
    /// How long a node may be silent, if not as long as usual.
    patience: Option<Duration>,
    directory: TempDir,
}

/// Takes a worker's number.
type PrepareCommand = dyn Fn(u32, &mut Command);

/// What is done to a worker's command before it is started.
struct Prepare(Box<PrepareCommand>);

impl std::fmt::Debug for Prepare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Prepare")
    }
}

impl Cluster {
    /// A cluster of so many workers and an empty database.
    pub fn start(workers: u32) -> Cluster {
        Cluster::with(workers, |builder| builder)
    }

    /// The same, with options of the master's.
    pub fn with(workers: u32, options: impl FnOnce(DatabaseBuilder) -> DatabaseBuilder) -> Cluster {
        Cluster::with_workers(workers, options, |_, _| {})
    }

    /// The same, with options of the workers': of each, by its number, before it is started.
    pub fn with_workers(
        workers: u32,
        options: impl FnOnce(DatabaseBuilder) -> DatabaseBuilder,
        prepare: impl Fn(u32, &mut Command) + 'static,
    ) -> Cluster {
        let mut cluster = Cluster::closed(Box::new(prepare), None);
        cluster.open(options);
        cluster.add_workers(workers);
        cluster
    }

    /// Workers that run another program than `skewer`, which takes the same arguments.
    pub fn of_program(
        program: impl Into<PathBuf>,
        workers: u32,
        options: impl FnOnce(DatabaseBuilder) -> DatabaseBuilder,
    ) -> Cluster {
        let mut cluster = Cluster::closed(Box::new(|_, _| {}), None);
        cluster.program = program.into();
        cluster.open(options);
        cluster.add_workers(workers);
        cluster
    }

    /// A master without workers, to whom a node is lost that is silent for so long.
    pub fn with_patience(
        patience: Duration,
        options: impl FnOnce(DatabaseBuilder) -> DatabaseBuilder,
    ) -> Cluster {
        let mut cluster = Cluster::closed(Box::new(|_, _| {}), Some(patience));
        cluster.open(options);
        cluster
    }

    /// Its authority alone.
    fn closed(prepare: Box<PrepareCommand>, patience: Option<Duration>) -> Cluster {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("master");
        let cluster = ClusterOptions::directory_of(&data);
        ClusterDirectory::init(&cluster, "master", SystemTime::now()).unwrap();
        Cluster {
            database: None,
            workers: Vec::new(),
            program: binary().to_owned(),
            prepare: Prepare(prepare),
            patience,
            directory,
        }
    }

    fn open(&mut self, options: impl FnOnce(DatabaseBuilder) -> DatabaseBuilder) {
        let data = self.master_directory();
        let listen = match self.cluster_directory().address() {
            // Workers look for it where it was.
            Some(address) => address,
            None => "127.0.0.1:0".to_owned(),
        };
        let mut cluster = ClusterOptions::new(&data).listen(listen);
        if let Some(patience) = self.patience {
            cluster.heartbeat_timeout = patience;
            cluster.net = impatient(patience);
        }
        // As many partitions as golden scripts expect.
        let builder = Database::builder().path(data).worker_threads(2);
        let database = options(builder.cluster(cluster)).build().unwrap();
        self.database = Some(database);
    }

    /// The master's directory.
    pub fn master_directory(&self) -> PathBuf {
        self.directory.path().join("master")
    }

    /// The directory of worker `number`.
    pub fn worker_directory(&self, number: u32) -> PathBuf {
        self.directory.path().join(format!("worker-{number}"))
    }

    /// The cluster's authority.
    pub fn cluster_directory(&self) -> ClusterDirectory {
        let directory = ClusterOptions::directory_of(&self.master_directory());
        ClusterDirectory::open(&directory).unwrap()
    }

    /// The master.
    pub fn database(&self) -> &Database {
        self.database.as_ref().expect("the master runs")
    }

    /// A session of the master.
    pub fn session(&self) -> Session {
        self.database().session()
    }

    /// How many workers have joined.
    pub fn workers(&self) -> u32 {
        u32::try_from(self.workers.len()).unwrap()
    }

    /// A token with which one worker can join.
    pub fn token(&self) -> String {
        let address = self.database().cluster().unwrap().address().to_string();
        let hour = Duration::from_secs(3600);
        let token = self
            .cluster_directory()
            .token(&address, SystemTime::now(), hour);
        token.unwrap().to_string()
    }

    fn add_workers(&mut self, workers: u32) {
        for _ in 0..workers {
            self.add_worker();
        }
    }

    /// Lets another worker join; returns its number when it takes part.
    pub fn add_worker(&mut self) -> u32 {
        let number = u32::try_from(self.workers.len()).unwrap() + 1;
        let token = self.token();
        let name = format!("host-{number}");
        let child = self.spawn(number, &["--join", &token, "--name", &name]);
        self.workers.push(Some(child));
        self.wait_for(number, &MemberState::Alive);
        number
    }

    /// Starts a worker again that was killed, with its directory.
    pub fn restart_worker(&mut self, number: u32) {
        let child = self.spawn(number, &[]);
        *self.slot(number) = Some(child);
        self.wait_for(number, &MemberState::Alive);
    }

    /// Starts a worker again with a token that renews its certificate.
    pub fn renew_worker(&mut self, number: u32, token: &str) {
        let child = self.spawn(number, &["--join", token.trim()]);
        *self.slot(number) = Some(child);
        self.wait_for(number, &MemberState::Alive);
    }

    fn spawn(&self, number: u32, arguments: &[&str]) -> Child {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_file(number))
            .unwrap();
        let mut command = Command::new(&self.program);
        command
            .arg("worker")
            .arg("--data")
            .arg(self.worker_directory(number))
            .args(["--listen", "127.0.0.1:0", "--log", "json", "--threads", "2"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        (self.prepare.0)(number, &mut command);
        command.spawn().unwrap()
    }

    /// The process of worker `number`.
    pub fn process(&self, number: u32) -> u32 {
        let child = self.workers[number as usize - 1].as_ref();
        child.expect("the worker runs").id()
    }

    fn log_file(&self, number: u32) -> PathBuf {
        self.directory.path().join(format!("worker-{number}.log"))
    }

    /// What worker `number` has said.
    pub fn log(&self, number: u32) -> String {
        std::fs::read_to_string(self.log_file(number)).unwrap()
    }

    fn slot(&mut self, number: u32) -> &mut Option<Child> {
        &mut self.workers[number as usize - 1]
    }

    /// Kills a worker's process (SIGKILL); returns when it was.
    pub fn kill(&mut self, number: u32) -> Instant {
        let mut child = self.slot(number).take().expect("the worker runs");
        let killed = Instant::now();
        child.kill().unwrap();
        child.wait().unwrap();
        killed
    }

    /// Tells a worker to end (SIGTERM).
    pub fn terminate(&mut self, number: u32) {
        let child = self.slot(number).as_ref().expect("the worker runs");
        let mut kill = Command::new("kill");
        kill.args(["-TERM", &child.id().to_string()]);
        assert!(kill.status().unwrap().success());
    }

    /// Waits for a worker's process to end by itself.
    #[track_caller]
    pub fn ended(&mut self, number: u32) -> ExitStatus {
        let begun = Instant::now();
        loop {
            let child = self.slot(number).as_mut().expect("the worker runs");
            if let Some(status) = child.try_wait().unwrap() {
                *self.slot(number) = None;
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "{}", self.log(number));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A worker as the master sees it.
    pub fn member(&self, number: u32) -> Option<Member> {
        let members = self.database().cluster().unwrap().members();
        members.into_iter().find(|member| member.number == number)
    }

    /// Waits until the master sees a worker in this state, or lost for whatever reason if it is to
    /// be lost.
    #[track_caller]
    pub fn wait_for(&mut self, number: u32, state: &MemberState) {
        let begun = Instant::now();
        loop {
            let found = self.member(number).map(|member| member.state);
            match (&found, state) {
                (Some(MemberState::Lost(_)), MemberState::Lost(_)) => return,
                (Some(found), state) if found == state => return,
                _ => {}
            }
            let slot = self.workers.get_mut(number as usize - 1);
            if let Some(Some(child)) = slot
                && let Some(status) = child.try_wait().unwrap()
                && *state == MemberState::Alive
            {
                panic!("worker {number} ended with {status}: {}", self.log(number));
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{} is {found:?}: {}",
                NodeId(number),
                self.log(number)
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Closes the master and opens it again at the same address.
    pub fn restart_master(&mut self) {
        let database = self.database.take().expect("the master runs");
        skewer::blocking::Database::from(database).close().unwrap();
        self.open(|builder| builder);
    }
}

/// How nodes talk that take each other for dead after so long.
pub fn impatient(patience: Duration) -> NetOptions {
    NetOptions {
        idle_timeout: patience,
        keep_alive: patience / 5,
        ..NetOptions::default()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for worker in self.workers.iter_mut().flatten() {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

/// The `skewer` binary: that of `SKEWER_BINARY`, or the one of this build, which is built if it is
/// not up to date.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("SKEWER_BINARY") {
            return path.into();
        }
        // …/target/debug/deps/<test>
        let test = std::env::current_exe().unwrap();
        let built = test.ancestors().nth(2).unwrap();
        let mut build = Command::new(env!("CARGO"));
        // Of the whole workspace, as the tests are built: alone, the shell asks dependencies for fewer features, and they
        // would be built once more.
        build.args(["build", "--quiet", "--workspace", "--bin", "skewer"]);
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        // What cargo sets for tests would be read by build scripts of dependencies, ring's for one,
        // and they and all that uses them would be built anew: now, and by the next cargo again.
        for (variable, _) in std::env::vars_os() {
            let name = variable.to_string_lossy();
            if name.starts_with("CARGO_MANIFEST_") || name.starts_with("CARGO_PKG_") {
                build.env_remove(&variable);
            }
        }
        build.arg("--target-dir").arg(built.parent().unwrap());
        if built.ends_with("release") {
            build.arg("--release");
        }
        assert!(
            build.status().unwrap().success(),
            "the shell does not build"
        );
        built.join("skewer")
    })
}
