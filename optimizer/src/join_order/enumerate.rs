//! The search for the cheapest order.
//!
//! Up to ten leaves, or ten thousand pairs of sets, all trees without cross products are compared by dynamic
//! programming over connected subgraphs and their complements (DPccp: Moerkotte and Neumann, "Analysis of two
//! existing and one new dynamic programming algorithm …", VLDB 2006). Beyond that the cheapest pair is joined
//! again and again (greedy operator ordering: Fegaras, "A new heuristic for optimizing large queries", 1998).

use std::collections::HashMap;

use super::island::{JoinTree, LeafSet};
use super::sizes::{Sizes, members};

/// Leaves up to which all trees are compared, whatever that takes.
const FEW_LEAVES: usize = 10;
/// Pairs of sets that are compared if there are more leaves.
const MOST_PAIRS: usize = 10_000;
/// Sets that are looked at.
const MOST_SETS: usize = 60_000;
/// How much cheaper a tree must be to replace one that was found before.
const BETTER: f64 = 1.0 - 1e-9;

/// The cheapest tree that is found.
pub(super) fn cheapest(sizes: &Sizes<'_>) -> JoinTree {
    let parts = components(sizes).into_iter().map(|component| {
        let of_component = Search::new(sizes, component).cheapest(component);
        of_component
            .unwrap_or_else(|| greedy(sizes, members(component).map(JoinTree::Leaf).collect()))
    });
    greedy(sizes, parts.collect())
}

/// Some tree, another one for each `seed`, with cross products only where nothing else is left.
pub(super) fn random(sizes: &Sizes<'_>, seed: u64) -> JoinTree {
    let mut state = seed;
    let mut random = move |below: usize| {
        // SplitMix64 (Steele et al., 2014).
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ (bits >> 31)) % below.max(1) as u64) as usize
    };
    let mut parts: Vec<JoinTree> = (0..sizes.leaves()).map(JoinTree::Leaf).collect();
    while parts.len() > 1 {
        let pairs = pairs(sizes, &parts);
        let (left, right) = pairs[random(pairs.len())];
        let swaps = random(2) == 0;
        let (left, right) = take(&mut parts, left, right);
        parts.push(match swaps {
            true => JoinTree::join(right, left),
            false => JoinTree::join(left, right),
        });
    }
    parts.pop().unwrap_or(JoinTree::Leaf(0))
}

/// The sets of leaves between which there are no keys.
fn components(sizes: &Sizes<'_>) -> Vec<LeafSet> {
    let mut components = Vec::new();
    let mut seen: LeafSet = 0;
    for leaf in 0..sizes.leaves() {
        if seen & (1 << leaf) != 0 {
            continue;
        }
        let mut component: LeafSet = 1 << leaf;
        loop {
            let more = component | sizes.neighbours(component);
            if more == component {
                break;
            }
            component = more;
        }
        seen |= component;
        components.push(component);
    }
    components
}

/// The places of parts that may be joined next: all pairs if no condition is about any.
fn pairs(sizes: &Sizes<'_>, parts: &[JoinTree]) -> Vec<(usize, usize)> {
    let sets: Vec<LeafSet> = parts.iter().map(JoinTree::leaf_set).collect();
    let all =
        || (0..sets.len()).flat_map(|left| (left + 1..sets.len()).map(move |right| (left, right)));
    let connected = all().filter(|(left, right)| sizes.are_connected(sets[*left], sets[*right]));
    let connected: Vec<_> = connected.collect();
    match connected.is_empty() {
        true => all().collect(),
        false => connected,
    }
}

/// Takes two parts away; `left` is before `right`.
fn take(parts: &mut Vec<JoinTree>, left: usize, right: usize) -> (JoinTree, JoinTree) {
    let of_right = parts.remove(right);
    (parts.remove(left), of_right)
}

