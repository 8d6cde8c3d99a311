//! What records carry in their rows where no log is kept (`profile.lineage = 'piggyback'`): total
//! latency, source and remediated latency.
//!
//! [`crate::isolation`] writes the recursion that defines them as SQL over the log. Here it is one
//! step at a time: an aggregate [gathers](Gathering) what its inputs carry, and at the result
//! [`Impacts`] keeps what `sys.expensive_inputs` needs of each source.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use crate::tables::ImpactfulSource;

/// Stands for no source; greater than all, so that ties go to a source.
const NO_SOURCE: i64 = i64::MAX;

/// Stands for no remediated latency: the record would not exist. Less than all, so that it is the
/// greatest only of none.
const WOULD_NOT_EXIST: i64 = i64::MIN;

/// What a record carries. Times are in picoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    total: i64,
    source: i64,
    remediated: i64,
}

impl Carried {
    /// A record that was made of none, as a count of no rows.
    pub const OF_NOTHING: Carried = Carried {
        total: 0,
        source: NO_SOURCE,
        remediated: WOULD_NOT_EXIST,
    };

    /// The base record of a [source](Sources)'s number.
    pub fn base(source: i64) -> Carried {
        Carried {
            source,
            ..Carried::OF_NOTHING
        }
    }

    /// The three numbers that a row has for it.
    pub fn numbers(self) -> [i64; 3] {
        [self.total, self.source, self.remediated]
    }

    /// The record of these [numbers](Self::numbers).
    pub fn of_numbers([total, source, remediated]: [i64; 3]) -> Carried {
        Carried {
            total,
            source,
            remediated,
        }
    }

    /// The record after it took so long, with its source or without.
    #[must_use]
    pub fn after(self, ps: i64) -> Carried {
        let remediated = match self.remediated {
            WOULD_NOT_EXIST => WOULD_NOT_EXIST,
            remediated => remediated + ps,
        };
        Carried {
            total: self.total + ps,
            source: self.source,
            remediated,
        }
    }

    /// Whether `self.and(other)` is `self`, which has a source. Where all records are as quick, as where
    /// nothing is timed, that is so of nearly all.
    #[inline]
    fn covers(self, other: Carried) -> bool {
        let left = match other.source == self.source {
            true => other.remediated,
            false => other.total,
        };
        let is_quicker = other.total < self.total;
        let comes_first = is_quicker || other.total == self.total && other.source >= self.source;
        comes_first && self.source != NO_SOURCE && left <= self.remediated
    }

    /// A record made from what both were made from: its source is that of the slower, and without
    /// it there is what would be left of those with the same source, and the others as they are.
    ///
    /// Whatever belongs to another source than the slowest keeps its total: its slowest part does
    /// not come from there. So records can be put together in any order, two at a time.
    #[must_use]
    pub fn and(self, other: Carried) -> Carried {
        let slower = if (Reverse(other.total), other.source) < (Reverse(self.total), self.source) {
            other
        } else {
            self
        };
        let left = |input: Carried| match input.source {
            NO_SOURCE => input.total,
            source if source == slower.source => input.remediated,
            _ => input.total,
        };
        Carried {
            remediated: left(self).max(left(other)),
            ..slower
        }
    }
}

/// Numbers for the base records of some tables: ties between sources go to the smallest number, as
/// they go to the smallest row id, and then to the first table by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    tables: Vec<Arc<str>>,
}

impl Sources {
    /// Numbers for the records of these tables.
    pub fn new<'a>(tables: impl IntoIterator<Item = &'a str>) -> Sources {
        let mut tables: Vec<Arc<str>> = tables.into_iter().map(Arc::from).collect();
        tables.sort();
        tables.dedup();
        Sources { tables }
    }

    /// The tables, by name.
    pub fn tables(&self) -> &[Arc<str>] {
        &self.tables
    }

    /// `factor` and `offset`: the number of a table's row is `row id * factor + offset`.
    pub fn number(&self, table: &str) -> Option<(i64, i64)> {
        let offset = self.tables.iter().position(|name| **name == *table)?;
        Some((self.tables.len() as i64, offset as i64))
    }

    /// The table and row id of a number.
    fn row(&self, number: i64) -> Option<(&str, i64)> {
        let count = self.tables.len().max(1) as i64;
        let table = self.tables.get(usize::try_from(number % count).ok()?)?;
        Some((table, number / count))
    }
}

