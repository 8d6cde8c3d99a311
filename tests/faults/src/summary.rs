//! Counts what a log contains, and prints it as Markdown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::cases::Case;
use crate::fault::{Fault, Place};
use crate::judge::{CONTENDED_FROM, is_contention, is_false_alarm, is_right};
use crate::records::{CaseEnd, Line, Program, Run};
use crate::scoring::{Confusion, Share, Tally, Truth, median, ratio};
use crate::sql::Finding;

/// Who names causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detectors {
    /// `sys.diagnoses` of the program that is judged.
    Diagnoses,
    /// HybridTune's rules as published.
    HybridTune,
    /// `sys.diagnoses` of the program with which it is compared.
    Baseline,
}

impl Detectors {
    const ALL: [Detectors; 3] = [
        Detectors::Diagnoses,
        Detectors::HybridTune,
        Detectors::Baseline,
    ];

    fn name(self) -> &'static str {
        match self {
            Detectors::Diagnoses => "`sys.diagnoses`",
            Detectors::HybridTune => "HybridTune's rules",
            Detectors::Baseline => "`sys.diagnoses` of the baseline",
        }
    }

    fn program(self) -> Program {
        match self {
            Detectors::Baseline => Program::Baseline,
            _ => Program::Judged,
        }
    }

    fn findings(self, run: &Run) -> &[Finding] {
        match self {
            Detectors::HybridTune => &run.hybridtune,
            _ => &run.diagnoses,
        }
    }
}

/// No finding has a place.
const NOTHING: &str = "nothing";

/// A case with all that was seen.
#[derive(Debug)]
struct Seen<'a> {
    end: &'a CaseEnd,
    faults: Vec<(Fault, Place)>,
    with: Vec<&'a Run>,
    without: Vec<&'a Run>,
    truth: Option<Truth>,
}

impl Seen<'_> {
    fn case(&self) -> &Case {
        &self.end.case
    }

    /// Whether there is a fault that costs enough.
    fn is_faulty(&self) -> bool {
        !self.case().is_clean()
            && self
                .truth
                .is_some_and(|truth| !truth.is_clean() && truth.is_sure)
    }

    /// Whether the machine was too busy to tell what the fault costs.
    fn is_unsure(&self) -> bool {
        !self.case().is_clean()
            && self
                .truth
                .is_some_and(|truth| !truth.is_clean() && !truth.is_sure)
    }

    /// Whether all its runs are as good as clean.
    fn is_harmless(&self) -> bool {
        !self.is_faulty() && !self.is_unsure()
    }

    fn is_large(&self) -> bool {
        self.is_faulty() && self.truth.is_some_and(|truth| truth.is_large())
    }
}

/// What detectors made of a case, by the majority of its runs with the fault.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The rule of the first finding.
    pub first: String,
    /// Whether the first finding is right in cause and place.
    pub first_right: bool,
    /// The same, not counting contention that was there.
    pub first_right_beside_contention: bool,
    /// Whether some finding names each fault.
    pub found: Vec<bool>,
    /// Rules that named the fault.
    pub right_rules: BTreeSet<String>,
    /// Rules whose warnings are wrong.
    pub wrong_rules: BTreeSet<String>,
    /// How far the cost of the right finding is off, in the median; `None` if it has none.
    pub cost_ratio: Option<f64>,
}

