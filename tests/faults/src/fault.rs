//! The faults, and which diagnoses are right for each.

use serde::{Deserialize, Serialize};

/// What is wrong in a case.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Nothing.
    Clean,
    /// One worker has used up the processor time that its control group may use.
    ThrottledWorker,
    /// One worker is stopped and continued in turns (SIGSTOP, SIGCONT).
    StoppedWorker,
    /// Other programs compute on the processor to which a node is pinned.
    NoisyNeighbour,
    /// Other programs compute on all processors.
    BusyMachine,
    /// The memory limit makes operators write to temporary files.
    Spill,
    /// One key has many of the rows.
    HeavyKey,
    /// Keys follow Zipf's distribution.
    ZipfKey,
    /// The key is NULL in many rows.
    NullKey,
    /// The key is a default value in many rows.
    DefaultKey,
    /// One worker owns most rows of a table.
    SizeSkew,
    /// One record takes very long.
    ExpensiveRecord,
    /// Many rows of both inputs of a join have one key.
    MultiplyingKey,
    /// Correlated filters make the planner expect few rows.
    WrongEstimate,
    /// The client reads slowly.
    SlowClient,
    /// The statement waits for others.
    Queue,
    /// Planning takes long.
    Planning,
    /// The profiler has too little memory.
    StarvedProfiler,
    /// Packets of one worker arrive late.
    SlowLink,
}

impl Fault {
    /// All but [`Fault::Clean`].
    pub const ALL: [Fault; 18] = [
        Fault::ThrottledWorker,
        Fault::StoppedWorker,
        Fault::NoisyNeighbour,
        Fault::BusyMachine,
        Fault::Spill,
        Fault::HeavyKey,
        Fault::ZipfKey,
        Fault::NullKey,
        Fault::DefaultKey,
        Fault::SizeSkew,
        Fault::ExpensiveRecord,
        Fault::MultiplyingKey,
        Fault::WrongEstimate,
        Fault::SlowClient,
        Fault::Queue,
        Fault::Planning,
        Fault::StarvedProfiler,
        Fault::SlowLink,
    ];

    /// The name in logs and tables.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Clean => "clean",
            Fault::ThrottledWorker => "throttled worker",
            Fault::StoppedWorker => "stopped worker",
            Fault::NoisyNeighbour => "noisy neighbour",
            Fault::BusyMachine => "busy machine",
            Fault::Spill => "spill",
            Fault::HeavyKey => "heavy key",
            Fault::ZipfKey => "Zipf keys",
            Fault::NullKey => "NULL keys",
            Fault::DefaultKey => "default key",
            Fault::SizeSkew => "size skew",
            Fault::ExpensiveRecord => "expensive record",
            Fault::MultiplyingKey => "multiplying key",
            Fault::WrongEstimate => "wrong estimate",
            Fault::SlowClient => "slow client",
            Fault::Queue => "queue",
            Fault::Planning => "planning",
            Fault::StarvedProfiler => "starved profiler",
            Fault::SlowLink => "slow link",
        }
    }

    /// How strong the fault is in its cases; [`Fault::unit`] says of what.
    pub fn doses(self) -> &'static [f64] {
        match self {
            Fault::Clean => &[0.0],
            Fault::ThrottledWorker => &[0.8, 0.5, 0.2],
            Fault::StoppedWorker => &[0.25, 0.5, 0.75],
            Fault::NoisyNeighbour => &[1.0, 2.0, 4.0],
            Fault::BusyMachine => &[2.0, 4.0, 8.0],
            Fault::Spill => &[0.6, 0.4, 0.25],
            Fault::HeavyKey => &[0.1, 0.3, 0.5, 0.7, 0.9],
            Fault::ZipfKey => &[0.5, 1.0, 1.5, 2.0],
            Fault::NullKey | Fault::DefaultKey => &[0.3, 0.5, 0.8],
            Fault::SizeSkew => &[0.5, 0.7, 0.9],
            Fault::ExpensiveRecord => &[0.25, 0.5, 1.0, 2.0],
            Fault::MultiplyingKey => &[0.5, 2.0, 8.0],
            Fault::WrongEstimate => &[0.05, 0.2, 0.8],
            Fault::SlowClient => &[0.25, 0.5, 1.5],
            Fault::Queue => &[1.0, 2.0, 4.0],
            Fault::Planning => &[8.0, 14.0, 20.0],
            Fault::StarvedProfiler => &[4.0, 16.0, 64.0],
            Fault::SlowLink => &[1.0, 5.0, 20.0],
        }
    }

    /// What a dose counts.
    pub fn unit(self) -> &'static str {
        match self {
            Fault::Clean => "",
            Fault::ThrottledWorker => "of a processor for the worker",
            Fault::StoppedWorker => "of the time stopped",
            Fault::NoisyNeighbour | Fault::BusyMachine => "threads that compute",
            Fault::Spill => "of the memory that the query needs",
            Fault::HeavyKey | Fault::NullKey | Fault::DefaultKey => "of the rows",
            Fault::ZipfKey => "exponent",
            Fault::SizeSkew => "of the rows on one worker",
            Fault::ExpensiveRecord => "of the query's time, for one record",
            Fault::MultiplyingKey => "rows of the join for each row of the tables",
            Fault::WrongEstimate => "of the rows where next to none is expected",
            Fault::SlowClient => "of the query's time slept",
            Fault::Queue => "statements ahead",
            Fault::Planning => "tables joined",
            Fault::StarvedProfiler => "kB",
            Fault::SlowLink => "ms each way",
        }
    }
}

