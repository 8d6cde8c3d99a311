//! Conditions that separate the expensive records of a sample from the others.

use std::collections::HashMap;

use super::features::{Feature, Values};

/// Conditions that are counted exactly.
pub(super) const FINALISTS: usize = 24;

/// Of each property so many values are tried.
const CATEGORIES: usize = 3;

/// Records of a table, what each took, and for how many it stands.
#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) ns: Vec<f64>,
    pub(super) weight: Vec<f64>,
}

impl Sample {
    fn totals(&self) -> (f64, f64) {
        let pairs = self.ns.iter().zip(&self.weight);
        let ns = pairs.map(|(ns, weight)| ns * weight).sum();
        (ns, self.weight.iter().sum())
    }
}

/// A condition about a property.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Condition {
    /// SQL over the table's columns.
    pub(super) predicate: String,
    pub(super) form: PredicateForm,
    /// Whether it asks for one value.
    pub(super) is_equality: bool,
    /// The same about the table `t`.
    qualified: String,
    /// Share of the sample's time less share of its records.
    pub(super) excess: f64,
}

impl Condition {
    /// The predicate with `t.` before the column.
    pub(super) fn qualified(&self) -> &str {
        &self.qualified
    }
}

/// The form of a condition, from the most to the least telling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PredicateForm {
    /// Beyond a gap in the values; no value at all; one of a few values.
    Natural,
    /// Beyond a line through the midst of values.
    Threshold,
    /// Between two lines.
    Range,
    /// One value that hardly another record has.
    Single,
}

/// A gap of this share of all values' spread is no accident.
const NATURAL_GAP: f64 = 0.1;

/// A cut in the widest natural gap is taken if it keeps this share of the best cut's excess. The best cut
/// may have values that are nearly ordinary beside a few outliers: long documents beside one of a
/// thousand times their length.
const KEPT_BY_GAP: f64 = 0.8;

/// The best conditions about one property of a sample.
pub(super) fn conditions(feature: &Feature, values: &Values, sample: &Sample) -> Vec<Condition> {
    let mut found = match values {
        Values::Ordered(values) => ordered(feature, values, sample),
        Values::Categories(values) => categories(feature, values, sample),
    };
    found.retain(|condition| condition.excess > 0.0);
    found
}

/// Records of one value.
#[derive(Debug, Clone, Copy)]
struct Step {
    value: f64,
    /// Of all.
    time_share: f64,
    /// Of all.
    record_share: f64,
    records: f64,
}

impl Step {
    fn excess(&self) -> f64 {
        self.time_share - self.record_share
    }
}

fn ordered(feature: &Feature, values: &[Option<f64>], sample: &Sample) -> Vec<Condition> {
    let steps = steps(values, sample);
    if steps.len() < 2 {
        return Vec::new();
    }
    let excess: Vec<f64> = steps.iter().map(Step::excess).collect();
    let mut found = Vec::new();
    let mut add = |condition: String, form: PredicateForm, excess: f64| {
        found.push(Condition {
            predicate: format!("{} {condition}", feature.subject("")),
            qualified: format!("{} {condition}", feature.subject("t.")),
            is_equality: condition.starts_with('='),
            form,
            excess,
        });
    };
    // The best cut for values above it, and for values below it.
    let values: Vec<f64> = steps.iter().map(|step| step.value).collect();
    let total: f64 = excess.iter().sum();
    let sums = excess.iter().scan(0.0, |sum, excess| {
        *sum += excess;
        Some(*sum)
    });
    let below: Vec<f64> = sums.take(steps.len() - 1).collect();
    let above: Vec<f64> = below.iter().map(|below| total - below).collect();
    for (sign, of_cuts) in [('>', above), ('<', below)] {
        if let Some(cut) = best_cut(&values, &of_cuts) {
            let (lower, upper) = (values[cut.at], values[cut.at + 1]);
            let bound = feature.bound(lower, upper, sign == '>');
            add(format!("{sign} {bound}"), cut.form, of_cuts[cut.at]);
        }
    }
    // The best run of values in the midst.
    let (from, to, best) = best_run(&excess);
    if from > 0 && to + 1 < steps.len() && from < to {
        let low = feature.bound(steps[from - 1].value, steps[from].value, false);
        let high = feature.bound(steps[to].value, steps[to + 1].value, true);
        add(
            format!("BETWEEN {low} AND {high}"),
            PredicateForm::Range,
            best,
        );
    } else if from == to && from > 0 && to + 1 < steps.len() {
        // A value in the midst; categories are looked at by themselves.
        let low = feature.bound(steps[from - 1].value, steps[from].value, false);
        let high = feature.bound(steps[to].value, steps[to + 1].value, true);
        let form = match steps[from].records < 1.5 {
            true => PredicateForm::Single,
            false => PredicateForm::Range,
        };
        let predicate = match low == high {
            true => format!("= {low}"),
            false => format!("BETWEEN {low} AND {high}"),
        };
        add(predicate, form, best);
    }
    found
}

