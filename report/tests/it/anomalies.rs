//! Generated queries: the profile names the operator and the record that dominate, and none where
//! none dominates.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use skewer_profiling::{Level, SysTables};

use super::case::{Case, did};
use super::profile;
use skewer_diagnosis::Anomaly;
use skewer_diagnosis::time_spent::{Sentence, Subject};

/// A table whose records are evaluated by one of several operators, which no result row waits for.
#[derive(Debug)]
struct Generated {
    /// Milliseconds of each record.
    records: Vec<i64>,
    /// Milliseconds of the operators below the aggregate; the last is the scan.
    operators: Vec<i64>,
    /// Which of them evaluates the records.
    evaluates: usize,
}

impl Generated {
    /// Records that cost between `least` and twice that.
    fn balanced(random: &mut ChaCha8Rng) -> Self {
        let least = random.random_range(1..5);
        let records =
            (0..random.random_range(20..120)).map(|_| random.random_range(least..=2 * least));
        let records: Vec<i64> = records.collect();
        let mut operators: Vec<i64> = (0..random.random_range(2..6))
            .map(|_| random.random_range(0..6))
            .collect();
        let evaluates = random.random_range(0..operators.len() - 1);
        operators[evaluates] = records.iter().sum();
        Self {
            records,
            operators,
            evaluates,
        }
    }

    /// The same with one record that costs `times` as much as all others together.
    fn dominated(random: &mut ChaCha8Rng, times: f64) -> (Self, i64) {
        let mut generated = Self::balanced(random);
        let record = random.random_range(0..generated.records.len());
        let others: i64 = generated.records.iter().sum();
        generated.records[record] = (others as f64 * times) as i64;
        generated.operators[generated.evaluates] = generated.records.iter().sum();
        (generated, record as i64)
    }

    fn busy(&self) -> i64 {
        self.operators.iter().sum::<i64>() + 1
    }

    /// From when on a record is anomalous, in milliseconds, as documented.
    fn threshold(&self) -> f64 {
        let mut sorted = self.records.clone();
        sorted.sort_unstable();
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        let median = (low + high) as f64 / 2.0;
        let even = self.busy() as f64 / self.records.len() as f64;
        (10.0 * median)
            .max(2.0 * even)
            .max(0.05 * (self.busy() + 1) as f64)
    }

    fn write(&self) -> Arc<SysTables> {
        let rows = self.records.len() as i64;
        let case = Case::new(Level::Records, 1.0);
        let counted = [did(rows, 1, 1)];
        case.operator((0, 0, None), "AggregateExec", "mode=Single", &counted);
        let scan = self.operators.len() as i64;
        for (id, ms) in (1..).zip(&self.operators) {
            let (place, took) = ((0, id, Some(id - 1)), *ms);
            if id == scan {
                case.scan(place, "main.t", "", &[did(0, rows, took)]);
            } else {
                case.operator(place, "FilterExec", "f(t.a@0)", &[did(rows, rows, took)]);
            }
        }
        // Edges without latency: no result row waits for the record.
        let edges: Vec<_> = (0..rows).map(|record| (1, record, 0)).collect();
        case.lineage((0, 0), (scan, Some("main.t")), &edges);
        case.outputs(0, &[1]);
        let records: Vec<_> = (0..).zip(self.records.iter().copied()).collect();
        let evaluates = self.evaluates as i64 + 1;
        case.latency((evaluates, 0), "main.t", &records);
        case.finish("SELECT …", (1, self.busy()), 1)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dominating_operator_and_record_are_named() {
    let mut random = ChaCha8Rng::seed_from_u64(2019);
    for case in 0..8 {
        let times = random.random_range(1.0..20.0);
        let (generated, record) = Generated::dominated(&mut random, times);
        let report = profile(&generated.write()).await;
        let Sentence { subject, text } = &report.time_spent.sentences[0];
        assert_eq!(*subject, Subject::Operators);
        let operator = format!("in operator {},", generated.evaluates + 1);
        assert!(
            text.contains(&operator),
            "case {case}: {text}\n{generated:?}"
        );
        let anomalous: Vec<_> = report.expensive_inputs.anomalous().collect();
        let [found] = anomalous[..] else {
            panic!("case {case}: {anomalous:?}\n{generated:?}");
        };
        assert_eq!((found.table.as_str(), found.row_id), ("main.t", record));
        assert_eq!(found.anomaly, Some(Anomaly::SelfTime));
        let sentence = found.sentence(&report.summary);
        assert!(
            sentence.starts_with(&format!("Row {record} of t took ")),
            "{sentence}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_anomalous_where_records_cost_alike() {
    let mut random = ChaCha8Rng::seed_from_u64(2020);
    for case in 0..8 {
        let generated = Generated::balanced(&mut random);
        let report = profile(&generated.write()).await;
        assert_eq!(
            report.expensive_inputs.anomalous().count(),
            0,
            "case {case}: {generated:?}"
        );
        let verdict = report.expensive_inputs.verdict(&report.summary).unwrap();
        assert!(
            verdict.starts_with("No input record stands out"),
            "{verdict}"
        );
        let uneven = |sentence: &Sentence| sentence.subject == Subject::UnevenTasks;
        assert!(
            !report.time_spent.sentences.iter().any(uneven),
            "case {case}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_anomalous_from_the_documented_threshold_on() {
    let mut random = ChaCha8Rng::seed_from_u64(2021);
    let (mut above, mut below) = (0, 0);
    while above < 4 || below < 4 {
        let times = random.random_range(0.02..0.6);
        let (generated, record) = Generated::dominated(&mut random, times);
        let cost = generated.records[record as usize] as f64;
        let threshold = generated.threshold();
        if (cost / threshold - 1.0).abs() < 0.02 {
            continue;
        }
        let count = if cost > threshold {
            &mut above
        } else {
            &mut below
        };
        *count += 1;
        if *count > 4 {
            continue;
        }
        let report = profile(&generated.write()).await;
        let found: Vec<_> = report
            .expensive_inputs
            .anomalous()
            .map(|input| input.row_id)
            .collect();
        let expected = if cost > threshold {
            vec![record]
        } else {
            vec![]
        };
        assert_eq!(
            found, expected,
            "{cost} ms, threshold {threshold} ms: {generated:?}"
        );
    }
}
