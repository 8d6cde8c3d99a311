//! Sizes of the joins of an island's leaves, and what they cost.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use datafusion::common::Column;
use skewer_compat::rules::join_sides::MOST_WORSE;

use super::estimate::{Estimate, Keys};
use super::feedback::KnownSets;
use super::island::{Condition, Island, JoinTree, LeafSet, Slot};
use super::selectivity::{ColumnEstimate, Rules};

/// What a row that a hash table is built of costs, relative to one that looks for partners.
const BUILD: f64 = 2.0;
/// What a row costs that is moved to the partition of its key.
const EXCHANGE: f64 = 0.5;
/// What comparing a row with another costs in a join without keys.
const PAIR: f64 = 0.1;
/// Leaves up to which all subsets of a set are looked at for what earlier queries counted.
const MOST_CORRECTED: usize = 12;

/// Rows of a set of leaves that have been joined.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Size {
    pub(super) rows: f64,
    pub(super) worst: f64,
}

/// A group of equal columns: the least number of distinct values that each leaf has.
#[derive(Debug, Default)]
struct Class {
    leaves: LeafSet,
    distinct: BTreeMap<usize, f64>,
}

/// A condition over several leaves.
#[derive(Debug)]
struct Predicate {
    leaves: LeafSet,
    /// For which share of rows it holds.
    share: f64,
    /// Whether a join evaluates it on each pair of rows with equal keys.
    is_on_pairs: bool,
}

/// What earlier queries say of the size of a set.
#[derive(Debug, Clone, Copy)]
struct Correction {
    /// Rows, relative to the estimate.
    factor: f64,
    /// Whether they have been counted.
    is_counted: bool,
}

/// The sizes of sets of leaves. They do not depend on the order in which leaves are joined.
#[derive(Debug)]
pub(super) struct Sizes<'a> {
    leaves: Vec<Size>,
    /// The leaves from the largest to the smallest: the order in which sizes are computed.
    by_size: Vec<usize>,
    classes: Vec<Class>,
    conditions: Vec<Predicate>,
    /// The leaves of both sides of equalities of expressions.
    equalities: Vec<[LeafSet; 2]>,
    /// Of each leaf: those that it shares keys with.
    neighbours: Vec<LeafSet>,
    known: RefCell<HashMap<LeafSet, Size>>,
    /// Sets that earlier queries have joined.
    joined_before: Option<KnownSets<'a>>,
    /// By how much more rows sets have than they are estimated to have, as far as earlier queries say.
    corrections: RefCell<HashMap<LeafSet, Correction>>,
    /// How many rows are collected into one partition at most.
    collected: f64,
}

impl<'a> Sizes<'a> {
    /// The sizes of `island`, whose leaves have `estimates`; sides of up to `collected` rows are collected. Queries
    /// have `joined_before` some of its sets.
    pub(super) fn new(
        island: &Island,
        estimates: &[Estimate],
        collected: usize,
        joined_before: Option<KnownSets<'a>>,
    ) -> Self {
        let leaves: Vec<Size> = estimates
            .iter()
            .map(|estimate| Size {
                rows: estimate.rows,
                worst: estimate.worst,
            })
            .collect();
        let mut by_size: Vec<usize> = (0..leaves.len()).collect();
        by_size.sort_by(|one, other| leaves[*other].rows.total_cmp(&leaves[*one].rows));
        let classes = island
            .classes
            .iter()
            .map(|class| class_of(class, estimates));
        let column = |column: &Column| {
            let slot = Slot::from_placeholder(column)?;
            estimates.get(slot.leaf)?.columns.get(slot.column).cloned()
        };
        let conditions = island.conditions.iter();
        let conditions = conditions.map(|condition| Predicate {
            leaves: condition.leaves,
            share: share(condition, &column),
            is_on_pairs: condition.sides.is_none(),
        });
        let equalities = island.conditions.iter().filter_map(|condition| {
            let [(_, left), (_, right)] = condition.sides.as_ref()?;
            Some([*left, *right])
        });
        let mut sizes = Self {
            by_size,
            equalities: equalities.collect(),
            classes: classes.collect(),
            conditions: conditions.collect(),
            neighbours: vec![0; leaves.len()],
            leaves,
            known: RefCell::default(),
            joined_before,
            corrections: RefCell::default(),
            collected: collected as f64,
        };
        for class in &sizes.classes {
            for (leaf, neighbours) in sizes.neighbours.iter_mut().enumerate() {
                if class.leaves & (1 << leaf) != 0 {
                    *neighbours |= class.leaves & !(1 << leaf);
                }
            }
        }
        for condition in &island.conditions {
            // Other conditions compare pairs of rows, as a cross product does.
            if condition.leaves.count_ones() == 2 && condition.sides.is_some() {
                let one = condition.leaves.trailing_zeros() as usize;
                let other = (LeafSet::BITS - 1 - condition.leaves.leading_zeros()) as usize;
                sizes.neighbours[one] |= 1 << other;
                sizes.neighbours[other] |= 1 << one;
            }
        }
        sizes
    }