/// A line between two values that follow one another.
struct Cut {
    /// The index of the lower value.
    at: usize,
    form: PredicateForm,
}

/// The best of the cuts between `values`, which ascend; `excess` has that of each cut. Returns none if no cut
/// has a positive excess.
fn best_cut(values: &[f64], excess: &[f64]) -> Option<Cut> {
    let best = (0..excess.len()).max_by(|one, other| excess[*one].total_cmp(&excess[*other]))?;
    if excess[best] <= 0.0 {
        return None;
    }
    let spread = values.last()? - values.first()?;
    let gap = |at: usize| (values[at + 1] - values[at]) / spread;
    let natural = (0..excess.len())
        .filter(|at| gap(*at) >= NATURAL_GAP && excess[*at] >= KEPT_BY_GAP * excess[best])
        .max_by(|one, other| gap(*one).total_cmp(&gap(*other)));
    Some(match natural {
        Some(at) => Cut {
            at,
            form: PredicateForm::Natural,
        },
        None => Cut {
            at: best,
            form: PredicateForm::Threshold,
        },
    })
}

/// Records by value, in order.
fn steps(values: &[Option<f64>], sample: &Sample) -> Vec<Step> {
    let (all_ns, all_records) = sample.totals();
    let mut order: Vec<usize> = (0..values.len())
        .filter(|at| values[*at].is_some())
        .collect();
    let value = |at: usize| values[at].unwrap_or(0.0);
    order.sort_by(|a, b| value(*a).total_cmp(&value(*b)));
    let mut steps: Vec<Step> = Vec::new();
    for at in order {
        let (time, weight) = (sample.ns[at] * sample.weight[at], sample.weight[at]);
        let (time_share, record_share) = (time / all_ns, weight / all_records);
        match steps.last_mut() {
            Some(step) if step.value == value(at) => {
                step.time_share += time_share;
                step.record_share += record_share;
                step.records += weight;
            }
            _ => steps.push(Step {
                value: value(at),
                time_share,
                record_share,
                records: weight,
            }),
        }
    }
    steps
}

/// The run of numbers with the largest sum: from, to, sum.
fn best_run(numbers: &[f64]) -> (usize, usize, f64) {
    let mut best = (0, 0, f64::NEG_INFINITY);
    let (mut from, mut sum) = (0, 0.0);
    for (at, number) in numbers.iter().enumerate() {
        if sum <= 0.0 {
            (from, sum) = (at, 0.0);
        }
        sum += number;
        if sum > best.2 {
            best = (from, at, sum);
        }
    }
    best
}