/// Judges the findings of a case's runs.
pub fn verdict(runs: &[(&[Finding], f64)], faults: &[(Fault, Place)], truth: Truth) -> Verdict {
    let mostly = |count: usize| 2 * count >= runs.len() && count > 0;
    let right = |finding: &Finding| {
        faults
            .iter()
            .any(|(fault, place)| is_right(finding, *fault, place))
    };
    let (mut firsts, mut rights, mut wrongs) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let (mut first_right, mut beside) = (0, 0);
    let mut found = vec![0; faults.len()];
    let mut ratios = Vec::new();
    for (findings, contention) in runs {
        let named: Vec<&Finding> = findings
            .iter()
            .filter(|finding| finding.place.is_some())
            .collect();
        let first = named
            .first()
            .map_or(NOTHING, |finding| finding.rule.as_str());
        *firsts.entry(first).or_insert(0_usize) += 1;
        first_right += usize::from(named.first().is_some_and(|finding| right(finding)));
        let excused = |finding: &Finding| {
            *contention >= CONTENDED_FROM && is_contention(finding) && !right(finding)
        };
        let rest = named.iter().find(|finding| !excused(finding));
        beside += usize::from(rest.is_some_and(|finding| right(finding)));
        for (count, (fault, place)) in found.iter_mut().zip(faults) {
            *count += usize::from(named.iter().any(|finding| is_right(finding, *fault, place)));
        }
        let rules = |of: &dyn Fn(&Finding) -> bool| {
            let rules = named
                .iter()
                .filter(|finding| of(finding))
                .map(|finding| finding.rule.clone());
            rules.collect::<BTreeSet<_>>()
        };
        for rule in rules(&right) {
            *rights.entry(rule).or_insert(0_usize) += 1;
        }
        for rule in rules(&|finding| is_false_alarm(finding, faults, *contention)) {
            *wrongs.entry(rule).or_insert(0_usize) += 1;
        }
        // Two faults at once have one difference of medians.
        let one = named
            .iter()
            .find(|finding| right(finding))
            .filter(|_| faults.len() == 1);
        if let Some(cost) = one.and_then(|finding| finding.cost_ns) {
            ratios.push(ratio(cost as f64, truth.cost_ns()));
        }
    }
    let most = firsts.into_iter().max_by_key(|(_, count)| *count);
    let majority = |counts: BTreeMap<String, usize>| {
        let kept = counts.into_iter().filter(|(_, count)| mostly(*count));
        kept.map(|(rule, _)| rule).collect()
    };
    Verdict {
        first: most.map_or(NOTHING, |(first, _)| first).to_owned(),
        first_right: mostly(first_right),
        first_right_beside_contention: mostly(beside),
        found: found.into_iter().map(mostly).collect(),
        right_rules: majority(rights),
        wrong_rules: majority(wrongs),
        cost_ratio: median(&ratios),
    }
}

/// The Markdown of a log.
pub fn summarize(lines: &[Line]) -> String {
    let mut text = String::new();
    overview(&mut text, lines);
    for detectors in Detectors::ALL {
        let seen = seen(lines, detectors);
        let says_something = |seen: &Seen<'_>| {
            let runs = seen.with.iter().chain(&seen.without);
            runs.into_iter()
                .any(|run| !detectors.findings(run).is_empty())
        };
        // Without views of HybridTune's, or without a baseline, there is nothing to count.
        if detectors == Detectors::Diagnoses || seen.iter().any(says_something) {
            chapter(&mut text, detectors, &seen);
        }
    }
    text
}

fn overview(text: &mut String, lines: &[Line]) {
    let seen = seen(lines, Detectors::Diagnoses);
    let faulty: Vec<&Seen<'_>> = seen.iter().filter(|seen| !seen.case().is_clean()).collect();
    let ran = faulty
        .iter()
        .filter(|seen| seen.end.skipped.is_none())
        .count();
    let material = faulty.iter().filter(|seen| seen.is_faulty()).count();
    let large = faulty.iter().filter(|seen| seen.is_large()).count();
    let unsure = faulty.iter().filter(|seen| seen.is_unsure()).count();
    let clean: usize = seen.iter().map(|seen| seen.without.len()).sum();
    let contended = seen.iter().flat_map(|seen| &seen.without);
    let contended = Share::where_true(contended, |run| run.contention >= CONTENDED_FROM);
    let _ = writeln!(
        text,
        "{ran} cases with a fault ran; the fault cost at least 5 % of the query's time in {material}, and at \
         least 20 % in {large}. The cost of {unsure} is unknown, since other programs made \
         times uneven: they are left out. There are {clean} clean runs; in {} of them threads waited for a processor for \
         at least 5 % of the time in which they could run.\n",
        percent(contended.value())
    );
    let readings: Vec<f64> = seen
        .iter()
        .flat_map(|seen| seen.with.iter().chain(&seen.without))
        .map(|run| run.reading_ns as f64)
        .collect();
    if let Some(reading) = median(&readings) {
        let _ = writeln!(
            text,
            "Reading `sys.diagnoses` of a query took {:.0} ms in the median.\n",
            reading / 1e6
        );
    }
    let mut skipped = BTreeMap::new();
    for seen in &seen {
        if let Some(reason) = &seen.end.skipped {
            let key = (seen.case().fault_name(), shorten(reason, 160));
            *skipped.entry(key).or_insert(0_usize) += 1;
        }
    }
    if !skipped.is_empty() {
        let _ = writeln!(
            text,
            "Cases that could not be run:\n\n| fault | cases | reason |\n|---|---|---|"
        );
        for ((fault, reason), count) in skipped {
            let _ = writeln!(text, "| {fault} | {count} | {} |", cell(&reason));
        }
        text.push('\n');
    }
}