    pub(super) fn leaves(&self) -> usize {
        self.leaves.len()
    }

    /// The leaves outside of `set` that share a key with one in it.
    pub(super) fn neighbours(&self, set: LeafSet) -> LeafSet {
        let all = members(set).map(|leaf| self.neighbours[leaf]);
        all.fold(0, |all, of_leaf| all | of_leaf) & !set
    }

    /// How many rows the joined leaves of `set` have.
    pub(super) fn size(&self, set: LeafSet) -> Size {
        if let Some(known) = self.known.borrow().get(&set) {
            return *known;
        }
        let mut size = self.estimated(set);
        if self.joined_before.is_some() && set.count_ones() > 1 {
            let correction = self.correction(set);
            size.rows = (size.rows * correction.factor).max(f64::MIN_POSITIVE);
            size.worst = match correction.is_counted {
                true => size.rows,
                false => (size.worst * correction.factor.max(1.0)).max(size.rows),
            };
        }
        self.known.borrow_mut().insert(set, size);
        size
    }

    /// What earlier queries say of the size of `set`, which has several leaves. If none has joined just these, an
    /// error with some of them is taken to remain: of all errors the greatest.
    fn correction(&self, set: LeafSet) -> Correction {
        if let Some(known) = self.corrections.borrow().get(&set) {
            return *known;
        }
        let before = self.joined_before.as_ref();
        let returned = before.and_then(|before| before.get(set));
        let relative = returned.map(|returned| {
            let rows = (returned.rows as f64).max(1.0);
            (rows / self.estimated(set).rows, returned.is_all)
        });
        let correction = match relative {
            Some((factor, true)) => Correction {
                factor,
                is_counted: true,
            },
            _ => {
                let within = self.greatest_within(set);
                let least = relative.map_or(0.0, |(factor, _)| factor);
                Correction {
                    factor: within.max(least),
                    is_counted: false,
                }
            }
        };
        self.corrections.borrow_mut().insert(set, correction);
        correction
    }

    /// The greatest error, in either direction, with all but one leaf of `set`.
    fn greatest_within(&self, set: LeafSet) -> f64 {
        if set.count_ones() < 3 || self.leaves.len() > MOST_CORRECTED {
            return 1.0;
        }
        let smaller = members(set).map(|leaf| self.correction(set & !(1 << leaf)).factor);
        let greatest = smaller.max_by(|one, other| one.ln().abs().total_cmp(&other.ln().abs()));
        greatest.unwrap_or(1.0)
    }

    /// How many rows the joined leaves of `set` have by their statistics.
    fn estimated(&self, set: LeafSet) -> Size {
        let mut size = Size {
            rows: 1.0,
            worst: 1.0,
        };
        let mut joined: LeafSet = 0;
        for leaf in self.by_size.iter().copied() {
            if set & (1 << leaf) == 0 {
                continue;
            }
            let keys = self.keys(joined, leaf);
            size.rows *= self.leaves[leaf].rows / keys;
            size.worst *= self.leaves[leaf].worst / keys;
            joined |= 1 << leaf;
        }
        for Predicate { leaves, share, .. } in &self.conditions {
            if leaves & !set == 0 && leaves.count_ones() > 1 {
                size.rows *= share;
                size.worst *= share.sqrt();
            }
        }
        size.rows = size.rows.max(f64::MIN_POSITIVE);
        size.worst = size.worst.max(size.rows);
        size
    }