fn categories(feature: &Feature, values: &[Option<String>], sample: &Sample) -> Vec<Condition> {
    let (all_ns, all_records) = sample.totals();
    let mut groups: HashMap<&str, Step> = HashMap::new();
    for (at, value) in values.iter().enumerate() {
        let Some(value) = value else { continue };
        let group = groups.entry(value).or_insert(Step {
            value: 0.0,
            time_share: 0.0,
            record_share: 0.0,
            records: 0.0,
        });
        group.time_share += sample.ns[at] * sample.weight[at] / all_ns;
        group.record_share += sample.weight[at] / all_records;
        group.records += sample.weight[at];
    }
    let mut groups: Vec<(&str, Step)> = groups.into_iter().collect();
    groups.sort_by(|(a, one), (b, other)| other.excess().total_cmp(&one.excess()).then(a.cmp(b)));
    let best = groups.into_iter().take(CATEGORIES);
    best.map(|(value, step)| {
        let missing = feature.property == super::features::Property::Missing;
        let condition = match missing {
            true => "IS NULL".to_owned(),
            false => format!("= {}", feature.category(value)),
        };
        Condition {
            predicate: format!("{} {condition}", feature.subject("")),
            qualified: format!("{} {condition}", feature.subject("t.")),
            is_equality: !missing,
            form: match step.records < 1.5 && !missing {
                true => PredicateForm::Single,
                false => PredicateForm::Natural,
            },
            excess: step.excess(),
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};

    use super::*;

    /// The best condition about column `c` with these values, where the records took `ns`.
    fn best(column: ArrayRef, ns: &[f64]) -> Option<String> {
        let batch = RecordBatch::try_from_iter_with_nullable([("c", column, true)]).unwrap();
        let sample = Sample {
            ns: ns.to_vec(),
            weight: vec![1.0; ns.len()],
        };
        let mut all = Vec::new();
        for feature in Feature::of_schema(&batch.schema()) {
            let values = match feature.property {
                super::super::features::Property::Size(_) => {
                    let texts = batch.column(0);
                    let texts = datafusion::arrow::compute::cast(
                        texts,
                        &datafusion::arrow::datatypes::DataType::Utf8,
                    )
                    .unwrap();
                    let texts = datafusion::arrow::array::AsArray::as_string::<i32>(&texts).clone();
                    Values::Ordered(texts.iter().map(|t| t.map(|t| t.len() as f64)).collect())
                }
                super::super::features::Property::Missing => Values::Categories(
                    (0..ns.len())
                        .map(|row| batch.column(0).is_null(row).then(String::new))
                        .collect(),
                ),
                _ => {
                    let named = RecordBatch::try_from_iter_with_nullable([(
                        "f0",
                        Arc::clone(batch.column(0)),
                        true,
                    )]);
                    feature.values(&[named.unwrap()], 0).unwrap()
                }
            };
            all.extend(conditions(&feature, &values, &sample));
        }
        all.sort_by(|a, b| {
            let bucket = |c: &Condition| (c.excess * 50.0).round() as i64;
            bucket(b)
                .cmp(&bucket(a))
                .then(a.form.cmp(&b.form))
                .then(a.predicate.len().cmp(&b.predicate.len()))
        });
        all.into_iter().next().map(|condition| condition.predicate)
    }

    #[test]
    fn a_line_is_drawn_where_records_become_dear() {
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        let ns: Vec<f64> = values
            .iter()
            .map(|v| if *v > 90.0 { 1000.0 } else { 1.0 })
            .collect();
        let column = || Arc::new(Float64Array::from(values.clone())) as ArrayRef;
        assert_eq!(best(column(), &ns).unwrap(), "c > 90");
        let ns: Vec<f64> = values
            .iter()
            .map(|v| if *v < 10.0 { 1000.0 } else { 1.0 })
            .collect();
        assert_eq!(best(column(), &ns).unwrap(), "c < 10");
        let dear = |v: &f64| (40.0..50.0).contains(v);
        let ns: Vec<f64> = values
            .iter()
            .map(|v| if dear(v) { 1000.0 } else { 1.0 })
            .collect();
        assert_eq!(best(column(), &ns).unwrap(), "c BETWEEN 40 AND 49");
    }

    #[test]
    fn a_long_text_a_category_and_null_are_named() {
        let mut texts: Vec<Option<String>> = (0..50).map(|n| Some("x".repeat(n % 7))).collect();
        texts[17] = Some("y".repeat(5000));
        let mut ns = vec![1.0; 50];
        ns[17] = 1e6;
        let column = Arc::new(StringArray::from(texts)) as ArrayRef;
        assert_eq!(best(column, &ns).unwrap(), "length(c) > 1000");

        let kinds: Vec<&str> = (0..60).map(|n| ["a", "b", "pdf's"][n % 3]).collect();
        let ns: Vec<f64> = kinds
            .iter()
            .map(|k| if *k == "pdf's" { 90.0 } else { 1.0 })
            .collect();
        let column = Arc::new(StringArray::from(kinds)) as ArrayRef;
        assert_eq!(best(column, &ns).unwrap(), "c = 'pdf''s'");

        let numbers: Vec<Option<i64>> = (0..60)
            .map(|n| (n % 4 > 0).then_some(n * 37 % 60))
            .collect();
        let ns: Vec<f64> = numbers
            .iter()
            .map(|n| if n.is_none() { 90.0 } else { 1.0 })
            .collect();
        let column = Arc::new(Int64Array::from(numbers)) as ArrayRef;
        assert_eq!(best(column, &ns).unwrap(), "c IS NULL");
    }

    #[test]
    fn outliers_are_cut_off_from_values_that_are_nearly_ordinary() {
        let length = |n: usize| match n {
            0..5 => 3_000_000.0 + n as f64,
            _ => 10.0 * n as f64,
        };
        let lengths: Vec<f64> = (0..600).map(length).collect();
        // The time grows with the length, but half of it is the same for all.
        let ns: Vec<f64> = lengths.iter().map(|length| length + 3_000.0).collect();
        let column = Arc::new(Float64Array::from(lengths)) as ArrayRef;
        assert_eq!(best(column, &ns).unwrap(), "c > 1000000");
    }

    #[test]
    fn records_that_cost_alike_are_not_told_apart() {
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        let column = Arc::new(Float64Array::from(values)) as ArrayRef;
        assert_eq!(best(column, &[5.0; 100]), None);
    }
}