/// One group of an aggregate.
#[derive(Debug, Clone, Copy)]
struct Group {
    carried: Carried,
    edges: u64,
}

/// What the groups of one partition of an aggregate carry, while their inputs arrive.
///
/// The aggregate's time is charged to the groups that it emits, by their number of edges: with
/// what is emitted at the end, all of it, as shuffle latency is defined; with what is emitted
/// before, what has not been charged by then. An aggregate that spills, or stops to aggregate, goes
/// on with other groups of the same partition: what has been charged belongs to the partition.
#[derive(Debug, Default)]
pub struct Gathering {
    groups: Vec<Group>,
    /// Of `groups`.
    edges: u64,
}

impl Gathering {
    /// There are so many groups now.
    pub fn resize(&mut self, groups: usize) {
        self.groups.resize(
            groups,
            Group {
                carried: Carried::OF_NOTHING,
                edges: 0,
            },
        );
    }

    /// Number of groups not emitted yet.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Bytes that they take.
    pub fn memory(&self) -> usize {
        self.groups.capacity() * size_of::<Group>()
    }

    /// Inputs arrive.
    pub fn arrival(&mut self) -> Arrival<'_> {
        Arrival {
            groups: &mut self.groups,
            all_edges: &mut self.edges,
            edges: 0,
        }
    }

    /// Takes out the first `count` groups, while the aggregate has worked for `spent_ns` in this
    /// partition, of which `charged_ns` have been charged: what they carry, and whether anything
    /// went into them.
    pub fn emit(
        &mut self,
        count: usize,
        spent_ns: i64,
        charged_ns: &mut f64,
    ) -> impl Iterator<Item = (Carried, bool)> + use<> {
        let open_ns = (spent_ns as f64 - *charged_ns).max(0.0);
        let ns_per_edge = match self.edges {
            0 => 0.0,
            edges => open_ns / edges as f64,
        };
        let emitted: Vec<Group> = if count >= self.groups.len() {
            std::mem::take(&mut self.groups)
        } else {
            self.groups.drain(..count).collect()
        };
        let edges: u64 = emitted.iter().map(|group| group.edges).sum();
        self.edges -= edges;
        *charged_ns += edges as f64 * ns_per_edge;
        emitted.into_iter().map(move |group| {
            let shuffle_ns = (group.edges as f64 * ns_per_edge).round() as i64;
            (group.carried.after(shuffle_ns * PS_PER_NS), group.edges > 0)
        })
    }

    /// The same for groups of one record each, which are emitted as they come; those that wait for
    /// more stay.
    ///
    /// # Errors
    /// Those of `fill`, which adds what each record carries.
    pub fn pass<E>(
        &mut self,
        spent_ns: i64,
        charged_ns: &mut f64,
        rows: usize,
        fill: impl FnOnce(&mut Arrival<'_>) -> Result<(), E>,
    ) -> Result<Vec<(Carried, bool)>, E> {
        let waiting = std::mem::take(&mut self.groups);
        let edges = std::mem::take(&mut self.edges);
        self.resize(rows);
        let filled = fill(&mut self.arrival());
        let passed = self.emit(rows, spent_ns, charged_ns).collect();
        self.groups = waiting;
        self.edges = edges;
        filled.map(|()| passed)
    }
}

/// Inputs of groups, one by one.
#[derive(Debug)]
pub struct Arrival<'a> {
    groups: &'a mut [Group],
    /// Of the groups, but for `edges`: to count there would take a store and a load for each input.
    all_edges: &'a mut u64,
    edges: u64,
}