    /// By how much equalities with the leaves of `joined` thin out the rows of `leaf`.
    fn keys(&self, joined: LeafSet, leaf: usize) -> f64 {
        let rows = self.leaves[leaf].rows;
        // The keys of each leaf of `joined`, and what they are compared with.
        let mut pairs: BTreeMap<usize, (Keys, Keys)> = BTreeMap::new();
        for class in &self.classes {
            if class.leaves & (1 << leaf) == 0 || class.leaves & joined == 0 {
                continue;
            }
            let earlier = class.distinct.iter();
            let earlier = earlier.filter(|(of, _)| joined & (1 << **of) != 0);
            let earlier =
                earlier.map(|(of, distinct)| (*of, distinct.min(self.matched(*of, joined))));
            let least = earlier
                .min_by(|(one, few), (other, many)| few.total_cmp(many).then(one.cmp(other)));
            if let Some((of, distinct)) = least {
                let others = Keys::none(self.leaves[of].rows);
                let (own, others) = pairs
                    .entry(of)
                    .or_insert_with(|| (Keys::none(rows), others));
                own.distinct *= class.distinct.get(&leaf).copied().unwrap_or(1.0);
                others.distinct *= distinct;
            }
        }
        let pairs: Vec<(Keys, Keys)> = pairs.into_values().collect();
        let Some(most) = (0..pairs.len()).max_by(|one, other| {
            let matching = |place: usize| pairs[place].0.matching(pairs[place].1);
            matching(*one).total_cmp(&matching(*other))
        }) else {
            return 1.0;
        };
        // Columns of one leaf often depend on each other: beside the key that thins out most, another one only tells apart
        // as many rows as the side with fewer values has.
        let thinned = pairs
            .iter()
            .enumerate()
            .map(|(place, (own, others))| match place == most {
                true => own.matching(*others),
                false => own.at_most_rows().min(others.at_most_rows()),
            });
        thinned.product()
    }

    /// How many rows of `leaf` find partners among the other leaves of `joined`: where those have few of its keys, few
    /// of its rows do, and so few values of its other columns are left.
    fn matched(&self, leaf: usize, joined: LeafSet) -> f64 {
        let mut share: f64 = 1.0;
        for class in &self.classes {
            let Some(own) = class.distinct.get(&leaf) else {
                continue;
            };
            for (other, distinct) in &class.distinct {
                if *other != leaf && joined & (1 << *other) != 0 {
                    share = share.min(distinct / own);
                }
            }
        }
        (self.leaves[leaf].rows * share).max(1.0)
    }

    /// Whether a class or a condition is about both `left` and `right`, and about no other leaf.
    pub(super) fn are_connected(&self, left: LeafSet, right: LeafSet) -> bool {
        self.has_key(left, right)
            || self
                .conditions
                .iter()
                .any(|condition| condition.is_between(left, right))
    }

    /// Whether rows of `left` find partners in `right` by a key.
    pub(super) fn has_key(&self, left: LeafSet, right: LeafSet) -> bool {
        let of_class = |class: &Class| class.leaves & left != 0 && class.leaves & right != 0;
        let within = |one: LeafSet, other: LeafSet| one & !left == 0 && other & !right == 0;
        self.classes.iter().any(of_class)
            || self
                .equalities
                .iter()
                .any(|[one, other]| within(*one, *other) || within(*other, *one))
    }

    /// What it costs to build a hash table of `build`, and to look for partners of `probe`'s rows.
    pub(super) fn join_cost(&self, build: LeafSet, probe: LeafSet) -> f64 {
        let (built, probing) = (self.size(build), self.size(probe));
        // Rows that are left out by conditions are put together before.
        let between = self.conditions.iter();
        let between =
            between.filter(|condition| condition.is_on_pairs && condition.is_between(build, probe));
        let share: f64 = between.map(|condition| condition.share).product();
        let output = self.size(build | probe).rows / share.max(f64::MIN_POSITIVE);
        if !self.has_key(build, probe) {
            return BUILD * built.rows + PAIR * built.rows * probing.rows + probing.rows + output;
        }
        let is_collected =
            built.rows <= self.collected && built.worst <= self.collected * MOST_WORSE;
        let moved = match is_collected {
            true => 0.0,
            false => EXCHANGE * (built.rows + probing.rows),
        };
        BUILD * built.rows + probing.rows + output + moved
    }

    /// What the joins of `tree` cost, each with the better of its sides as the one that a table is built of.
    pub(super) fn cost(&self, tree: &JoinTree) -> f64 {
        let JoinTree::Join(left, right) = tree else {
            return 0.0;
        };
        let below = self.cost(left) + self.cost(right);
        let (left, right) = (left.leaf_set(), right.leaf_set());
        below + self.join_cost(left, right).min(self.join_cost(right, left))
    }
}

