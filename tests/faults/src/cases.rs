//! Draws cases from a seed.

use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::fault::Fault;

/// Cases by which thresholds are set, and others by which they are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Set {
    /// To look at while setting thresholds.
    Tune,
    /// To be looked at once thresholds are set.
    Judge,
}

impl Set {
    /// The name in ids of cases.
    pub fn name(self) -> &'static str {
        match self {
            Set::Tune => "tune",
            Set::Judge => "judge",
        }
    }

    /// Far apart, so that no seed that a person gives makes one set of the other.
    fn salt(self) -> u64 {
        match self {
            Set::Tune => 0x7475_6e65_0000_0000,
            Set::Judge => 0x6a75_6467_0000_0000,
        }
    }
}

/// Which processes run the query.
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
pub enum Topology {
    /// One server.
    Single,
    /// A master and three workers.
    Cluster,
    /// The same; the last worker is at a cable that can delay packets.
    Cabled,
}

impl Topology {
    /// All of them.
    pub const ALL: [Topology; 3] = [Topology::Single, Topology::Cluster, Topology::Cabled];

    /// The name in ids of cases.
    pub fn name(self) -> &'static str {
        match self {
            Topology::Single => "single",
            Topology::Cluster => "cluster",
            Topology::Cabled => "cabled",
        }
    }
}

/// Workers of a cluster.
pub const WORKERS: i64 = 3;

/// The shape of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Groups a few, and computes for each row.
    Aggregate,
    /// Joins two tables by hash, and computes for each row of the result.
    Join,
    /// Numbers and adds rows in windows of each key.
    Window,
    /// Makes as many groups as rows.
    Distinct,
    /// Filters by an expensive expression.
    Filter,
    /// What only one fault needs.
    Special,
}

impl Shape {
    /// Those that need no special fault.
    pub const ALL: [Shape; 5] = [
        Shape::Aggregate,
        Shape::Join,
        Shape::Window,
        Shape::Distinct,
        Shape::Filter,
    ];

    /// The name in ids of cases.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Aggregate => "aggregate",
            Shape::Join => "join",
            Shape::Window => "window",
            Shape::Distinct => "distinct",
            Shape::Filter => "filter",
            Shape::Special => "special",
        }
    }
}

/// A fault with its dose.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Injected {
    /// What.
    pub fault: Fault,
    /// How much: see [`Fault::unit`].
    pub dose: f64,
}

/// A query, and what is wrong when it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Unique, and the same whenever the same case is drawn.
    pub id: String,
    /// Which set it belongs to.
    pub set: Set,
    /// One, or two at once; [`Fault::Clean`] alone for nothing.
    pub faults: Vec<Injected>,
    /// Who runs the query.
    pub topology: Topology,
    /// What the query does.
    pub shape: Shape,
    /// The level of the profile.
    pub level: String,
    /// The worker that is ill, where one is.
    pub worker: i64,
    /// Whatever else is random: keys, rows, order.
    pub salt: u32,
}

impl Case {
    /// The faults in words.
    pub fn fault_name(&self) -> String {
        let names: Vec<&str> = self.faults.iter().map(|one| one.fault.name()).collect();
        names.join(" + ")
    }

    /// The dose of a fault, if the case has it.
    pub fn dose(&self, fault: Fault) -> Option<f64> {
        let found = self.faults.iter().find(|one| one.fault == fault);
        found.map(|one| one.dose)
    }

    /// Whether nothing is injected.
    pub fn is_clean(&self) -> bool {
        self.faults.iter().all(|one| one.fault == Fault::Clean)
    }
}

/// Pairs of faults that can be injected at once.
const PAIRS: [(Fault, Fault); 6] = [
    (Fault::HeavyKey, Fault::BusyMachine),
    (Fault::HeavyKey, Fault::ThrottledWorker),
    (Fault::NullKey, Fault::BusyMachine),
    (Fault::ExpensiveRecord, Fault::BusyMachine),
    (Fault::ExpensiveRecord, Fault::ThrottledWorker),
    (Fault::SlowClient, Fault::BusyMachine),
];

