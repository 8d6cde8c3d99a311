//! Which groups have a traced record, where not all records are traced.

use datafusion::arrow::array::{Array, Int64Array};
use datafusion::arrow::buffer::NullBuffer;
use skewer_profiling::Sampling;
use skewer_profiling::sampling::Choice;

use crate::capture::Groups;

/// With fewer groups than these it does not matter how many of them are traced.
const MANY: usize = 1024;

/// Where fewer rows than these come to a group, grouping is not what makes groups traced.
const REDUCTION: usize = 4;

/// From this share of traced groups on, nearly all are: the rate falls.
const NEARLY_ALL: f64 = 0.95;

/// The number of a group of no traced record.
pub(crate) const NONE: u64 = u64::MAX;

/// Which groups of an accumulator have a traced record.
///
/// A sample of records is to be a sample of what is made of them. But a group is traced if one of its
/// records is, so where a hundred records make a group, a rate of 5 % traces 99 of 100 groups, and
/// whatever comes after works as if everything were traced. Of many groups, that lets the rate fall
/// to a quarter, until the groups that are traced are a sample, too.
///
/// Records of a lower rate are among those of a higher one, so of each group the least number is
/// enough by which one of its records was chosen: what the last rate traces is known for the rows
/// before, too.
#[derive(Debug)]
pub(crate) struct TracedGroups {
    /// Of each group, the least number that one of its traced records was chosen by: its
    /// [`mixed`](skewer_profiling::sampling::mixed) id, or 0 if it is not of a base table.
    least: Vec<u64>,
    /// Rows of these groups, traced or not.
    rows: usize,
    /// The choice of records that was looked at last …
    choice: Choice,
    /// … and how many groups it traces.
    traced: usize,
}

impl TracedGroups {
    /// Of no groups. `None` where everything is traced.
    pub(crate) fn new(sampling: &Sampling) -> Option<Self> {
        let choice = sampling.choice();
        (!sampling.is_complete()).then(|| Self {
            least: Vec::new(),
            rows: 0,
            choice,
            traced: 0,
        })
    }

    /// There are `groups` groups now.
    pub(crate) fn resize(&mut self, groups: usize) {
        self.least.resize(groups, NONE);
    }

    /// Records `ids` of a batch that are not NULL are traced, and so are their groups; `chosen_by`
    /// gives the number by which that of a row was chosen.
    pub(crate) fn add(
        &mut self,
        groups: Groups<'_>,
        ids: &Int64Array,
        chosen_by: impl Fn(usize) -> u64,
    ) {
        let choice = self.choice;
        let every = NullBuffer::new_valid(ids.len());
        for row in ids.nulls().unwrap_or(&every).valid_indices() {
            let number = chosen_by(row);
            let known = &mut self.least[groups.group_of(row)];
            if number < *known {
                let first = !choice.admits(*known) && choice.admits(number);
                self.traced += usize::from(first);
                *known = number;
            }
        }
    }

    /// After a batch of `rows`: lets the rate fall if grouping makes nearly all of many groups traced.
    pub(crate) fn look(&mut self, rows: usize, sampling: &Sampling) {
        self.rows += rows;
        let groups = self.least.len();
        let matters = groups >= MANY && self.rows >= REDUCTION * groups;
        if !matters || !sampling.falls_with_groups() {
            return;
        }
        let nearly_all = NEARLY_ALL * groups as f64;
        if self.traced as f64 >= nearly_all {
            self.count(sampling.choice());
            if self.traced as f64 >= nearly_all {
                sampling.fall_from(self.choice);
                self.count(sampling.choice());
            }
        }
    }

    /// Takes the first `groups` out: the numbers by which they were chosen, [`NONE`] where no record is
    /// traced now.
    pub(crate) fn take(&mut self, groups: usize, sampling: &Sampling) -> Vec<u64> {
        let choice = sampling.choice();
        let share = groups as f64 / self.least.len().max(1) as f64;
        let taken = self.least.drain(..groups);
        let taken = taken.map(|least| number_if_traced(choice, least));
        let taken = taken.collect();
        // Nobody knows whose rows they were.
        self.rows -= (self.rows as f64 * share) as usize;
        self.count(choice);
        taken
    }

