//! How the laboratory counts, with asserted numbers.

use skewer_faults::cases::{Case, Injected, Set, Shape, Topology};
use skewer_faults::fault::{Fault, Place};
use skewer_faults::records::{CaseEnd, Line, Program, Run};
use skewer_faults::scoring::{Confusion, Share, Tally, Truth, median, ratio, wilson};
use skewer_faults::sql::{Finding, Times};
use skewer_faults::summary::{summarize, verdict};

#[track_caller]
fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 5e-5, "{found}, not {expected}");
}

#[test]
fn wilsons_interval_is_that_of_the_books() {
    for (hits, trials, low, high) in [
        (0.0, 300.0, 0.0, 0.012_643),
        (90.0, 100.0, 0.825_634, 0.944_772),
        (5.0, 10.0, 0.236_593, 0.763_407),
        (10.0, 10.0, 0.722_467, 1.0),
    ] {
        let interval = wilson(hits, trials);
        near(interval.0, low);
        near(interval.1, high);
    }
    assert_eq!(wilson(0.0, 0.0), (0.0, 1.0));
}

#[test]
fn medians_of_odd_and_even_numbers() {
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[3.0]), Some(3.0));
    assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
    assert_eq!(median(&[9.0, 1.0, 5.0, 2.0]), Some(3.5));
}

#[test]
fn the_truth_is_the_difference_of_medians() {
    let truth = Truth::of(&[130.0, 900.0, 125.0], &[100.0, 101.0, 10.0]).unwrap();
    near(truth.cost_ns(), 30.0);
    near(truth.share(), 30.0 / 130.0);
    assert!(!truth.is_clean() && truth.is_large());
    let clean = Truth::of(&[104.0], &[100.0]).unwrap();
    assert!(clean.is_clean() && !clean.is_large());
    let medium = Truth::of(&[110.0], &[100.0]).unwrap();
    assert!(!medium.is_clean() && !medium.is_large());
    assert_eq!(Truth::of(&[], &[1.0]), None);
    // Slower in the median, but in three pairs of five only.
    let unsure = Truth::of(
        &[130.0, 120.0, 90.0, 125.0, 90.0],
        &[100.0, 100.0, 100.0, 100.0, 100.0],
    );
    assert!(truth.is_sure && !unsure.unwrap().is_sure);
}

#[test]
fn a_cost_is_off_by_the_same_factor_in_both_directions() {
    near(ratio(50.0, 100.0), 2.0);
    near(ratio(200.0, 100.0), 2.0);
    assert!(ratio(0.0, 100.0).is_infinite());
    assert!(ratio(100.0, -1.0).is_infinite());
}

#[test]
fn precision_recall_and_f1() {
    let tally = Tally {
        hits: 8,
        false_alarms: 2,
        misses: 4,
    };
    near(tally.precision().value().unwrap(), 0.8);
    near(tally.recall().value().unwrap(), 2.0 / 3.0);
    near(tally.f1().value().unwrap(), 8.0 / 11.0);
    assert_eq!(Tally::default().f1().value(), None);
    let share = Share::where_true([1, 2, 3, 4], |number| *number > 1);
    near(share.value().unwrap(), 0.75);
}

#[test]
fn confusion_counts_pairs() {
    let mut confusion = Confusion::default();
    confusion.add("spill", "spilling");
    confusion.add("spill", "spilling");
    confusion.add("spill", "nothing");
    confusion.add("queue", "queued statement");
    assert_eq!(confusion.rows(), ["queue", "spill"]);
    assert_eq!(
        confusion.columns(),
        ["nothing", "queued statement", "spilling"]
    );
    assert_eq!(confusion.count("spill", "spilling"), 2);
    assert_eq!(confusion.count("queue", "spilling"), 0);
}

fn finding(place: i64, rule: &str, worker_id: Option<i64>, cost_ms: i64) -> Finding {
    Finding {
        rule: rule.to_owned(),
        severity: "warning".to_owned(),
        place: Some(place),
        worker_id,
        cost_ns: Some(cost_ms * 1_000_000),
        ..Finding::default()
    }
}

fn on_worker(number: i64) -> Place {
    Place {
        worker: Some(number),
        ..Place::default()
    }
}

const TRUTH: Truth = Truth {
    with_ns: 500e6,
    without_ns: 300e6,
    is_sure: true,
};

#[test]
fn the_majority_of_runs_decides() {
    let right = [finding(1, "throttled worker", Some(2), 100)];
    let wrong = [
        finding(1, "uneven rows", Some(2), 300),
        finding(2, "throttled worker", Some(2), 250),
    ];
    let faults = [(Fault::ThrottledWorker, on_worker(2))];
    let judged = verdict(
        &[(&right, 0.0), (&right, 0.0), (&wrong, 0.0)],
        &faults,
        TRUTH,
    );
    assert_eq!(judged.first, "throttled worker");
    assert!(judged.first_right);
    assert_eq!(judged.found, [true]);
    assert!(judged.wrong_rules.is_empty());
    near(judged.cost_ratio.unwrap(), 2.0);
    let judged = verdict(
        &[(&wrong, 0.0), (&right, 0.0), (&wrong, 0.0)],
        &faults,
        TRUTH,
    );
    assert!(!judged.first_right);
    assert_eq!(judged.found, [true]);
    assert_eq!(Vec::from_iter(&judged.wrong_rules), ["uneven rows"]);
    assert_eq!(Vec::from_iter(&judged.right_rules), ["throttled worker"]);
}