/// Where a fault was injected, as far as a diagnosis can name it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// The worker.
    pub worker: Option<i64>,
    /// One of these texts names the key.
    #[serde(default)]
    pub keys: Vec<String>,
    /// The table, without schema.
    pub table: Option<String>,
    /// The row of the table.
    pub row: Option<i64>,
}

/// A diagnosis that is right for a fault.
#[derive(Debug, Clone, Copy)]
pub struct Accepted {
    /// The rule, as in `sys.diagnoses`; the name of a detector.
    pub rule: &'static str,
    /// One of these words must be in its text; any text will do if there are none.
    pub words: &'static [&'static str],
    /// Whether it must name the key, if a key is at fault.
    pub keyed: bool,
}

const fn rule(rule: &'static str) -> Accepted {
    Accepted {
        rule,
        words: &[],
        keyed: true,
    }
}

const fn worded(rule: &'static str, words: &'static [&'static str]) -> Accepted {
    Accepted {
        rule,
        words,
        keyed: true,
    }
}

/// A rule that cannot name keys: the laboratory does not ask it to.
const fn unkeyed(rule: &'static str) -> Accepted {
    Accepted {
        rule,
        words: &[],
        keyed: false,
    }
}

/// Words for time in which a thread could have run, but had no processor.
const QUEUED: &[&str] = &["waited for a processor", "waiting for a processor"];

/// Words for time in which a process did not run, without a reason that a process can see.
const NOT_RUNNING: &[&str] = &[
    "stopped",
    "did not run",
    "waiting for disk, memory or locks",
    "not explained",
    "several causes",
];

/// Words for a quota.
const QUOTA: &[&str] = &["throttled", "quota"];

/// Words for an uneven number of rows.
const ROWS: &[&str] = &["more rows"];

/// Words for a key with many rows.
const KEY: &[&str] = &["the key"];

/// Words for the network.
const NETWORK: &[&str] = &["network", "link"];

/// Diagnoses of a machine with too few processors for what runs on it. Where the laboratory itself has
/// seen processes wait, they are true whatever else was injected.
pub const CONTENTION: &[Accepted] = &[
    rule("waited for a processor"),
    rule("processor contention"),
    rule("noisy neighbour"),
    worded("straggler task", QUEUED),
    worded("slow worker", QUEUED),
    worded("straggler node", QUEUED),
];

/// HybridTune's rules name nodes that are slow, not why.
const NODE: [Accepted; 2] = [
    rule("hybridtune straggler node"),
    rule("hybridtune abnormal node"),
];

/// HybridTune's rule names tasks with many rows, not keys.
const TASK: Accepted = unkeyed("hybridtune data skew");

const NEIGHBOUR: &[Accepted] = &[
    rule("waited for a processor"),
    rule("processor contention"),
    rule("noisy neighbour"),
    worded("straggler task", QUEUED),
    worded("slow worker", QUEUED),
    worded("straggler node", QUEUED),
    NODE[0],
    NODE[1],
];

const THROTTLED: &[Accepted] = &[
    rule("throttled worker"),
    worded("straggler task", QUOTA),
    worded("slow worker", QUOTA),
    worded("straggler node", QUOTA),
    NODE[0],
    NODE[1],
];

const STOPPED: &[Accepted] = &[
    rule("stopped worker"),
    worded("slow worker", NOT_RUNNING),
    worded("straggler node", NOT_RUNNING),
    worded("straggler task", NOT_RUNNING),
    NODE[0],
    NODE[1],
];

const SPILL: &[Accepted] = &[rule("spilling"), rule("memory pressure")];

const HEAVY: &[Accepted] = &[
    rule("heavy key"),
    worded("data skew", KEY),
    worded("uneven rows", KEY),
    TASK,
];

const NULLS: &[Accepted] = &[
    rule("NULL keys"),
    worded("heavy key", &["NULL"]),
    worded("data skew", &["NULL"]),
    worded("uneven rows", &["NULL"]),
    TASK,
];

const DEFAULTS: &[Accepted] = &[
    rule("NULL keys"),
    rule("heavy key"),
    worded("data skew", KEY),
    worded("uneven rows", KEY),
    TASK,
];

const SIZE: &[Accepted] = &[
    rule("data skew"),
    rule("uneven rows"),
    rule("uneven placement"),
    rule("uneven assignment"),
    rule("task assignment"),
    rule("task imbalance"),
    TASK,
    rule("hybridtune task assignment"),
    worded("straggler task", ROWS),
];

const RECORD: &[Accepted] = &[rule("expensive input")];

const MULTIPLYING: &[Accepted] = &[rule("hot join key"), rule("join multiplies rows")];

const ESTIMATE: &[Accepted] = &[
    rule("wrong estimate"),
    rule("wrong build side"),
    rule("build side"),
];

const CLIENT: &[Accepted] = &[rule("slow client")];

const WAITING: &[Accepted] = &[rule("queued statement")];

const PLANNING: &[Accepted] = &[rule("slow planning")];

const PROFILER: &[Accepted] = &[rule("incomplete profile"), rule("costly profiling")];

const LINK: &[Accepted] = &[
    rule("slow link"),
    worded("straggler task", NETWORK),
    worded("slow worker", NETWORK),
    worded("straggler node", NETWORK),
];

impl Fault {
    /// The one table of what is right for what.
    pub fn accepted(self) -> &'static [Accepted] {
        match self {
            Fault::Clean => &[],
            Fault::ThrottledWorker => THROTTLED,
            Fault::StoppedWorker => STOPPED,
            Fault::NoisyNeighbour => NEIGHBOUR,
            Fault::BusyMachine => CONTENTION,
            Fault::Spill => SPILL,
            Fault::HeavyKey | Fault::ZipfKey => HEAVY,
            Fault::NullKey => NULLS,
            Fault::DefaultKey => DEFAULTS,
            Fault::SizeSkew => SIZE,
            Fault::ExpensiveRecord => RECORD,
            Fault::MultiplyingKey => MULTIPLYING,
            Fault::WrongEstimate => ESTIMATE,
            Fault::SlowClient => CLIENT,
            Fault::Queue => WAITING,
            Fault::Planning => PLANNING,
            Fault::StarvedProfiler => PROFILER,
            Fault::SlowLink => LINK,
        }
    }
}