fn greedy(sizes: &Sizes<'_>, mut parts: Vec<JoinTree>) -> JoinTree {
    while parts.len() > 1 {
        let mut best: Option<(f64, usize, usize, bool)> = None;
        for (left, right) in pairs(sizes, &parts) {
            let (one, other) = (parts[left].leaf_set(), parts[right].leaf_set());
            for (build, probe, swaps) in [(one, other, false), (other, one, true)] {
                let cost = sizes.join_cost(build, probe);
                if best.is_none_or(|(least, ..)| cost < least * BETTER) {
                    best = Some((cost, left, right, swaps));
                }
            }
        }
        let Some((_, left, right, swaps)) = best else {
            break;
        };
        let (left, right) = take(&mut parts, left, right);
        parts.push(match swaps {
            true => JoinTree::join(right, left),
            false => JoinTree::join(left, right),
        });
    }
    parts.pop().unwrap_or(JoinTree::Leaf(0))
}

/// The best that is known of a set of leaves.
#[derive(Debug, Clone, Copy)]
struct Best {
    cost: f64,
    /// The side that a table is built of, and the other; both empty for a leaf.
    sides: (LeafSet, LeafSet),
}

#[derive(Debug)]
struct Search<'a> {
    sizes: &'a Sizes<'a>,
    best: HashMap<LeafSet, Best>,
    pairs: usize,
    sets: usize,
    most_pairs: usize,
}

impl<'a> Search<'a> {
    fn new(sizes: &'a Sizes<'a>, component: LeafSet) -> Self {
        let most_pairs = match component.count_ones() as usize <= FEW_LEAVES {
            true => usize::MAX,
            false => MOST_PAIRS,
        };
        Self {
            sizes,
            best: HashMap::new(),
            pairs: 0,
            sets: 0,
            most_pairs,
        }
    }

    /// The cheapest tree over the leaves of `component`; `None` if there are too many to compare.
    fn cheapest(mut self, component: LeafSet) -> Option<JoinTree> {
        let leaf = Best {
            cost: 0.0,
            sides: (0, 0),
        };
        self.best = members(component)
            .map(|member| (1 << member, leaf))
            .collect();
        let leaves: Vec<usize> = members(component).collect();
        for leaf in leaves.into_iter().rev() {
            let set: LeafSet = 1 << leaf;
            self.complements(set)?;
            self.larger(set, up_to(leaf), &mut |search, set| search.complements(set))?;
        }
        self.tree(component)
    }

    /// Calls `each` for all connected sets that contain `set` and of its neighbours none in `excluded`.
    fn larger(
        &mut self,
        set: LeafSet,
        excluded: LeafSet,
        each: &mut dyn FnMut(&mut Self, LeafSet) -> Option<()>,
    ) -> Option<()> {
        let neighbours = self.sizes.neighbours(set) & !excluded;
        for subset in subsets(neighbours) {
            self.sets += 1;
            if self.sets > MOST_SETS {
                return None;
            }
            each(self, set | subset)?;
        }
        for subset in subsets(neighbours) {
            self.larger(set | subset, excluded | neighbours, each)?;
        }
        Some(())
    }

    /// Compares the joins of `set` with all connected sets beside it that begin with a later leaf.
    fn complements(&mut self, set: LeafSet) -> Option<()> {
        let excluded = up_to(set.trailing_zeros() as usize) | set;
        let neighbours = self.sizes.neighbours(set) & !excluded;
        let later: Vec<usize> = members(neighbours).collect();
        for leaf in later.into_iter().rev() {
            let other: LeafSet = 1 << leaf;
            self.pair(set, other)?;
            let excluded = excluded | (up_to(leaf) & neighbours);
            self.larger(other, excluded, &mut |search, other| {
                search.pair(set, other)
            })?;
        }
        Some(())
    }

    fn pair(&mut self, one: LeafSet, other: LeafSet) -> Option<()> {
        self.pairs += 1;
        if self.pairs > self.most_pairs {
            return None;
        }
        let below = self.best.get(&one)?.cost + self.best.get(&other)?.cost;
        for sides in [(one, other), (other, one)] {
            let cost = below + self.sizes.join_cost(sides.0, sides.1);
            let known = self.best.get(&(one | other));
            if known.is_none_or(|known| cost < known.cost * BETTER) {
                self.best.insert(one | other, Best { cost, sides });
            }
        }
        Some(())
    }

    fn tree(&self, set: LeafSet) -> Option<JoinTree> {
        let (build, probe) = self.best.get(&set)?.sides;
        Some(match build {
            0 => JoinTree::Leaf(set.trailing_zeros() as usize),
            _ => JoinTree::join(self.tree(build)?, self.tree(probe)?),
        })
    }
}