#[test]
fn contention_that_was_there_may_come_first() {
    let found = [
        finding(1, "waited for a processor", None, 100),
        finding(2, "throttled worker", Some(2), 100),
    ];
    let faults = [(Fault::ThrottledWorker, on_worker(2))];
    let contended = verdict(&[(&found, 0.3)], &faults, TRUTH);
    assert!(!contended.first_right);
    assert!(contended.first_right_beside_contention);
    assert!(contended.wrong_rules.is_empty());
    let idle = verdict(&[(&found, 0.0)], &faults, TRUTH);
    assert!(!idle.first_right_beside_contention);
    assert_eq!(
        Vec::from_iter(&idle.wrong_rules),
        ["waited for a processor"]
    );
}

#[test]
fn nothing_found_is_a_miss() {
    let judged = verdict(
        &[(&[], 0.0), (&[], 0.0)],
        &[(Fault::Queue, Place::default())],
        TRUTH,
    );
    assert_eq!(judged.first, "nothing");
    assert!(!judged.first_right);
    assert_eq!(judged.found, [false]);
    assert_eq!(judged.cost_ratio, None);
}

#[test]
fn of_two_faults_either_may_come_first_and_both_are_wanted() {
    let found = [finding(1, "throttled worker", Some(2), 100)];
    let key = Place {
        keys: vec!["4711".to_owned()],
        ..Place::default()
    };
    let faults = [
        (Fault::HeavyKey, key),
        (Fault::ThrottledWorker, on_worker(2)),
    ];
    let judged = verdict(&[(&found, 0.0)], &faults, TRUTH);
    assert!(judged.first_right);
    assert_eq!(judged.found, [false, true]);
    assert_eq!(judged.cost_ratio, None);
}

fn lines(id: &str, fault: Fault, with_ms: u64, named: &[Finding]) -> Vec<Line> {
    let case = Case {
        id: id.to_owned(),
        set: Set::Judge,
        faults: vec![Injected { fault, dose: 0.2 }],
        topology: Topology::Cluster,
        shape: Shape::Join,
        level: "counters".to_owned(),
        worker: 2,
        salt: 1,
    };
    let run = |faulty: bool, ms: u64| {
        Line::Run(Run {
            case: id.to_owned(),
            program: Program::Judged,
            faulty,
            query_id: 1,
            elapsed_ns: ms * 1_000_000,
            contention: 0.0,
            times: Times::default(),
            reading_ns: 1_000_000,
            diagnoses: if faulty { named.to_vec() } else { Vec::new() },
            hybridtune: Vec::new(),
        })
    };
    let end = Line::Case(CaseEnd {
        case,
        program: Program::Judged,
        places: vec![on_worker(2)],
        skipped: None,
    });
    vec![run(false, 100), run(true, with_ms), end]
}

#[test]
fn a_summary_counts_cases_losers_and_clean_runs() {
    let right = [finding(1, "throttled worker", Some(2), 150)];
    let wrong = [finding(1, "uneven rows", Some(2), 150)];
    let mut log = lines("found", Fault::ThrottledWorker, 200, &right);
    log.extend(lines("lost", Fault::ThrottledWorker, 200, &wrong));
    log.extend(lines("too small", Fault::ThrottledWorker, 101, &wrong));
    // Slower in the median, but only one of two times: nobody knows.
    let mut unsure = lines("unsure", Fault::ThrottledWorker, 300, &right);
    for (line, ms) in unsure.drain(..2).zip([100, 300]) {
        let Line::Run(run) = line else { unreachable!() };
        log.push(Line::Run(run.clone()));
        log.push(Line::Run(Run {
            elapsed_ns: (if ms == 100 { 120 } else { 110 }) * 1_000_000,
            ..run
        }));
    }
    log.extend(unsure);
    let text = summarize(&log);
    for line in [
        "4 cases with a fault ran; the fault cost at least 5 % of the query's time in 2, and at least 20 % in 2. \
         The cost of 1 is unknown, since other programs made times uneven: they are left out. \
         There are 5 clean runs;",
        "| right cause and place first, all faults | 50 % | 9–91 % | 2 |",
        "| precision: right ones among findings | 33 % |",
        "| cost within a factor of 2 | 100 % | 21–100 % | 1 |",
        "| clean runs with a false warning | 0 % | 0–43 % | 5 |",
        "| runs with a fault of less than 5 %, with a warning | 100 % |",
        "| throttled worker | 2 | 1 | 2 | 1 | 1 | 1.50× |",
        "| uneven rows | 0 | 2 | 0 % |",
        "| lost | 100 ms | 50 % | 0 % | uneven rows | no |",
    ] {
        assert!(text.contains(line), "no {line} in\n{text}");
    }
    assert!(!text.contains("HybridTune"), "{text}");
}