impl Arrival<'_> {
    /// `input` goes into a group.
    #[inline]
    pub fn add(&mut self, group: usize, input: Carried) {
        let group = &mut self.groups[group];
        self.edges += 1;
        let edges = group.edges;
        group.edges += 1;
        if edges == 0 {
            group.carried = input;
        } else if !group.carried.covers(input) {
            group.carried = group.carried.and(input);
        }
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        *self.all_edges += self.edges;
    }
}

/// Sources that are remembered of a result; of more, those are kept whose impact is the greatest.
const CANDIDATES: usize = 4096;

/// What `sys.expensive_inputs` needs of the source of some result rows.
#[derive(Debug, Clone, Copy)]
struct Impact {
    total: i64,
    remediated: i64,
    outputs: i64,
}

impl Impact {
    fn ps(self) -> i64 {
        self.total - self.remediated
    }
}

/// The impact of the sources of result rows, of a bounded number of them.
#[derive(Debug, Default)]
pub struct Impacts {
    of: HashMap<i64, Impact>,
    forgotten: u64,
}

impl Impacts {
    /// One more result row.
    pub fn add(&mut self, output: Carried) {
        if output.source == NO_SOURCE {
            return;
        }
        if self.of.len() >= CANDIDATES && !self.of.contains_key(&output.source) {
            self.forget();
        }
        let impact = self.of.entry(output.source).or_insert(Impact {
            total: 0,
            remediated: 0,
            outputs: 0,
        });
        impact.total = impact.total.max(output.total);
        impact.remediated = impact.remediated.max(output.remediated);
        impact.outputs += 1;
    }

    /// Forgets the lesser half.
    fn forget(&mut self) {
        let mut all: Vec<(i64, Impact)> = self.of.drain().collect();
        all.sort_unstable_by_key(|(source, impact)| (Reverse(impact.ps()), *source));
        let rest = all.split_off(CANDIDATES / 2);
        self.forgotten += rest
            .iter()
            .map(|(_, impact)| impact.outputs as u64)
            .sum::<u64>();
        self.of.extend(all);
    }

    /// Result rows whose source was forgotten: if it is not 0, impacts of sources that came again
    /// are those of the rows since then.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Rows of `sys.impactful_sources`.
    pub fn rows(&self, sources: &Sources) -> Vec<ImpactfulSource> {
        let rows = self.of.iter().filter_map(|(source, impact)| {
            let (table, row_id) = sources.row(*source)?;
            Some(ImpactfulSource {
                table_name: table.to_owned(),
                row_id,
                max_total_ns: nanoseconds(impact.total),
                max_remediated_ns: nanoseconds(impact.remediated),
                outputs: impact.outputs,
            })
        });
        rows.collect()
    }
}

const PS_PER_NS: i64 = 1000;