/// The leaves up to `leaf`.
fn up_to(leaf: usize) -> LeafSet {
    LeafSet::MAX >> (LeafSet::BITS as usize - 1 - leaf)
}

/// The subsets of `set` but the empty one, smaller numbers first.
fn subsets(set: LeafSet) -> impl Iterator<Item = LeafSet> {
    let next = move |subset: &LeafSet| {
        let next = subset.wrapping_sub(set) & set;
        (next != 0).then_some(next)
    };
    std::iter::successors(next(&0), next)
}

#[cfg(test)]
mod tests {
    use super::super::sizes::tests::sizes;
    use super::*;

    /// The least cost of a tree over `set` without cross products, by trying all.
    fn by_force(sizes: &Sizes<'_>, set: LeafSet, known: &mut HashMap<LeafSet, f64>) -> f64 {
        if set.count_ones() == 1 {
            return 0.0;
        }
        if let Some(cost) = known.get(&set) {
            return *cost;
        }
        let mut least = f64::INFINITY;
        for left in subsets(set).filter(|left| *left != set) {
            let right = set & !left;
            if sizes.are_connected(left, right) {
                let below = by_force(sizes, left, known) + by_force(sizes, right, known);
                least = least.min(below + sizes.join_cost(left, right));
            }
        }
        known.insert(set, least);
        least
    }

    /// Numbers that look random.
    fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
        let mut state = seed;
        move |below| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        }
    }

    #[test]
    fn the_search_finds_what_trying_all_finds() {
        for seed in 0..150 {
            let mut random = numbers(seed);
            let leaves = 2 + random(6);
            let rows: Vec<f64> = (0..leaves).map(|_| 10_f64.powi(random(7) as i32)).collect();
            let mut keys = Vec::new();
            for leaf in 1..leaves {
                keys.push((random(leaf), leaf, 10_f64.powi(random(6) as i32)));
            }
            for _ in 0..random(4) {
                let (one, other) = (random(leaves), random(leaves));
                if one != other {
                    keys.push((one, other, 10_f64.powi(random(6) as i32)));
                }
            }
            let sizes = sizes(&rows, &keys);
            let all = up_to(leaves - 1);
            let found = cheapest(&sizes);
            assert_eq!(found.leaf_set(), all);
            let least = by_force(&sizes, all, &mut HashMap::new());
            let cost = sizes.cost(&found);
            assert!(
                cost <= least * 1.000_001,
                "{seed}: {cost} instead of {least}: {found:?}"
            );
        }
    }

    #[test]
    fn large_islands_are_ordered_too() {
        let rows: Vec<f64> = (0..30).map(|leaf| f64::from(leaf) * 100.0 + 10.0).collect();
        // A star: 2^29 connected sets.
        let keys: Vec<_> = (1..30).map(|leaf| (0, leaf, 1_000.0)).collect();
        let sizes = sizes(&rows, &keys);
        assert_eq!(cheapest(&sizes).leaf_set(), up_to(29));
    }

    #[test]
    fn leaves_without_keys_are_joined_last() {
        let sizes = sizes(&[100.0, 100.0, 5.0], &[(0, 2, 100.0)]);
        let expected = JoinTree::join(JoinTree::Leaf(2), JoinTree::Leaf(0));
        let JoinTree::Join(left, right) = cheapest(&sizes) else {
            panic!("two leaves are missing");
        };
        assert!(*left == expected || *right == expected);
    }

    #[test]
    fn random_trees_have_all_leaves_and_differ() {
        let keys: Vec<_> = (1..6).map(|leaf| (leaf - 1, leaf, 10.0)).collect();
        let sizes = sizes(&[10.0; 6], &keys);
        let trees: Vec<JoinTree> = (0..20).map(|seed| random(&sizes, seed)).collect();
        assert!(trees.iter().all(|tree| tree.leaf_set() == up_to(5)));
        assert!(trees.iter().any(|tree| *tree != trees[0]));
    }

    #[test]
    fn subsets_are_all_but_the_empty_one() {
        assert_eq!(subsets(0b101).collect::<Vec<_>>(), [0b001, 0b100, 0b101]);
        assert_eq!(subsets(0).count(), 0);
    }
}