/// Where a fault can be.
fn topologies(fault: Fault) -> &'static [Topology] {
    match fault {
        Fault::ThrottledWorker | Fault::StoppedWorker | Fault::SizeSkew => &[Topology::Cluster],
        Fault::SlowLink => &[Topology::Cabled],
        // Each process of a cluster has a limit of its own, which is set when it starts.
        Fault::Spill | Fault::StarvedProfiler | Fault::SlowClient => &[Topology::Single],
        _ => &[Topology::Single, Topology::Cluster],
    }
}

/// In which queries a fault can be.
fn shapes(fault: Fault) -> &'static [Shape] {
    match fault {
        Fault::HeavyKey | Fault::ZipfKey | Fault::NullKey | Fault::DefaultKey => {
            &[Shape::Join, Shape::Window]
        }
        Fault::Spill => &[Shape::Window, Shape::Distinct],
        Fault::SizeSkew => &[Shape::Aggregate, Shape::Filter],
        Fault::ExpensiveRecord
        | Fault::MultiplyingKey
        | Fault::WrongEstimate
        | Fault::SlowClient
        | Fault::Planning => &[Shape::Special],
        Fault::StarvedProfiler => &[Shape::Join, Shape::Aggregate],
        Fault::SlowLink => &[Shape::Join, Shape::Window, Shape::Distinct],
        _ => &Shape::ALL,
    }
}

/// At which level a fault can be seen.
fn levels(fault: Fault) -> &'static [&'static str] {
    match fault {
        Fault::ExpensiveRecord | Fault::StarvedProfiler => &["records"],
        _ => &["counters", "counters", "counters", "calls"],
    }
}

/// How many queries, and of which faults.
#[derive(Debug, Clone)]
pub struct Draw {
    /// The set.
    pub set: Set,
    /// The seed; the set adds its own.
    pub seed: u64,
    /// Cases with a fault.
    pub faulty: usize,
    /// Cases without one.
    pub clean: usize,
    /// Faults to draw from; two at once are drawn only from all of them.
    pub faults: Vec<Fault>,
    /// Topologies to draw from.
    pub topologies: Vec<Topology>,
}

/// Draws cases: faults in turn, so that each has as many, and all else at random.
pub fn draw(draw: &Draw) -> Vec<Case> {
    let mut random = ChaCha8Rng::seed_from_u64(draw.seed ^ draw.set.salt());
    let mut cases = Vec::new();
    let faults: Vec<Fault> = draw
        .faults
        .iter()
        .copied()
        .filter(|fault| {
            topologies(*fault)
                .iter()
                .any(|one| draw.topologies.contains(one))
        })
        .collect();
    let turns = faults.len() + usize::from(faults.len() == Fault::ALL.len()) * 2;
    for number in 0..draw.faulty {
        if faults.is_empty() {
            break;
        }
        let (turn, round) = (number % turns, number / turns);
        let case = match faults.get(turn) {
            Some(fault) => one(&mut random, draw, *fault, round),
            None => two(&mut random, draw),
        };
        cases.push(case);
    }
    for _ in 0..draw.clean {
        cases.push(one(&mut random, draw, Fault::Clean, 0));
    }
    for (number, case) in cases.iter_mut().enumerate() {
        case.id = name(draw, number, case);
    }
    cases.shuffle(&mut random);
    cases
}

fn name(draw: &Draw, number: usize, case: &Case) -> String {
    let faults: Vec<String> = case
        .faults
        .iter()
        .map(|one| format!("{}@{}", one.fault.name().replace(' ', "-"), one.dose))
        .collect();
    format!(
        "{}-{}-{number:03} {} {} {} {}",
        draw.set.name(),
        draw.seed,
        faults.join("+"),
        case.topology.name(),
        case.shape.name(),
        case.level
    )
}

/// The doses of a fault in turn, the strongest first; each varied by up to a tenth.
fn one(random: &mut ChaCha8Rng, draw: &Draw, fault: Fault, round: usize) -> Case {
    let doses = fault.doses();
    let dose = doses[doses.len() - 1 - round % doses.len()];
    let dose = vary(random, fault, dose);
    let possible: Vec<Topology> = topologies(fault)
        .iter()
        .copied()
        .filter(|topology| draw.topologies.contains(topology))
        .collect();
    Case {
        id: String::new(),
        set: draw.set,
        faults: vec![Injected { fault, dose }],
        topology: pick(random, &possible, Topology::Single),
        shape: pick(random, shapes(fault), Shape::Special),
        level: pick(random, levels(fault), "counters").to_owned(),
        worker: match fault {
            // It is the last that has a cable.
            Fault::SlowLink => WORKERS,
            _ => random.random_range(1..=WORKERS),
        },
        salt: random.random_range(1..1_000_000),
    }
}