fn seen(lines: &[Line], detectors: Detectors) -> Vec<Seen<'_>> {
    let mut runs: BTreeMap<(&str, bool), Vec<&Run>> = BTreeMap::new();
    // What a fault costs is known by the pairs of the judged program alone.
    let mut elapsed: BTreeMap<(&str, bool), Vec<f64>> = BTreeMap::new();
    for line in lines {
        let Line::Run(run) = line else { continue };
        let key = (run.case.as_str(), run.faulty);
        if run.program == detectors.program() {
            runs.entry(key).or_default().push(run);
        }
        if run.program == Program::Judged {
            elapsed.entry(key).or_default().push(run.elapsed_ns as f64);
        }
    }
    let mut all = Vec::new();
    for line in lines {
        let Line::Case(end) = line else { continue };
        if end.program != detectors.program() {
            continue;
        }
        let id = end.case.id.as_str();
        let times = |faulty: bool| elapsed.get(&(id, faulty)).map_or(&[][..], Vec::as_slice);
        let of = |faulty: bool| runs.get(&(id, faulty)).cloned().unwrap_or_default();
        let faults = end.case.faults.iter().map(|one| one.fault);
        all.push(Seen {
            end,
            faults: faults
                .zip(end.places.iter().cloned())
                .filter(|(fault, _)| *fault != Fault::Clean)
                .collect(),
            with: of(true),
            without: of(false),
            truth: Truth::of(times(true), times(false)),
        });
    }
    all
}

#[derive(Debug, Default)]
struct OfFault {
    cases: usize,
    large: usize,
    first: usize,
    first_large: usize,
    found: usize,
    ratios: Vec<f64>,
}