fn nanoseconds(ps: i64) -> i64 {
    (ps + PS_PER_NS / 2) / PS_PER_NS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition: of all inputs at once.
    fn at_once(inputs: &[Carried]) -> Carried {
        let slowest = inputs
            .iter()
            .min_by_key(|input| (Reverse(input.total), input.source))
            .unwrap();
        let left = inputs.iter().map(|input| {
            let same = input.source != NO_SOURCE && input.source == slowest.source;
            if same { input.remediated } else { input.total }
        });
        Carried {
            remediated: left.max().unwrap(),
            ..*slowest
        }
    }

    /// What an aggregate may be given: without a source there is no remediated latency to compare.
    fn carried() -> impl Strategy<Value = Carried> {
        let source = prop_oneof![3 => 0..4i64, 1 => Just(NO_SOURCE)];
        (0..6i64, source, proptest::option::of(0..6i64)).prop_map(|(total, source, less)| Carried {
            total,
            source,
            remediated: match less {
                Some(less) if source != NO_SOURCE => (total - less).max(0),
                _ => WOULD_NOT_EXIST,
            },
        })
    }

    /// Those of records without a source do not matter.
    fn seen(carried: Carried) -> Carried {
        match carried.source {
            NO_SOURCE => Carried {
                remediated: WOULD_NOT_EXIST,
                ..carried
            },
            _ => carried,
        }
    }

    proptest! {
        #[test]
        fn records_put_together_in_any_order_are_as_the_definition_says(
            inputs in prop::collection::vec(carried(), 1..9), cut in 0..9usize, later in 0..3i64,
        ) {
            let all = |inputs: &[Carried]| inputs.iter().copied().reduce(Carried::and);
            let (left, right) = inputs.split_at(cut.min(inputs.len()));
            let parts = [all(left), all(right)].into_iter().flatten();
            let together = parts.map(|part| part.after(later)).reduce(Carried::and).unwrap();
            prop_assert_eq!(seen(together), seen(at_once(&inputs).after(later)));
            for (one, other) in inputs.iter().zip(&inputs[1..]) {
                let stays = one.source != NO_SOURCE && one.and(*other) == *one;
                prop_assert_eq!(one.covers(*other), stays);
            }
        }
    }

    #[test]
    fn an_aggregate_s_time_is_charged_by_edges_and_never_twice() {
        let mut gathering = Gathering::default();
        gathering.resize(2);
        for group in [0, 0, 0, 1] {
            gathering.arrival().add(group, Carried::base(7));
        }
        let totals = |emitted: Vec<(Carried, bool)>| -> Vec<i64> {
            emitted
                .iter()
                .map(|(carried, _)| carried.total / 1000)
                .collect()
        };
        let charged = &mut 0.0;
        assert_eq!(totals(gathering.emit(1, 400, charged).collect()), [300]);
        // Of what was spent since then and what is left, all goes to the last group.
        gathering.resize(2);
        assert_eq!(
            gathering.emit(2, 500, charged).collect::<Vec<_>>()[1],
            (Carried::OF_NOTHING, false)
        );
        gathering.resize(1);
        gathering.arrival().add(0, Carried::base(7));
        let passed = gathering.pass(800, charged, 2, |passing| {
            (0..2).for_each(|row| passing.add(row, Carried::base(row as i64)));
            Ok::<_, ()>(())
        });
        assert_eq!(totals(passed.unwrap()), [150, 150]);
        assert_eq!(totals(gathering.emit(1, 900, charged).collect()), [100]);
        // What was spilled is merged by other groups of the same partition.
        let mut merging = Gathering::default();
        merging.resize(1);
        merging.arrival().add(0, Carried::base(7));
        assert_eq!(totals(merging.emit(1, 950, charged).collect()), [50]);
    }

    #[test]
    fn of_too_many_sources_the_greatest_are_kept_and_the_others_counted() {
        let mut impacts = Impacts::default();
        let sources = CANDIDATES as i64 * 2;
        for source in 0..sources {
            impacts.add(Carried::base(source).after(source * PS_PER_NS));
        }
        let mut rows = impacts.rows(&Sources::new(["t"]));
        assert!(rows.len() <= CANDIDATES);
        assert_eq!(impacts.forgotten() as usize + rows.len(), sources as usize);
        rows.sort_by_key(|row| Reverse(row.max_total_ns));
        let best: Vec<i64> = rows.iter().map(|row| row.row_id).take(10).collect();
        assert_eq!(best, (sources - 10..sources).rev().collect::<Vec<_>>());
    }

    #[test]
    fn a_source_s_number_tells_its_table_and_orders_by_row_first() {
        let sources = Sources::new(["main.u", "main.t", "main.u"]);
        let number = |table: &str, row: i64| {
            let (factor, offset) = sources.number(table).unwrap();
            row * factor + offset
        };
        assert_eq!(sources.row(number("main.u", 12)), Some(("main.u", 12)));
        assert!(number("main.t", 3) < number("main.u", 3));
        assert!(number("main.u", 3) < number("main.t", 4));
        assert_eq!(sources.number("main.v"), None);
    }
}