fn two(random: &mut ChaCha8Rng, draw: &Draw) -> Case {
    let (first, second) = pick(random, &PAIRS, PAIRS[0]);
    let both = |topology: &Topology| {
        topologies(first).contains(topology) && topologies(second).contains(topology)
    };
    let possible: Vec<Topology> = draw.topologies.iter().copied().filter(both).collect();
    if possible.is_empty() {
        return one(random, draw, first, 0);
    }
    let mut injected = |fault: Fault| {
        let dose = pick(random, fault.doses(), 1.0);
        Injected {
            fault,
            dose: vary(random, fault, dose),
        }
    };
    let faults = vec![injected(first), injected(second)];
    Case {
        id: String::new(),
        set: draw.set,
        faults,
        topology: pick(random, &possible, Topology::Single),
        // What the first needs, any of the second's may be.
        shape: pick(random, shapes(first), Shape::Special),
        level: pick(random, levels(first), "counters").to_owned(),
        worker: random.random_range(1..=WORKERS),
        salt: random.random_range(1..1_000_000),
    }
}

fn pick<T: Copy>(random: &mut ChaCha8Rng, among: &[T], otherwise: T) -> T {
    among.choose(random).copied().unwrap_or(otherwise)
}

/// A dose of a whole number stays as it is.
fn vary(random: &mut ChaCha8Rng, fault: Fault, dose: f64) -> f64 {
    match fault {
        Fault::Clean
        | Fault::NoisyNeighbour
        | Fault::BusyMachine
        | Fault::Queue
        | Fault::Planning
        | Fault::StarvedProfiler => dose,
        _ => {
            let varied = dose * random.random_range(0.9..1.1);
            let varied = (varied * 100.0).round() / 100.0;
            // A share must leave something.
            if dose < 1.0 { varied.min(0.95) } else { varied }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(set: Set, seed: u64) -> Draw {
        Draw {
            set,
            seed,
            faulty: 200,
            clean: 20,
            faults: Fault::ALL.to_vec(),
            topologies: Topology::ALL.to_vec(),
        }
    }

    #[test]
    fn the_same_seed_draws_the_same_cases() {
        assert_eq!(draw(&all(Set::Tune, 1)), draw(&all(Set::Tune, 1)));
    }

    #[test]
    fn sets_and_seeds_draw_other_cases() {
        let salts = |draw_of: Draw| {
            draw(&draw_of)
                .iter()
                .map(|case| case.salt)
                .collect::<Vec<_>>()
        };
        assert_ne!(salts(all(Set::Tune, 1)), salts(all(Set::Judge, 1)));
        assert_ne!(salts(all(Set::Judge, 2)), salts(all(Set::Judge, 1)));
    }

    #[test]
    fn each_fault_has_as_many_cases_with_each_dose() {
        let cases = draw(&all(Set::Judge, 7));
        assert_eq!(cases.len(), 220);
        for fault in Fault::ALL {
            let of = cases
                .iter()
                .filter(|case| case.faults.len() == 1 && case.faults[0].fault == fault);
            assert_eq!(of.count(), 10, "{fault:?}");
        }
        assert_eq!(
            cases.iter().filter(|case| case.faults.len() == 2).count(),
            20
        );
        let mut ids: Vec<_> = cases.iter().map(|case| &case.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 220);
    }

    #[test]
    fn faults_are_only_where_they_can_be() {
        for case in draw(&all(Set::Tune, 3)) {
            for one in &case.faults {
                assert!(
                    topologies(one.fault).contains(&case.topology),
                    "{}",
                    case.id
                );
            }
            assert!(
                shapes(case.faults[0].fault).contains(&case.shape),
                "{}",
                case.id
            );
        }
    }
}