fn chapter(text: &mut String, detectors: Detectors, seen: &[Seen<'_>]) {
    let judged: Vec<(&Seen<'_>, Verdict)> = seen
        .iter()
        .filter(|seen| seen.is_faulty() && !seen.with.is_empty())
        .filter_map(|seen| {
            let runs: Vec<(&[Finding], f64)> = seen
                .with
                .iter()
                .map(|run| (detectors.findings(run), run.contention))
                .collect();
            Some((seen, verdict(&runs, &seen.faults, seen.truth?)))
        })
        .collect();
    let mut rules: BTreeMap<String, Tally> = BTreeMap::new();
    let mut total = Tally::default();
    let mut faults: BTreeMap<String, OfFault> = BTreeMap::new();
    let mut confusion = Confusion::default();
    for (seen, verdict) in &judged {
        for rule in &verdict.right_rules {
            rules.entry(rule.clone()).or_default().hits += 1;
        }
        for rule in &verdict.wrong_rules {
            rules.entry(rule.clone()).or_default().false_alarms += 1;
        }
        let found = verdict.found.iter().filter(|found| **found).count();
        total.hits += found;
        total.misses += verdict.found.len() - found;
        total.false_alarms += verdict.wrong_rules.len();
        let of = faults.entry(seen.case().fault_name()).or_default();
        of.cases += 1;
        of.large += usize::from(seen.is_large());
        of.first += usize::from(verdict.first_right);
        of.first_large += usize::from(verdict.first_right && seen.is_large());
        of.found += usize::from(verdict.found.iter().all(|found| *found));
        of.ratios.extend(verdict.cost_ratio);
        confusion.add(&seen.case().fault_name(), &verdict.first);
    }
    // A clean side, or a dose that costs nothing, counts once for each rule that mostly warns.
    let clean_runs: Vec<(&Seen<'_>, &Run)> = seen
        .iter()
        .flat_map(|seen| seen.without.iter().map(move |run| (seen, *run)))
        .collect();
    let small: Vec<(&Seen<'_>, &Run)> = seen
        .iter()
        .filter(|seen| seen.is_harmless())
        .flat_map(|seen| seen.with.iter().map(move |run| (seen, *run)))
        .collect();
    let none = Truth {
        with_ns: 1.0,
        without_ns: 1.0,
        is_sure: true,
    };
    for seen in seen {
        let sides = [
            Some(&seen.without),
            seen.is_harmless().then_some(&seen.with),
        ];
        for side in sides.into_iter().flatten().filter(|side| !side.is_empty()) {
            let runs: Vec<(&[Finding], f64)> = side
                .iter()
                .map(|run| (detectors.findings(run), run.contention))
                .collect();
            for rule in verdict(&runs, &[], none).wrong_rules {
                rules.entry(rule).or_default().false_alarms += 1;
                total.false_alarms += 1;
            }
        }
    }
    let alarmed = |run: &Run| {
        detectors
            .findings(run)
            .iter()
            .any(|finding| is_false_alarm(finding, &[], run.contention))
    };
    let clean_alarms = Share::where_true(&clean_runs, |(_, run)| alarmed(run));
    let small_alarms = Share::where_true(&small, |(_, run)| alarmed(run));
    let large: Vec<&(&Seen<'_>, Verdict)> =
        judged.iter().filter(|(seen, _)| seen.is_large()).collect();
    let ratios: Vec<f64> = judged
        .iter()
        .filter_map(|(_, verdict)| verdict.cost_ratio)
        .collect();

    let _ = writeln!(
        text,
        "### {}\n\n| figure | value | 95 % interval | of |\n|---|---|---|---|",
        detectors.name()
    );
    let mut figure = |name: &str, share: Share| {
        let (low, high) = share.interval();
        let _ = writeln!(
            text,
            "| {name} | {} | {:.0}–{:.0} % | {} |",
            percent(share.value()),
            100.0 * low,
            100.0 * high,
            share.trials
        );
    };
    figure(
        "right cause and place first, faults that cost at least 20 %",
        Share::where_true(&large, |(_, v)| v.first_right),
    );
    figure(
        "the same, not counting contention that was there",
        Share::where_true(&large, |(_, v)| v.first_right_beside_contention),
    );
    figure(
        "right cause and place first, all faults",
        Share::where_true(&judged, |(_, v)| v.first_right),
    );
    figure("recall: faults that some finding names", total.recall());
    figure("precision: right ones among findings", total.precision());
    figure("F1", total.f1());
    figure(
        "cost within a factor of 2",
        Share::where_true(&ratios, |ratio| **ratio <= 2.0),
    );
    figure("clean runs with a false warning", clean_alarms);
    figure(
        "runs with a fault of less than 5 %, with a warning",
        small_alarms,
    );
    if let Some(ratio) = median(&ratios) {
        let _ = writeln!(
            text,
            "| error of the cost, median | {ratio:.2}× | | {} |",
            ratios.len()
        );
    }

    let _ = writeln!(
        text,
        "\n| fault | cases | first | cost ≥ 20 % | first | named at all | error of the cost, median |\n|---|---|---|---|---|---|---|"
    );
    for (fault, of) in &faults {
        let ratio = median(&of.ratios).map_or_else(String::new, |ratio| format!("{ratio:.2}×"));
        let _ = writeln!(
            text,
            "| {fault} | {} | {} | {} | {} | {} | {ratio} |",
            of.cases, of.first, of.large, of.first_large, of.found
        );
    }

    let _ = writeln!(
        text,
        "\n| rule | right | wrong | precision | 95 % interval |\n|---|---|---|---|---|"
    );
    for (rule, tally) in &rules {
        let (low, high) = tally.precision().interval();
        let _ = writeln!(
            text,
            "| {rule} | {} | {} | {} | {:.0}–{:.0} % |",
            tally.hits,
            tally.false_alarms,
            percent(tally.precision().value()),
            100.0 * low,
            100.0 * high
        );
    }

    matrix(text, &confusion);
    losers(text, &judged);
    alarms(text, detectors, &clean_runs);
}

fn matrix(text: &mut String, confusion: &Confusion) {
    let columns = confusion.columns();
    if columns.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\nInjected (rows) and named first (columns):\n\n| | {} |",
        columns.join(" | ")
    );
    let _ = writeln!(text, "|---{}|", "|---".repeat(columns.len()));
    for row in confusion.rows() {
        let counts: Vec<String> = columns
            .iter()
            .map(|column| match confusion.count(row, column) {
                0 => String::new(),
                count => count.to_string(),
            })
            .collect();
        let _ = writeln!(text, "| {row} | {} |", counts.join(" | "));
    }
}

fn losers(text: &mut String, judged: &[(&Seen<'_>, Verdict)]) {
    let mut losers: Vec<&(&Seen<'_>, Verdict)> = judged
        .iter()
        .filter(|(_, verdict)| !verdict.first_right)
        .collect();
    if losers.is_empty() {
        return;
    }
    losers.sort_by(|(a, _), (b, _)| a.case().id.cmp(&b.case().id));
    let _ = writeln!(
        text,
        "\nCases whose first diagnosis was wrong:\n\n| case | cost | share | contention | named first | also found |\n|---|---|---|---|---|---|"
    );
    for (seen, verdict) in losers {
        let Some(truth) = seen.truth else { continue };
        let contention: Vec<f64> = seen.with.iter().map(|run| run.contention).collect();
        let _ = writeln!(
            text,
            "| {} | {:.0} ms | {:.0} % | {:.0} % | {} | {} |",
            seen.case().id,
            truth.cost_ns() / 1e6,
            100.0 * truth.share(),
            100.0 * median(&contention).unwrap_or_default(),
            verdict.first,
            if verdict.found.iter().all(|found| *found) {
                "yes"
            } else {
                "no"
            }
        );
    }
}

fn alarms(text: &mut String, detectors: Detectors, clean: &[(&Seen<'_>, &Run)]) {
    let mut alarms: BTreeMap<(String, String), (usize, String)> = BTreeMap::new();
    for (seen, run) in clean {
        for finding in detectors.findings(run) {
            if is_false_alarm(finding, &[], run.contention) {
                let case = seen.case();
                let query = format!(
                    "{} {} {}",
                    case.topology.name(),
                    case.shape.name(),
                    case.level
                );
                let of = alarms.entry((finding.rule.clone(), query)).or_default();
                of.0 += 1;
                of.1 = shorten(&format!("{}: {}", finding.subject, finding.cause), 200);
            }
        }
    }
    if alarms.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\nFalse warnings on clean runs:\n\n| rule | query | runs | the last one |\n|---|---|---|---|"
    );
    for ((rule, query), (count, example)) in alarms {
        let _ = writeln!(text, "| {rule} | {query} | {count} | {} |", cell(&example));
    }
    text.push('\n');
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), |share| format!("{:.0} %", 100.0 * share))
}

fn shorten(text: &str, length: usize) -> String {
    let short: String = text.chars().take(length).collect();
    if short.len() < text.len() {
        short + "…"
    } else {
        short
    }
}

/// What would end a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