impl Predicate {
    /// Whether joining `left` and `right` is the first that has all of its leaves.
    fn is_between(&self, left: LeafSet, right: LeafSet) -> bool {
        let leaves = self.leaves;
        leaves & !(left | right) == 0 && leaves & !left != 0 && leaves & !right != 0
    }
}

/// The leaves of a set, ascending.
pub(super) fn members(set: LeafSet) -> impl Iterator<Item = usize> + Clone {
    (0..LeafSet::BITS as usize).filter(move |leaf| set & (1 << leaf) != 0)
}

fn class_of(slots: &[Slot], estimates: &[Estimate]) -> Class {
    let mut class = Class::default();
    for slot in slots {
        class.leaves |= slot.leaf_set();
        let column = estimates
            .get(slot.leaf)
            .and_then(|leaf| leaf.columns.get(slot.column));
        let distinct = column.map_or(1.0, |column| column.distinct);
        let least = class.distinct.entry(slot.leaf).or_insert(distinct);
        *least = least.min(distinct);
    }
    class
}

/// The share of rows for which a condition on several leaves holds.
fn share(condition: &Condition, column: &dyn Fn(&Column) -> Option<ColumnEstimate>) -> f64 {
    let rules = Rules { columns: column };
    match &condition.sides {
        Some([(left, _), (right, _)]) => {
            let distinct = [left, right].map(|side| rules.distinct(side).unwrap_or(1.0));
            1.0 / distinct[0].max(distinct[1]).max(1.0)
        }
        None => rules.all([&condition.expr]),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder, lit};

    use super::super::feedback::tests::joined_before;
    use super::*;

    /// An island of leaves with so many rows each, joined by keys; column `n` of a leaf is for its n-th key.
    pub(in super::super) fn sizes(rows: &[f64], keys: &[(usize, usize, f64)]) -> Sizes<'static> {
        let empty: LogicalPlan = LogicalPlanBuilder::values(vec![vec![lit(1)]])
            .unwrap()
            .build()
            .unwrap();
        let mut columns = vec![Vec::new(); rows.len()];
        let classes = keys.iter().map(|(one, other, distinct)| {
            let mut slot = |leaf: usize| {
                columns[leaf].push(ColumnEstimate::with_distinct(distinct.min(rows[leaf])));
                Slot {
                    leaf,
                    column: columns[leaf].len() - 1,
                }
            };
            vec![slot(*one), slot(*other)]
        });
        let island = Island {
            leaves: rows.iter().map(|_| Arc::new(empty.clone())).collect(),
            conditions: vec![],
            classes: classes.collect(),
            output: vec![],
            text: JoinTree::Leaf(0),
        };
        let estimates = rows.iter().zip(columns).map(|(rows, columns)| Estimate {
            rows: *rows,
            worst: *rows,
            columns,
        });
        Sizes::new(&island, &estimates.collect::<Vec<_>>(), 1_000, None)
    }

    #[test]
    fn larger_sets_keep_the_greatest_error_of_those_within_them() {
        // Each join has 100,000 rows by statistics, and so has each larger set.
        let keys = [0, 1, 2].map(|leaf| (leaf, leaf + 1, 1_000.0));
        let rows = [100_000.0, 1_000.0, 1_000.0, 1_000.0];
        let of = |counted: &[(LeafSet, u64, bool)], set: LeafSet| {
            let mut sizes = sizes(&rows, &keys);
            sizes.joined_before = Some(joined_before(rows.len(), counted));
            sizes.size(set).rows.round()
        };
        assert_eq!(of(&[], 0b0111), 100_000.0);
        // What has been counted is known, whatever is known of its parts.
        let both = [(0b0011, 500, true), (0b0111, 70, true)];
        assert_eq!(of(&both, 0b0011), 500.0);
        assert_eq!(of(&both, 0b0111), 70.0);
        // Other sets keep the error that is farthest from 1, of all levels.
        assert_eq!(of(&both, 0b1111), 70.0);
        assert_eq!(of(&[(0b0011, 500, true)], 0b1111), 500.0);
        let more = [(0b0011, 50_000, true), (0b0110, 30_000, true)];
        assert_eq!(of(&more, 0b0111), 3_000_000.0);
        assert_eq!(of(&more, 0b1100), 1_000.0);
        // A number of rows that were not all read is a lower bound.
        assert_eq!(of(&[(0b0011, 500, false)], 0b0011), 100_000.0);
        assert_eq!(of(&[(0b0011, 300_000, false)], 0b0011), 300_000.0);
    }
}