    /// The same of the only group, which stays.
    pub(crate) fn only(&self, sampling: &Sampling) -> u64 {
        let least = self.least.first().copied().unwrap_or(NONE);
        number_if_traced(sampling.choice(), least)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<u64>() * self.least.capacity()
    }

    fn count(&mut self, choice: Choice) {
        self.choice = choice;
        let traced = self.least.iter().filter(|least| is_traced(choice, **least));
        self.traced = traced.count();
    }
}

fn is_traced(choice: Choice, least: u64) -> bool {
    least != NONE && choice.admits(least)
}

fn number_if_traced(choice: Choice, least: u64) -> u64 {
    if is_traced(choice, least) {
        least
    } else {
        NONE
    }
}

#[cfg(test)]
mod tests {
    use skewer_profiling::sampling::number_of;

    use super::*;

    /// Rows of `groups` groups come in turn, `each` of every group. Gives the rate in the end and
    /// the share of the groups that are traced.
    fn grouped(rate: f64, groups: usize, each: usize) -> (f64, f64) {
        let sampling = Sampling::new(rate, None);
        let mut traced = TracedGroups::new(&sampling).unwrap();
        let of_rows: Vec<usize> = (0..groups).collect();
        for turn in 0..each {
            traced.resize(groups);
            let choice = sampling.choice();
            let ids = (0..groups).map(|group| (turn * groups + group) as i64);
            let ids: Int64Array = ids.map(|id| choice.traces(id).then_some(id)).collect();
            let number = |row| number_of(ids.value(row));
            traced.add(Groups::Listed(&of_rows), &ids, number);
            traced.look(groups, &sampling);
        }
        let taken = traced.take(groups, &sampling);
        // What was counted on the way is what there is.
        assert!(traced.least.is_empty() && traced.traced == 0);
        let traced = taken.iter().filter(|number| **number != NONE);
        (sampling.rate(), traced.count() as f64 / groups as f64)
    }

    #[test]
    fn the_rate_falls_where_grouping_makes_nearly_every_group_traced() {
        let (rate, share) = grouped(0.1, 10_000, 200);
        assert!(rate < 0.1 && rate > 0.1 / 200.0, "{rate}");
        assert!((0.4..0.95).contains(&share), "{share}");
        // As many as there would be if it had been the rate from the beginning.
        let expected = 1.0 - (1.0 - rate).powi(200);
        assert!((share - expected).abs() < 0.02, "{share} {expected}");
    }

    #[test]
    fn the_rate_stays_where_grouping_is_not_the_reason_or_groups_are_few() {
        assert_eq!(grouped(0.1, 100, 2_000).0, 0.1);
        assert_eq!(grouped(0.97, 10_000, 2).0, 0.97);
        let budget = Sampling::new(1.0, Some(0.05));
        let mut traced = TracedGroups::new(&budget).unwrap();
        traced.resize(2_000);
        let ids = Int64Array::from_iter_values(0..2_000);
        traced.add(Groups::Each, &ids, |row| number_of(row as i64));
        traced.look(20_000, &budget);
        assert_eq!(budget.rate(), 1.0);
        let (rate, share) = grouped(0.1, 10_000, 10);
        assert_eq!(rate, 0.1);
        assert!((share - (1.0 - 0.9_f64.powi(10))).abs() < 0.02, "{share}");
    }

    #[test]
    fn groups_are_traced_by_the_choice_of_the_end() {
        let sampling = Sampling::new(0.5, None);
        let mut traced = TracedGroups::new(&sampling).unwrap();
        let ids: Int64Array = (0..1_000)
            .map(|id| sampling.choice().traces(id).then_some(id))
            .collect();
        traced.resize(1_000);
        let number = |row| number_of(ids.value(row));
        traced.add(Groups::Each, &ids, number);
        sampling.fall_from(sampling.choice());
        let taken = traced.take(1_000, &sampling);
        assert_eq!(taken.len(), 1_000);
        for (id, number) in (0..).zip(taken) {
            assert_eq!(number != NONE, Choice::of_rate(0.125).traces(id));
        }
    }
}
